-- +goose Up
-- The last slot of each periodic type that was recorded or skipped. See the MySQL table.
CREATE TABLE IF NOT EXISTS `common_process_log_slots` (
  `business_type` TEXT PRIMARY KEY NOT NULL,
  `slot`          INTEGER NOT NULL
);
