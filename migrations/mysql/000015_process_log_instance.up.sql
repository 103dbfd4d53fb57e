-- +goose Up
-- This table has one row for each process, for people to read. The library makes no decision by it. Each process writes its
-- row once a minute. The library deletes a row a day after the process last wrote it. Only Operations.Instances needs this
-- table.
CREATE TABLE IF NOT EXISTS `common_process_log_instance` (
  `id`            BINARY(8) NOT NULL COMMENT 'random, drawn when the process starts; the tokens of its leases begin with the first 4 bytes',
  `name`          VARCHAR(191) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'host and process id, or Operations.InstanceName',
  `library`       VARCHAR(191) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'version of the library; empty: not known',
  `build`         VARCHAR(191) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'version of the service; empty: not known',
  `started_at`    BIGINT NOT NULL COMMENT 'in milliseconds since 1970 (UTC), by the clock of the database, like the next two',
  `seen_at`       BIGINT NOT NULL COMMENT 'when the process last wrote this row',
  `ended_at`      BIGINT NOT NULL DEFAULT 0 COMMENT 'when Close ended the process; 0: it runs, or was killed',
  `running`       TINYINT NOT NULL DEFAULT 0 COMMENT '1 if Run took new entries',
  `queue`         VARCHAR(16) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'reached, down, or empty if the process has no shared queue',
  `types`         MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'the business types with a handler, as JSON',
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC;
