-- +goose Up
-- For each periodic type, this table has the last slot (scheduled time) that was recorded or skipped. The transaction
-- that records the entry of a slot updates the row. A purge keeps the row. Only `Periodic` and `Keep` need this table.
CREATE TABLE IF NOT EXISTS `common_process_log_slots` (
  `business_type` VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `slot`          BIGINT NOT NULL,
  PRIMARY KEY (`business_type`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
