package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
)

// The program has no handlers, so it cannot know whether a service has one.
func TestExplainSaysWhyAnEntryDoesNotRun(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]func(*testing.T) *bed{"MariaDB": inMariaDB, "SQLite": inSQLite} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := in(t).dead(1)
			b.put("", "lives")
			serial, err := compensator.Declare[harness.Order](t.Context(), b.c, "serial", &compensator.TypeConfig{Serial: func(*compensator.Entry) string { return "a" }})
			require.NoError(t, err)
			record := func(key string, delay time.Duration) {
				require.NoError(t, b.c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
					_, err := serial.Record(ctx, tx, harness.Order{}, compensator.Options{IdempotencyKey: compensator.IdempotencyKey(key), Delay: delay})
					return err
				}))
			}
			record("first", 0)
			record("second", time.Hour)
			record("leased", 0)
			record("wrong", 0)
			capped, err := compensator.Declare[harness.Order](t.Context(), b.c, "capped", nil)
			require.NoError(t, err)
			require.NoError(t, b.c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
				_, err := capped.Record(ctx, tx, harness.Order{}, compensator.Options{IdempotencyKey: "limited"})
				return err
			}))
			b.exec("INSERT INTO common_process_log_limit (limit_name, limit_key, tat, granted_at, holders, start_interval, business_types, program_interval, program_burst, program_concurrent)" +
				" VALUES ('psp', X'', 9000000000000000000, 0, X'', 50000000, 'capped', 50000000, 5, 8)")
			assert.Regexp(t, `psp +20 +1s +5 +8 +capped`, b.ok("limits"))
			assert.Regexp(t, `capped +1 .* psp +2255-03-14`, b.ok("overview"))
			assert.Regexp(t, `capped +1 .* psp +2255-03-14`, b.ok("types"))
			assert.Regexp(t, `limited +capped by psp, until 2255-03-14`, b.ok("health", "--patience", "1000000h"))
			assert.Equal(t, "psp", items(t, b.ok("types", "-o", "json"))[0]["limited_by"])
			b.refused(codeUsage, "limit", "psp", reason, "--yes")
			b.refused(codeUsage, "limit", "psp", reason, "--yes", "--reset", "--burst", "7")
			b.refused(codeUsage, "limit", "psp", reason, "--yes", "--rate", "many")
			b.refused(codeUsage, "limit", "psp", "--yes", "--burst", "7")
			b.refused(codeNotFound, "limit", "none", reason, "--yes", "--burst", "7")
			assert.Contains(t, b.ok("limit", "psp", reason, "--yes", "--rate", "100/m", "--burst", "7"), "done")
			assert.Regexp(t, `psp +100 +1m0s +7 +8 +capped +yes +2173-\S+ \S+ +`+actor().ID+` +PSP is back`, b.ok("limits"))
			b.ok("limit", "psp", reason, "--yes", "--concurrent", "3")
			assert.Regexp(t, `psp +100 +1m0s +7 +3 +capped`, b.ok("limits"), "the other values stay")
			assert.Equal(t, 2, b.count("common_process_log_operation WHERE action='change limit' AND business_type='capped' AND reason='PSP is back'"))
			assert.Contains(t, b.ok("limit", "psp", reason, "--yes", "--reset"), "done")
			assert.Regexp(t, `psp +20 +1s +5 +8 +capped`, b.ok("limits"))
			assert.Contains(t, b.ok("limits", "-o", "json"), `"name":"psp","starts":20,"per_seconds":1,"burst":5,"concurrent":8,"keyed":false,"business_types":"capped"`)
			b.exec("UPDATE common_process_log SET lease_until=9000000000000, token='0123456789abcdef' WHERE idempotent_id='leased'",
				"UPDATE common_process_log SET state=77 WHERE idempotent_id='wrong'")
			for _, of := range []struct{ key, codes, says string }{
				{"d0", "dead_permanent next_person next_case", "Its code returned a permanent error."},
				{"lives", "ended_handler next_nobody", "as succeeded"},
				{"first", "no_handlers queue_not_asked next_unknown", "does not know whether a process has a handler for serial"},
				{"limited", "limited_rate no_handlers queue_not_asked next_unknown", "The limit psp allows no start now. Starts allowed in 1s: 20."},
				{"second", "blocked not_due_blocked next_blocker", "of the same ordering key comes first"},
				{"leased", "leased next_outcome next_lease_end", "Another process has it until"},
				{"wrong", "invalid_state next_repair", "A person must repair the row."},
			} {
				codes := ""
				for _, item := range items(t, b.ok("explain", "key:"+of.key, "-o", "json")) {
					codes += " " + item["code"].(string)
				}
				assert.Equal(t, " "+of.codes, codes, of.key)
				assert.Contains(t, b.ok("explain", "key:"+of.key), of.says)
			}
			b.refused(codeNotFound, "explain", "999999")
			b.exec("DELETE FROM common_process_log WHERE business_type IN ('serial', 'capped')")
			id := b.entry("d0").ID.String()
			require.NoError(t, b.c.Close())
			b.exec("DROP TABLE common_process_log_case", "DROP TABLE common_process_log_operation", "DROP TABLE common_process_log_setting")
			assert.Contains(t, b.ok("explain", id), "A person must requeue", "a log without the tables of Config.Operations")
		})
	}
}
