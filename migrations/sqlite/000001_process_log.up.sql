-- +goose Up
-- The process log has one row for each entry. The columns are those of the MySQL table, which documents them.
CREATE TABLE IF NOT EXISTS `common_process_log` (
  `id`                INTEGER PRIMARY KEY AUTOINCREMENT,
  `idempotent_id`     TEXT NOT NULL UNIQUE,
  `business_type`     TEXT NOT NULL,
  `batch_id`          TEXT NOT NULL DEFAULT '',
  `business_id`       TEXT NOT NULL DEFAULT '',
  `business_ext_id`   TEXT NOT NULL DEFAULT '',
  `user_id`           TEXT NOT NULL DEFAULT '',
  `user_name`         TEXT NOT NULL DEFAULT '',
  `content`           BLOB NOT NULL,
  `headers`           BLOB NOT NULL DEFAULT '',
  `state`             INTEGER NOT NULL DEFAULT 0,
  `process_count`     INTEGER NOT NULL DEFAULT 0,
  `max_process_count` INTEGER NOT NULL DEFAULT 0,
  `delay_second`      INTEGER NOT NULL DEFAULT 0,
  `next_at`           INTEGER NOT NULL,
  `lease_until`       INTEGER NOT NULL DEFAULT 0,
  `version`           INTEGER NOT NULL DEFAULT 0,
  `token`             BLOB NOT NULL DEFAULT '',
  `epoch`             INTEGER NOT NULL DEFAULT 0,
  `delivery_count`    INTEGER NOT NULL DEFAULT 0,
  `compensate_count`  INTEGER NOT NULL DEFAULT 0,
  `ended_by`          TEXT NOT NULL DEFAULT '',
  `last_error`        TEXT NOT NULL DEFAULT '',
  `created_at`        INTEGER NOT NULL,
  `updated_at`        INTEGER NOT NULL
);
