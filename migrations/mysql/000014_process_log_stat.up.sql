-- +goose Up
-- This table has statistics for people. The library makes no decision by them. Each process inserts its counts of
-- a minute once. After 10 minutes the library adds up the rows of all processes in one row with an empty column `instance`.
-- After 3 days it adds up the minutes of an hour in one row, which it deletes after 100 days. Only Operations.Statistics
-- needs this table.
CREATE TABLE IF NOT EXISTS `common_process_log_stat` (
  `instance`      VARCHAR(32) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'process that has counted; empty: all',
  `at`            BIGINT NOT NULL COMMENT 'begin of the minute or hour in milliseconds since 1970 (UTC), by the clock of the database; 0: the row has last_at only',
  `business_type` VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `last_at`       BIGINT NOT NULL DEFAULT 0 COMMENT 'with at 0: the last minute that the process has written',
  `recorded`      BIGINT NOT NULL DEFAULT 0,
  `started`       BIGINT NOT NULL DEFAULT 0,
  `succeeded`     BIGINT NOT NULL DEFAULT 0,
  `compensated`   BIGINT NOT NULL DEFAULT 0,
  `failed`        BIGINT NOT NULL DEFAULT 0,
  `dead`          BIGINT NOT NULL DEFAULT 0,
  `took_5ms`      BIGINT NOT NULL DEFAULT 0,
  `took_20ms`     BIGINT NOT NULL DEFAULT 0,
  `took_50ms`     BIGINT NOT NULL DEFAULT 0,
  `took_100ms`    BIGINT NOT NULL DEFAULT 0,
  `took_250ms`    BIGINT NOT NULL DEFAULT 0,
  `took_500ms`    BIGINT NOT NULL DEFAULT 0,
  `took_1s`       BIGINT NOT NULL DEFAULT 0,
  `took_5s`       BIGINT NOT NULL DEFAULT 0,
  `took_30s`      BIGINT NOT NULL DEFAULT 0,
  `took_5m`       BIGINT NOT NULL DEFAULT 0,
  `took_1h`       BIGINT NOT NULL DEFAULT 0,
  `took_more`     BIGINT NOT NULL DEFAULT 0,
  `late_5ms`      BIGINT NOT NULL DEFAULT 0,
  `late_20ms`     BIGINT NOT NULL DEFAULT 0,
  `late_50ms`     BIGINT NOT NULL DEFAULT 0,
  `late_100ms`    BIGINT NOT NULL DEFAULT 0,
  `late_250ms`    BIGINT NOT NULL DEFAULT 0,
  `late_500ms`    BIGINT NOT NULL DEFAULT 0,
  `late_1s`       BIGINT NOT NULL DEFAULT 0,
  `late_5s`       BIGINT NOT NULL DEFAULT 0,
  `late_30s`      BIGINT NOT NULL DEFAULT 0,
  `late_5m`       BIGINT NOT NULL DEFAULT 0,
  `late_1h`       BIGINT NOT NULL DEFAULT 0,
  `late_more`     BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (`instance`, `at`, `business_type`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC;
