-- +goose Up
-- This table has the results of handlers. The transaction that stores the success writes the row. After a requeue the
-- library ignores the row.
CREATE TABLE IF NOT EXISTS `common_process_log_result` (
  `entry_id`     BIGINT UNSIGNED NOT NULL,
  `result_epoch` INT UNSIGNED NOT NULL,
  `result`       MEDIUMBLOB NOT NULL,
  PRIMARY KEY (`entry_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
