-- +goose Up
CREATE TABLE IF NOT EXISTS `common_process_log_meta` (
  `name`  TEXT PRIMARY KEY NOT NULL,
  `value` TEXT NOT NULL
);
INSERT OR IGNORE INTO `common_process_log_meta` (`name`, `value`)
VALUES ('fingerprint', lower(hex(randomblob(16)))), ('schema', '1');
