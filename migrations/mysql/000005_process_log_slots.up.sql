-- +goose Up
-- Of each periodic type the last slot that is recorded or passed over, in milliseconds since 1970, UTC. It moves in the
-- transaction that records the slot, and outlives the entries. Only who uses Periodic or Keep needs this table.
CREATE TABLE IF NOT EXISTS `common_process_log_slots` (
  `business_type` VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `slot`          BIGINT NOT NULL,
  PRIMARY KEY (`business_type`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
