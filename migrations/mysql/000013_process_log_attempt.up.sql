-- +goose Up
-- This table has failed attempts, for people to read. The library makes no decision by them. The transaction that stores
-- the outcome of an attempt writes the row. An entry has at most 50 rows, because later failures overwrite earlier ones.
-- Only Operations.Attempts needs this table.
CREATE TABLE IF NOT EXISTS `common_process_log_attempt` (
  `entry_id`     BIGINT UNSIGNED NOT NULL,
  `slot`         TINYINT UNSIGNED NOT NULL COMMENT 'half of row_version, modulo 50',
  `row_version`  BIGINT UNSIGNED NOT NULL COMMENT 'version of the entry during the attempt',
  `epoch`        INT UNSIGNED NOT NULL,
  `attempt`      INT UNSIGNED NOT NULL COMMENT 'number of the attempt in its epoch',
  `compensating` TINYINT NOT NULL DEFAULT 0 COMMENT '1: an attempt of the compensation',
  `verdict`      VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `timed_out`    TINYINT NOT NULL DEFAULT 0,
  `lost_leases`  INT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'leases before this attempt that ended with no outcome',
  `instance`     VARCHAR(191) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '' COMMENT 'process that ran the attempt, as host:pid',
  `due_at`       BIGINT NOT NULL COMMENT 'milliseconds since 1970 (UTC), by the clock of the database, as the other times',
  `started_at`   BIGINT NOT NULL,
  `took_ms`      BIGINT NOT NULL DEFAULT 0,
  `next_at`      BIGINT NOT NULL DEFAULT 0 COMMENT 'due time after the attempt; 0: none, because the entry is dead',
  `trace`        VARBINARY(32) NOT NULL DEFAULT '' COMMENT 'trace id of the attempt, in hexadecimal digits',
  `error`        VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '' COMMENT 'without confidential data',
  PRIMARY KEY (`entry_id`, `slot`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC;
