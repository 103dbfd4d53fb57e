-- +goose Up
-- The ordering keys of entries of serial types. See the MySQL table.
CREATE TABLE IF NOT EXISTS `common_process_log_turns` (
  `business_type` TEXT NOT NULL,
  `turn_key`      BLOB NOT NULL,
  `place`         INTEGER NOT NULL,
  `entry_id`      INTEGER NOT NULL,
  `epoch`         INTEGER NOT NULL,
  `parked`        INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (`entry_id`, `turn_key`)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS `common_process_log_turns_line` ON `common_process_log_turns` (`business_type`, `turn_key`, `place`, `entry_id`);
