-- +goose Up
-- This table holds the results of handlers. See the MySQL table.
CREATE TABLE IF NOT EXISTS `common_process_log_result` (
  `entry_id`     INTEGER PRIMARY KEY NOT NULL,
  `result_epoch` INTEGER NOT NULL,
  `result`       BLOB NOT NULL
);
