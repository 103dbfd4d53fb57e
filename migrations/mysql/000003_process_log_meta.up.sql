-- +goose Up
-- This table has two properties of the log. 'fingerprint' distinguishes two databases that use one Redis. 'schema' is the
-- version of the columns of the main table.
CREATE TABLE IF NOT EXISTS `common_process_log_meta` (
  `name`  VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `value` VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  PRIMARY KEY (`name`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
