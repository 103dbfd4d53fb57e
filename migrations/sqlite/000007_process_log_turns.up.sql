-- +goose Up
-- Which entries of serial types stand in the line of which key. See the MySQL table.
CREATE TABLE IF NOT EXISTS `common_process_log_turns` (
  `business_type` TEXT NOT NULL,
  `turn_key`      BLOB NOT NULL,
  `entry_id`      INTEGER NOT NULL,
  `epoch`         INTEGER NOT NULL,
  `parked`        INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (`business_type`, `turn_key`, `entry_id`)
) WITHOUT ROWID;
