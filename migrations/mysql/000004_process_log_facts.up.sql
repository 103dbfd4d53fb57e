-- +goose Up
INSERT IGNORE INTO `common_process_log_meta` (`name`, `value`) VALUES ('fingerprint', UUID()), ('schema', '1');
