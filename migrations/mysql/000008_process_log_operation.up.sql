-- +goose Up
-- This table records what people did or were refused, except changes of entries, which the table
-- common_process_log_audit records.
CREATE TABLE IF NOT EXISTS `common_process_log_operation` (
  `id`            BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  `at`            BIGINT NOT NULL,
  `actor`         VARCHAR(191) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `action`        VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `refused`       TINYINT NOT NULL DEFAULT 0,
  `entry_id`      BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT '0: of none',
  `business_type` VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
  `subject`       VARCHAR(191) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
  `reason`        VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
  PRIMARY KEY (`id`),
  KEY `k_entry_id` (`entry_id`, `id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC;
