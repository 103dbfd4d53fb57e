-- +goose Up
-- A case asks a person to look at a dead entry. The transaction in which an entry becomes dead opens its case. A closed
-- case stays in the table. Only Config.Operations needs the tables of cases, operations and settings.
CREATE TABLE IF NOT EXISTS `common_process_log_case` (
  `entry_id`      BIGINT UNSIGNED NOT NULL,
  `epoch`         INT UNSIGNED NOT NULL,
  `version`       BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'of the case: +1 on every write',
  `kind`          TINYINT NOT NULL COMMENT '1 dead, 2 dead and the outcome of an attempt unknown',
  `business_type` VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `business_id`   VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
  `fingerprint`   BINARY(8) NOT NULL COMMENT 'the same for failures that differ in ids and numbers only',
  `ended_by`      VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
  `error`         VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
  `amount`        BIGINT NULL COMMENT 'minor units; NULL: not known',
  `currency`      CHAR(3) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
  `owner`         VARCHAR(191) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
  `opened_at`     BIGINT NOT NULL,
  `due_at`        BIGINT NOT NULL,
  `closed_at`     BIGINT NOT NULL DEFAULT 0 COMMENT '0: open',
  PRIMARY KEY (`entry_id`),
  KEY `k_group` (`closed_at`, `business_type`, `fingerprint`, `currency`, `amount`, `opened_at`),
  KEY `k_due` (`closed_at`, `due_at`, `entry_id`),
  KEY `k_owner` (`closed_at`, `owner`, `due_at`, `entry_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC;
