-- +goose Up
-- Of each periodic type the last slot that is recorded or passed over. See the MySQL table.
CREATE TABLE IF NOT EXISTS `common_process_log_slots` (
  `business_type` TEXT PRIMARY KEY NOT NULL,
  `slot`          INTEGER NOT NULL
);
