-- +goose Up
INSERT INTO `common_process_log_meta` (`name`, `value`)
SELECT f.`name`, f.`value` FROM (SELECT 'fingerprint' AS `name`, UUID() AS `value` UNION ALL SELECT 'schema', '1') AS f
WHERE NOT EXISTS (SELECT 1 FROM `common_process_log_meta` AS m WHERE m.`name` = f.`name`);
