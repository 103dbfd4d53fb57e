-- +goose Up
-- This table has one row for each limit and limit key. The row says when the limit allows the next start, and which entries
-- run. The row with the empty key describes the limit. You may delete a row with a key if the time in `tat` has
-- passed and `holders` is empty. Only TypeConfig.Limit needs this table.
CREATE TABLE IF NOT EXISTS `common_process_log_limit` (
  `limit_name`     VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `limit_key`      VARBINARY(64) NOT NULL COMMENT 'as Limit.Key says; the hash of a long one',
  `tat`            BIGINT NOT NULL COMMENT 'theoretical arrival time of the next start, in nanoseconds since 1970 (UTC)',
  `granted_at`     BIGINT NOT NULL COMMENT 'time of the last grant, in milliseconds since 1970 (UTC)',
  `starts`         BIGINT NOT NULL DEFAULT 0 COMMENT 'number of starts granted so far',
  `holders`        MEDIUMBLOB NOT NULL COMMENT 'entries that hold a permit, as id:version. A permit ends with the lease of its entry',
  `start_interval` BIGINT NOT NULL DEFAULT 0 COMMENT 'nanoseconds between two starts at the last grant; 0: no rate',
  `burst`          INT NOT NULL DEFAULT 0 COMMENT 'the burst at the last grant',
  `concurrent`     INT NOT NULL DEFAULT 0 COMMENT 'permits at once at the last grant; 0: any number',
  `business_types`     VARCHAR(2000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '' COMMENT 'with the empty key: types that have claimed under the limit, one a line',
  `keyed`              TINYINT NOT NULL DEFAULT 0 COMMENT 'with the empty key: 1 if each key of the entries has the limit for itself',
  `program_interval`   BIGINT NOT NULL DEFAULT 0 COMMENT 'with the empty key: the start_interval that the program has set',
  `program_burst`      INT NOT NULL DEFAULT 0 COMMENT 'with the empty key: the burst that the program has set',
  `program_concurrent` INT NOT NULL DEFAULT 0 COMMENT 'with the empty key: the concurrent that the program has set',
  `person_interval`    BIGINT NOT NULL DEFAULT 0 COMMENT 'with the empty key: the start_interval that a person has set; 0: that of the program',
  `person_burst`       INT NOT NULL DEFAULT 0 COMMENT 'with the empty key: the burst that a person has set; 0: that of the program',
  `person_concurrent`  INT NOT NULL DEFAULT 0 COMMENT 'with the empty key: the concurrent that a person has set; 0: that of the program',
  `version`            BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'with the empty key: number of changes by people',
  `actor`              VARCHAR(191) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '' COMMENT 'with the empty key: who made the last change',
  `reason`             VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '' COMMENT 'with the empty key: reason of the last change',
  `changed_at`         BIGINT NOT NULL DEFAULT 0 COMMENT 'with the empty key: time of the last change, in milliseconds since 1970 (UTC)',
  PRIMARY KEY (`limit_key`, `limit_name`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
