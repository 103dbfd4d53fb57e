package chaos

import "strings"

var auditColumns = []string{
	"state", "version", "epoch", "token", "process_count", "compensate_count", "delivery_count", "next_at", "lease_until", "ended_by",
}

// A trigger draws its number (seq) while the change holds the row lock, so two changes of one entry get their numbers
// in the order in which they were made.
var auditSchema = []string{
	`CREATE TABLE audit_trail (
		seq BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
		op CHAR(1) NOT NULL, id BIGINT UNSIGNED NOT NULL,
		idempotent_id VARCHAR(191) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
		business_type VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
		now_us BIGINT NOT NULL, connection BIGINT NOT NULL, process VARCHAR(32) NOT NULL,
		` + auditLogColumns("old_") + `,
		` + auditLogColumns("new_") + `
	) ENGINE=InnoDB`,
	auditTrigger("INSERT", "i", "NEW", false, true),
	auditTrigger("UPDATE", "u", "NEW", true, true),
	"CREATE TRIGGER audit_token BEFORE UPDATE ON common_process_log FOR EACH ROW SET @claim_token=NEW.token", // for the trigger of grants.Schema
	auditTrigger("DELETE", "d", "OLD", true, false),
}

func auditLogColumns(prefix string) string {
	types := map[string]string{"state": "TINYINT", "token": "VARBINARY(16)", "ended_by": "VARCHAR(16)"}
	var defs []string
	for _, column := range auditColumns {
		kind := types[column]
		if kind == "" {
			kind = "BIGINT"
		}
		defs = append(defs, prefix+column+" "+kind)
	}
	return strings.Join(defs, ", ")
}

func auditTrigger(event, op, row string, before, after bool) string {
	columns := []string{"op", "id", "idempotent_id", "business_type", "now_us", "connection", "process"}
	values := []string{
		"'" + op + "'", row + ".id", row + ".idempotent_id", row + ".business_type",
		dbNow, "CONNECTION_ID()", processOfSession,
	}
	for _, column := range auditColumns {
		if before {
			columns, values = append(columns, "old_"+column), append(values, "OLD."+column)
		}
		if after {
			columns, values = append(columns, "new_"+column), append(values, "NEW."+column)
		}
	}
	return "CREATE TRIGGER audit_" + strings.ToLower(event) + " AFTER " + event + " ON common_process_log FOR EACH ROW INSERT INTO audit_trail (" +
		strings.Join(columns, ", ") + ") VALUES (" + strings.Join(values, ", ") + ")"
}
