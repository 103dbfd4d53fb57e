-- +goose Up
-- Settings that people made for all processes. See the MySQL table.
CREATE TABLE IF NOT EXISTS `common_process_log_setting` (
  `name`    TEXT PRIMARY KEY NOT NULL,
  `value`   TEXT NOT NULL,
  `version` INTEGER NOT NULL,
  `actor`   TEXT NOT NULL,
  `reason`  TEXT NOT NULL,
  `at`      INTEGER NOT NULL
);
