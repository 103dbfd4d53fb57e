-- +goose Up
-- Cases: entries that wait for a person, or waited for one. See the MySQL table.
CREATE TABLE IF NOT EXISTS `common_process_log_case` (
  `entry_id`      INTEGER PRIMARY KEY NOT NULL,
  `epoch`         INTEGER NOT NULL,
  `version`       INTEGER NOT NULL DEFAULT 0,
  `kind`          INTEGER NOT NULL,
  `business_type` TEXT NOT NULL,
  `business_id`   TEXT NOT NULL DEFAULT '',
  `fingerprint`   BLOB NOT NULL,
  `ended_by`      TEXT NOT NULL DEFAULT '',
  `error`         TEXT NOT NULL DEFAULT '',
  `amount`        INTEGER NULL,
  `currency`      TEXT NOT NULL DEFAULT '',
  `owner`         TEXT NOT NULL DEFAULT '',
  `opened_at`     INTEGER NOT NULL,
  `due_at`        INTEGER NOT NULL,
  `closed_at`     INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS `common_process_log_case_group` ON `common_process_log_case` (`closed_at`, `business_type`, `fingerprint`, `currency`, `amount`, `opened_at`);
CREATE INDEX IF NOT EXISTS `common_process_log_case_due` ON `common_process_log_case` (`closed_at`, `due_at`, `entry_id`);
CREATE INDEX IF NOT EXISTS `common_process_log_case_owner` ON `common_process_log_case` (`closed_at`, `owner`, `due_at`, `entry_id`);
