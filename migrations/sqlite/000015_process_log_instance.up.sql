-- +goose Up
-- Processes, for people. See the MySQL table.
CREATE TABLE IF NOT EXISTS `common_process_log_instance` (
  `id`            BLOB NOT NULL PRIMARY KEY,
  `name`          TEXT NOT NULL,
  `library`       TEXT NOT NULL,
  `build`         TEXT NOT NULL,
  `started_at`    INTEGER NOT NULL,
  `seen_at`       INTEGER NOT NULL,
  `ended_at`      INTEGER NOT NULL DEFAULT 0,
  `running`       INTEGER NOT NULL DEFAULT 0,
  `queue`         TEXT NOT NULL,
  `types`         TEXT NOT NULL
) WITHOUT ROWID;
