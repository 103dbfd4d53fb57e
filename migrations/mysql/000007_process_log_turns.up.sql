-- +goose Up
-- This table has the ordering key and the place of each entry of a type with TypeConfig.Serial. The table is only an index:
-- rows may be missing or left over. Only TypeConfig.Serial needs this table.
CREATE TABLE IF NOT EXISTS `common_process_log_turns` (
  `business_type` VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `turn_key`      VARBINARY(64) NOT NULL COMMENT 'as TypeConfig.Serial says; the hash of a long one',
  `place`         BIGINT UNSIGNED NOT NULL COMMENT 'the position among the entries of the key',
  `entry_id`      BIGINT UNSIGNED NOT NULL,
  `epoch`         INT UNSIGNED NOT NULL,
  `parked`        BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'the version of the entry if it was put back because another blocks it',
  PRIMARY KEY (`entry_id`, `turn_key`),
  KEY `k_line` (`business_type`, `turn_key`, `place`, `entry_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
