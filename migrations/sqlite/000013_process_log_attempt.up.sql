-- +goose Up
-- Failed attempts of entries, for people. See the MySQL table.
CREATE TABLE IF NOT EXISTS `common_process_log_attempt` (
  `entry_id`     INTEGER NOT NULL,
  `slot`         INTEGER NOT NULL,
  `row_version`  INTEGER NOT NULL,
  `epoch`        INTEGER NOT NULL,
  `attempt`      INTEGER NOT NULL,
  `compensating` INTEGER NOT NULL DEFAULT 0,
  `verdict`      TEXT NOT NULL,
  `timed_out`    INTEGER NOT NULL DEFAULT 0,
  `lost_leases`  INTEGER NOT NULL DEFAULT 0,
  `instance`     TEXT NOT NULL DEFAULT '',
  `due_at`       INTEGER NOT NULL,
  `started_at`   INTEGER NOT NULL,
  `took_ms`      INTEGER NOT NULL DEFAULT 0,
  `next_at`      INTEGER NOT NULL DEFAULT 0,
  `trace`        BLOB NOT NULL DEFAULT x'',
  `error`        TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (`entry_id`, `slot`)
) WITHOUT ROWID;
