-- +goose Up
-- This table holds the results of handlers. An entry has a row only if its handler returned a result. A row is written in the transaction
-- that stores the success, and counts only in the entry's own epoch.
CREATE TABLE IF NOT EXISTS `common_process_log_result` (
  `entry_id`     BIGINT UNSIGNED NOT NULL,
  `result_epoch` INT UNSIGNED NOT NULL,
  `result`       MEDIUMBLOB NOT NULL,
  PRIMARY KEY (`entry_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
