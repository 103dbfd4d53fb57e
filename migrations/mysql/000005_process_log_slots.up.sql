-- +goose Up
-- This table holds the last slot of each periodic type that was recorded or skipped, in milliseconds since 1970 (UTC). The
-- transaction that records a slot updates the row. The row stays when the entries are purged. Only Periodic and Keep need
-- this table.
CREATE TABLE IF NOT EXISTS `common_process_log_slots` (
  `business_type` VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `slot`          BIGINT NOT NULL,
  PRIMARY KEY (`business_type`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
