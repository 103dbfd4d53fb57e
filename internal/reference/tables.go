package main

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	createdTable = regexp.MustCompile("(?s)((?:-- [^\n]*\n)+)CREATE TABLE IF NOT EXISTS `(\\w+)` \\(\n(.*?)\n\\) ")
	columnLine   = regexp.MustCompile("(?m)^  `(\\w+)` +(.*?),?$")
	keyLine      = regexp.MustCompile("(?m)^  ((?:PRIMARY|UNIQUE)? ?KEY .*?),?$")
	columnNoise  = regexp.MustCompile(` CHARACTER SET \w+ COLLATE \w+| COMMENT '(?:[^']|'')*'`)
	columnIsNot  = regexp.MustCompile(` (NOT NULL|NULL)\b`)
)

func tablesPage(root string) (string, error) {
	migrations, err := readMigrations(root, "mysql")
	if err != nil {
		return "", err
	}
	var out strings.Builder
	out.WriteString("# Tables and columns\n\n" + generated)
	out.WriteString("`Config.Table` sets the name of the first table. The names of all other tables begin with this name.\n" +
		"The types are those of MySQL and MariaDB. SQLite has the types INTEGER, TEXT and BLOB.\n" +
		"[Create the tables](../how-to/tables.md) says which tables you need. [Record by SQL](../how-to/record-by-sql.md) says how other programs insert entries.\n\n")
	used := make(map[string]bool)
	for _, text := range migrations {
		for _, table := range createdTable.FindAllStringSubmatch(text, -1) {
			about := strings.TrimSpace(strings.ReplaceAll(strings.ReplaceAll(table[1], "-- +goose Up\n", ""), "-- ", ""))
			fmt.Fprintf(&out, "## %s\n\n%s\n\n| column | type | default | meaning |\n|---|---|---|---|\n", table[2], strings.ReplaceAll(markdown(about, escaped), "\\`", "`"))
			for _, column := range columnLine.FindAllStringSubmatch(table[3], -1) {
				key := strings.TrimPrefix(table[2], "common_process_log") + "." + column[1]
				used[key] = true
				meaning := columnMeanings[key]
				if meaning == "" {
					return "", fmt.Errorf("internal/reference does not say what column %q means", key)
				}
				declared := columnIsNot.ReplaceAllString(columnNoise.ReplaceAllString(column[2], ""), "")
				typ, value, found := strings.Cut(declared, " DEFAULT ")
				if !found {
					value = "required"
				}
				if strings.Contains(typ, "AUTO_INCREMENT") {
					typ, value = strings.TrimSuffix(typ, " AUTO_INCREMENT"), "next number"
				}
				if strings.Contains(column[2], " NULL COMMENT") && !strings.Contains(column[2], "NOT NULL") {
					value = "NULL"
				}
				fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", column[1], typ, value, meaning)
			}
			out.WriteString("\nIndexes:\n\n")
			for _, key := range keyLine.FindAllStringSubmatch(table[3], -1) {
				fmt.Fprintf(&out, "- `%s`\n", strings.ReplaceAll(strings.TrimSpace(key[1]), "`", ""))
			}
			out.WriteString("\n")
		}
	}
	for key := range columnMeanings {
		if !used[key] {
			return "", fmt.Errorf("internal/reference describes column %q, which no migration creates", key)
		}
	}
	return strings.TrimRight(out.String(), "\n") + "\n", nil
}

