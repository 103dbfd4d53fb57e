-- +goose Up
-- This table has settings that people made for all processes, for example which types are paused.
CREATE TABLE IF NOT EXISTS `common_process_log_setting` (
  `name`    VARCHAR(191) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `value`   VARCHAR(4000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `version` BIGINT UNSIGNED NOT NULL,
  `actor`   VARCHAR(191) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `reason`  VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `at`      BIGINT NOT NULL,
  PRIMARY KEY (`name`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC;
