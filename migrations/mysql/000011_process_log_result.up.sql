-- +goose Up
-- This table has the values that handlers returned as results. An entry has a row only if its handler returned a result. The
-- transaction that stores the success writes the row. A requeue begins a new epoch of the entry, in which the row does not
-- count.
CREATE TABLE IF NOT EXISTS `common_process_log_result` (
  `entry_id`     BIGINT UNSIGNED NOT NULL,
  `result_epoch` INT UNSIGNED NOT NULL,
  `result`       MEDIUMBLOB NOT NULL,
  PRIMARY KEY (`entry_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
