-- +goose Up
-- One row for each limit and key. See the MySQL table.
CREATE TABLE IF NOT EXISTS `common_process_log_limit` (
  `limit_name`     TEXT NOT NULL,
  `limit_key`      BLOB NOT NULL,
  `tat`            INTEGER NOT NULL,
  `granted_at`     INTEGER NOT NULL,
  `starts`         INTEGER NOT NULL DEFAULT 0,
  `holders`        BLOB NOT NULL,
  `start_interval` INTEGER NOT NULL DEFAULT 0,
  `burst`          INTEGER NOT NULL DEFAULT 0,
  `concurrent`     INTEGER NOT NULL DEFAULT 0,
  `business_types`     TEXT NOT NULL DEFAULT '',
  `keyed`              INTEGER NOT NULL DEFAULT 0,
  `program_interval`   INTEGER NOT NULL DEFAULT 0,
  `program_burst`      INTEGER NOT NULL DEFAULT 0,
  `program_concurrent` INTEGER NOT NULL DEFAULT 0,
  `person_interval`    INTEGER NOT NULL DEFAULT 0,
  `person_burst`       INTEGER NOT NULL DEFAULT 0,
  `person_concurrent`  INTEGER NOT NULL DEFAULT 0,
  `version`            INTEGER NOT NULL DEFAULT 0,
  `actor`              TEXT NOT NULL DEFAULT '',
  `reason`             TEXT NOT NULL DEFAULT '',
  `changed_at`         INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (`limit_key`, `limit_name`)
) WITHOUT ROWID;
