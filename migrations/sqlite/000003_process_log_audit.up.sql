-- +goose Up
CREATE TABLE IF NOT EXISTS `common_process_log_audit` (
  `id`           INTEGER PRIMARY KEY AUTOINCREMENT,
  `entry_id`     INTEGER NOT NULL,
  `action`       TEXT NOT NULL,
  `actor`        TEXT NOT NULL,
  `reason`       TEXT NOT NULL,
  `before_state` BLOB NOT NULL,
  `after_state`  BLOB NOT NULL,
  `created_at`   INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS `common_process_log_audit_entry` ON `common_process_log_audit` (`entry_id`, `id`);
