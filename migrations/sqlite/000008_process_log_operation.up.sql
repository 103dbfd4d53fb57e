-- +goose Up
-- Actions of people, and refused actions, except changes of entries. See the MySQL table.
CREATE TABLE IF NOT EXISTS `common_process_log_operation` (
  `id`            INTEGER PRIMARY KEY AUTOINCREMENT,
  `at`            INTEGER NOT NULL,
  `actor`         TEXT NOT NULL,
  `action`        TEXT NOT NULL,
  `refused`       INTEGER NOT NULL DEFAULT 0,
  `entry_id`      INTEGER NOT NULL DEFAULT 0,
  `business_type` TEXT NOT NULL DEFAULT '',
  `subject`       TEXT NOT NULL DEFAULT '',
  `reason`        TEXT NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS `common_process_log_operation_entry` ON `common_process_log_operation` (`entry_id`, `id`);