// columnMeanings says what each column holds. A key is the suffix of the table's name after common_process_log, a
// dot, and the column's name.
var columnMeanings = map[string]string{
	".id":                "Number of the entry. `EntryID` in Go.",
	".idempotent_id":     "The idempotency key, which is unique in the log. Compared byte by byte.",
	".business_type":     "Name of the type, which selects the handler.",
	".batch_id":          "`Options.BatchID`, or empty. Entries with the same batch id form a batch.",
	".business_id":       "`Options.BusinessID`, by which people find the entry. Indexed.",
	".business_ext_id":   "`Options.BusinessExtID`, by which people find the entry. Indexed.",
	".user_id":           "`Options.UserID`. Use a pseudonym, because `Erase` does not remove the user id.",
	".user_name":         "`Options.UserName`. `Erase` removes the name.",
	".content":           "The value that the handler gets, encoded by the type's codec, by default as JSON.",
	".headers":           "`Options.Headers` and the headers of the propagator, as JSON.",
	".state":             "0 pending, −1 retrying, −3 compensating, 1 succeeded, 2 compensated, 3 cancelled, 4 settled manually, −2 dead.",
	".process_count":     "Number of failed attempts of the handler since the epoch began.",
	".max_process_count": "Maximum number of attempts of this entry. 0 means the `MaxAttempts` of its type.",
	".delay_second":      "The delay in seconds, rounded up, for people to read. The library does not use this column.",
	".next_at":           "The time at which the entry is due, in milliseconds since 1970, UTC. If the entry has ended, the time of its end.",
	".lease_until":       "End of the lease in milliseconds since 1970, UTC. 0 means no lease.",
	".version":           "Every change of the row raises the version by one, except the renewal of a lease.",
	".token":             "Random bytes that identify the last claim or change.",
	".epoch":             "Number that grows by one when a person requeues the entry or settles it manually.",
	".delivery_count":    "Each claim raises this number by one, and each stored outcome sets it to 0.",
	".compensate_count":  "Number of failed attempts of the compensation since the epoch began.",
	".ended_by":          "Why the entry ended: handler, complete, cancel, person, exhausted, permanent or crash.",
	".last_error":        "Text of the last error, at most 1,000 characters.",
	".created_at":        "When the entry was recorded, in UTC.",
	".updated_at":        "When the row was changed last, in UTC.",

	"_audit.id":           "Number of the record.",
	"_audit.entry_id":     "The entry that was changed. 0 for records about the whole log.",
	"_audit.action":       "The action, for example `requeue`, `settle by hand` or `erase`.",
	"_audit.actor":        "The person who acted.",
	"_audit.reason":       "The reason that the person gave.",
	"_audit.before_state": "The entry before the change, as JSON.",
	"_audit.after_state":  "The entry after the change, as JSON.",
	"_audit.created_at":   "When the person acted, in UTC.",

	"_meta.name":  "Name of the property: fingerprint or schema.",
	"_meta.value": "Value of the property.",

	"_fault.entry_id":        "The entry that had the failures.",
	"_fault.epoch":           "Epoch of the entry when the row was written. In another epoch the library ignores the row.",
	"_fault.compensating":    "1 if the errors came from the compensation, 0 if they came from the handler.",
	"_fault.server_faults":   "Number of errors in a row that the server or a statement may cause, for example a deadlock.",
	"_fault.server_downs":    "Number of errors of the whole server in a row, for example a full disk.",
	"_fault.outcome_unknown": "1 if a failed attempt of the epoch may have had an effect, because it timed out, the library ended its context early, or its lease ended without an outcome.",

	"_result.entry_id":     "The entry whose handler returned the result.",
	"_result.result_epoch": "Epoch of the entry when it succeeded. In another epoch the library ignores the result.",
	"_result.result":       "The value that the handler returned, encoded and sealed by the type's codec.",

	"_slots.business_type": "Name of the periodic type. A name that begins with a space belongs to a maintenance task of the library.",
	"_slots.slot":          "The last slot that was recorded or skipped, in milliseconds since 1970, UTC.",

	"_case.entry_id":      "The dead entry.",
	"_case.epoch":         "Epoch of the entry when it died.",
	"_case.version":       "Number that every change of the case raises by one.",
	"_case.kind":          "1 if the entry is dead. 2 if, in addition, the outcome of an attempt is unknown.",
	"_case.business_type": "Type of the entry.",
	"_case.business_id":   "Business id of the entry.",
	"_case.fingerprint":   "Hash of the error. Errors that differ only in numbers, ids and quoted words have the same hash.",
	"_case.ended_by":      "Why the entry died: exhausted, permanent or crash.",
	"_case.error":         "First 200 characters of the error, without secrets.",
	"_case.amount":        "Value of the entry in the smallest unit of the currency. NULL means unknown.",
	"_case.currency":      "Currency of the amount, for example CNY.",
	"_case.owner":         "The person who works on the case, or empty.",
	"_case.opened_at":     "When the case was opened, in milliseconds since 1970, UTC.",
	"_case.due_at":        "Time by which somebody should look at the case, in milliseconds since 1970, UTC.",
	"_case.closed_at":     "When the case was closed, in milliseconds since 1970, UTC. 0 means that it is open.",

	"_attempt.entry_id":     "The entry.",
	"_attempt.slot":         "Half of `row_version`, because claim and outcome both raise the version, modulo 50. A later failed attempt with the same number overwrites the row.",
	"_attempt.row_version":  "Version of the entry during the attempt.",
	"_attempt.epoch":        "Epoch of the entry.",
	"_attempt.attempt":      "Number of the attempt in its epoch.",
	"_attempt.compensating": "1 for an attempt of the compensation, 0 for one of the handler.",
	"_attempt.verdict":      "`failed`, `waits`, `exhausted`, `permanent`, `crashed` or `interrupted`.",
	"_attempt.timed_out":    "1 if the attempt ended after its timeout, so that it may have had an effect.",
	"_attempt.lost_leases":  "Number of leases in a row before this attempt that ended with no outcome.",
	"_attempt.instance":     "Process that ran the attempt, as `host:pid`.",
	"_attempt.due_at":       "When the entry was due, in milliseconds since 1970, UTC.",
	"_attempt.started_at":   "When the entry was claimed for the attempt, in milliseconds since 1970, UTC.",
	"_attempt.took_ms":      "How long the attempt ran, in milliseconds.",
	"_attempt.next_at":      "When the entry was due after the attempt, in milliseconds since 1970, UTC. 0 if the entry was dead.",
	"_attempt.trace":        "Trace id of the attempt, in hexadecimal digits, or empty.",
	"_attempt.error":        "Error of the attempt, without secrets.",

	"_stat.instance":      "Random name of the process that counted. Empty in a row for all processes.",
	"_stat.at":            "Start of the counted minute or hour, in milliseconds since 1970, UTC. 0 in a row that has only `last_at`.",
	"_stat.business_type": "Business type of the entries.",
	"_stat.last_at":       "In a row with `at` 0, the last minute that the process has stored. So the process stores no minute twice.",
	"_stat.recorded":      "Entries whose commit the recording process has seen.",
	"_stat.started":       "Handler calls that began, one for each entry of a batch.",
	"_stat.succeeded":     "Entries that succeeded, also by a call of `Complete`.",
	"_stat.compensated":   "Entries whose compensation has succeeded.",
	"_stat.failed":        "Attempts that counted as a failure of their entry.",
	"_stat.dead":          "Entries that became dead.",
	"_stat.took_5ms":      "Attempts that took at most 5ms.",
	"_stat.took_20ms":     "Attempts that took at most 20ms, and more than 5ms.",
	"_stat.took_50ms":     "Attempts that took at most 50ms, and more than 20ms.",
	"_stat.took_100ms":    "Attempts that took at most 100ms, and more than 50ms.",
	"_stat.took_250ms":    "Attempts that took at most 250ms, and more than 100ms.",
	"_stat.took_500ms":    "Attempts that took at most 500ms, and more than 250ms.",
	"_stat.took_1s":       "Attempts that took at most 1s, and more than 500ms.",
	"_stat.took_5s":       "Attempts that took at most 5s, and more than 1s.",
	"_stat.took_30s":      "Attempts that took at most 30s, and more than 5s.",
	"_stat.took_5m":       "Attempts that took at most 5m, and more than 30s.",
	"_stat.took_1h":       "Attempts that took at most 1h, and more than 5m.",
	"_stat.took_more":     "Attempts that took more than 1h.",
	"_stat.late_5ms":      "Attempts that began late by at most 5ms.",
	"_stat.late_20ms":     "Attempts that began late by at most 20ms, and more than 5ms.",
	"_stat.late_50ms":     "Attempts that began late by at most 50ms, and more than 20ms.",
	"_stat.late_100ms":    "Attempts that began late by at most 100ms, and more than 50ms.",
	"_stat.late_250ms":    "Attempts that began late by at most 250ms, and more than 100ms.",
	"_stat.late_500ms":    "Attempts that began late by at most 500ms, and more than 250ms.",
	"_stat.late_1s":       "Attempts that began late by at most 1s, and more than 500ms.",
	"_stat.late_5s":       "Attempts that began late by at most 5s, and more than 1s.",
	"_stat.late_30s":      "Attempts that began late by at most 30s, and more than 5s.",
	"_stat.late_5m":       "Attempts that began late by at most 5m, and more than 30s.",
	"_stat.late_1h":       "Attempts that began late by at most 1h, and more than 5m.",
	"_stat.late_more":     "Attempts that began late by more than 1h.",

	"_limit.limit_name":         "Name of the limit: `Limit.Of`, or the name of the type.",
	"_limit.limit_key":          "The text that `Limit.Key` returns, or its hash if it is long. Not encrypted. Each claim under the limit locks the row with the empty key.",
	"_limit.tat":                "Time of the next start if starts come one `start_interval` apart (GCRA's theoretical arrival time), in nanoseconds since 1970, UTC. `burst` allows earlier starts.",
	"_limit.granted_at":         "When the limit last allowed a start, in milliseconds since 1970, UTC.",
	"_limit.starts":             "A number that grows with each start that the limit allows. A claim returns unused starts only if no other claim has changed this number.",
	"_limit.holders":            "Entries that may have a permit, as id:version. A permit ends with the lease of its entry.",
	"_limit.start_interval":     "Nanoseconds between two starts, by the settings with which the limit last allowed a start. 0 means no rate.",
	"_limit.burst":              "The burst, by the same settings as `start_interval`.",
	"_limit.concurrent":         "The number of permits, by the same settings as `start_interval`. 0 means any number.",
	"_limit.business_types":     "With the empty key: the types whose entries were claimed under the limit, one per line. Empty with other keys.",
	"_limit.keyed":              "With the empty key: 1 if the limit applies to each key separately. 0 with other keys.",
	"_limit.program_interval":   "With the empty key: the `start_interval` in the code of the process that claimed last. 0 with other keys.",
	"_limit.program_burst":      "With the empty key: the burst in the code of the process that claimed last. 0 with other keys.",
	"_limit.program_concurrent": "With the empty key: the number of permits in the code of the process that claimed last. 0 with other keys.",
	"_limit.person_interval":    "With the empty key: the `start_interval` that a person has set. 0 means `program_interval`.",
	"_limit.person_burst":       "With the empty key: the burst that a person has set. 0 means `program_burst`.",
	"_limit.person_concurrent":  "With the empty key: the number of permits that a person has set. 0 means `program_concurrent`.",
	"_limit.version":            "With the empty key: the number of changes by people.",
	"_limit.actor":              "With the empty key: the person who made the last change.",
	"_limit.reason":             "With the empty key: the reason of the last change.",
	"_limit.changed_at":         "With the empty key: the time of the last change, in milliseconds since 1970, UTC.",

	"_instance.id":         "8 random bytes that identify the process. The column `token` of the entries that it claims begins with the first 4 of them.",
	"_instance.name":       "Host and process id, as `host:pid`, or `Operations.InstanceName`.",
	"_instance.library":    "Version of the library, or empty.",
	"_instance.build":      "Version of the service, or its commit, or empty.",
	"_instance.started_at": "When `New` was called, in milliseconds since 1970, UTC.",
	"_instance.seen_at":    "When the process last wrote the row, in milliseconds since 1970, UTC.",
	"_instance.ended_at":   "When `Close` ended the process, in milliseconds since 1970, UTC. 0 means that the process runs or was killed.",
	"_instance.running":    "1 if `Run` was taking new entries when the process wrote the row.",
	"_instance.queue":      "`reached` or `down`, or empty if the process uses no Redis.",
	"_instance.types":      "Business types with a handler in the process, as JSON: name, slots, running attempts and stuck attempts.",

	"_turns.business_type": "Type of the entry.",
	"_turns.turn_key":      "The ordering key, or its hash if it is long. Not encrypted.",
	"_turns.place":         "Position of the entry among the entries with the same ordering key.",
	"_turns.entry_id":      "The entry.",
	"_turns.epoch":         "Epoch of the entry.",
	"_turns.parked":        "Version of the entry when a process released it because an earlier entry blocks it, or 0.",

	"_operation.id":            "Number of the record.",
	"_operation.at":            "When the person acted, in milliseconds since 1970, UTC.",
	"_operation.actor":         "The person who acted or was refused.",
	"_operation.action":        "The action, for example reveal, export, pause or note.",
	"_operation.refused":       "1 if the action was refused, otherwise 0.",
	"_operation.entry_id":      "The entry that the action was about. 0 means none.",
	"_operation.business_type": "The type that the action was about, or empty.",
	"_operation.subject":       "Another thing that the action was about, for example the new owner of a case.",
	"_operation.reason":        "The reason that the person gave, or the note.",

	"_setting.name":    "Name of the setting, for example `pause refund` for the paused type `refund`.",
	"_setting.value":   "Value of the setting.",
	"_setting.version": "Number of changes of the setting.",
	"_setting.actor":   "The person who made the last change.",
	"_setting.reason":  "The reason for the last change.",
	"_setting.at":      "When the setting was last changed, in milliseconds since 1970, UTC.",
}
