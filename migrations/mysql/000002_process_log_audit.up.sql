-- +goose Up
-- The audit log records which changes people made to entries, and why. The transaction that makes a change also inserts its
-- row.
CREATE TABLE IF NOT EXISTS `common_process_log_audit` (
  `id`           BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  `entry_id`     BIGINT UNSIGNED NOT NULL,
  `action`       VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `actor`        VARCHAR(191) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `reason`       VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `before_state` MEDIUMBLOB NOT NULL COMMENT 'JSON',
  `after_state`  MEDIUMBLOB NOT NULL COMMENT 'JSON',
  `created_at`   DATETIME(3) NOT NULL COMMENT 'UTC',
  PRIMARY KEY (`id`),
  KEY `k_entry_id` (`entry_id`, `id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC;
