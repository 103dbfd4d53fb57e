-- +goose Up
-- This table has facts about earlier failures of entries. The library decides by them what to do next. Most entries have
-- no row. The transaction that stores an outcome writes the row. After a requeue the library ignores the row.
CREATE TABLE IF NOT EXISTS `common_process_log_fault` (
  `entry_id`        BIGINT UNSIGNED NOT NULL,
  `epoch`           INT UNSIGNED NOT NULL,
  `compensating`    TINYINT NOT NULL DEFAULT 0 COMMENT '1: the compensation met the conditions',
  `server_faults`   INT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'conditions in a row that a statement may cause itself',
  `server_downs`    INT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'conditions in a row of the whole server',
  `outcome_unknown` TINYINT NOT NULL DEFAULT 0 COMMENT '1: an attempt of the epoch may have had an effect',
  PRIMARY KEY (`entry_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
