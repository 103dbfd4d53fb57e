-- +goose Up
-- This table holds the errors of an entry by which the library decides what to do next. See the MySQL table.
CREATE TABLE IF NOT EXISTS `common_process_log_fault` (
  `entry_id`        INTEGER PRIMARY KEY NOT NULL,
  `epoch`           INTEGER NOT NULL,
  `compensating`    INTEGER NOT NULL DEFAULT 0,
  `server_faults`   INTEGER NOT NULL DEFAULT 0,
  `server_downs`    INTEGER NOT NULL DEFAULT 0,
  `outcome_unknown` INTEGER NOT NULL DEFAULT 0
);
