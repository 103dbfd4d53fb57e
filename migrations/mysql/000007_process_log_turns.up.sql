-- +goose Up
-- Which entries of serial types stand in the line of which key. It is an index beside the log: whether an entry has ended
-- the log says, and rows may be missing or left over. Only who uses TypeConfig.Serial needs this table.
CREATE TABLE IF NOT EXISTS `common_process_log_turns` (
  `business_type` VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `turn_key`      VARBINARY(64) NOT NULL COMMENT 'as TypeConfig.Serial says; a long one''s hash',
  `entry_id`      BIGINT UNSIGNED NOT NULL,
  `epoch`         INT UNSIGNED NOT NULL,
  `parked`        BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'the entry''s version if it was put back to wait for its turn',
  PRIMARY KEY (`business_type`, `turn_key`, `entry_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
