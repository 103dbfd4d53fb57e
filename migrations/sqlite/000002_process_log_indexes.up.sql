-- +goose Up
CREATE INDEX IF NOT EXISTS `common_process_log_due` ON `common_process_log` (`state`, `business_type`, `next_at`, `id`);
CREATE INDEX IF NOT EXISTS `common_process_log_batch` ON `common_process_log` (`batch_id`);
CREATE INDEX IF NOT EXISTS `common_process_log_business` ON `common_process_log` (`business_id`);
CREATE INDEX IF NOT EXISTS `common_process_log_business_ext` ON `common_process_log` (`business_ext_id`);
CREATE INDEX IF NOT EXISTS `common_process_log_created` ON `common_process_log` (`created_at`);
