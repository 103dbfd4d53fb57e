package main

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
)

func TestInstancesShowsProcessesAndExplainNamesThem(t *testing.T) {
	for name, bed := range map[string]func(*testing.T) *bed{"MariaDB": inMariaDB, "SQLite": inSQLite} {
		t.Run(name, func(t *testing.T) {
			b := bed(t).dead(2)
			assert.Contains(t, b.ok("instances", "-o", "json"), `"items":[]`, "this program is no process of the service")
			c, err := compensator.New(t.Context(), compensator.Config{DB: b.db, Logger: slog.New(slog.DiscardHandler), Operations: &compensator.Operations{Instances: true, InstanceName: "api-1"}})
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, c.Close()) })
			b.exec("INSERT INTO common_process_log_instance (id, name, `library`, build, started_at, seen_at, running, queue, types)"+
				" SELECT X'0102030405060708', 'api-9', 'v0.0.1', 'v7', seen_at-86400000, seen_at-240000, 1, 'down', '[{\"name\":\"refund\",\"slots\":50,\"running\":3,\"stuck\":1}]' FROM common_process_log_instance",
				"UPDATE common_process_log SET state=-1, lease_until=9000000000000, token=X'0102030400000000000000000000AAFF' WHERE idempotent_id='d0'",
				"UPDATE common_process_log SET state=-1, lease_until=0, next_at=0 WHERE idempotent_id='d1'")
			found := items(t, b.ok("instances", "-o", "json"))
			require.Len(t, found, 2)
			assert.Equal(t, []any{"api-1", "live", false}, []any{found[0]["name"], found[0]["state"], found[0]["running"]})
			assert.Equal(t, []any{"api-9", "gone", "refund 3/50", "v7", "down"}, []any{found[1]["name"], found[1]["state"], found[1]["types"], found[1]["build"], found[1]["queue"]})
			assert.EqualValues(t, 1, found[1]["stuck"])
			assert.Equal(t, "0102030405060708", found[1]["id"])
			assert.Regexp(t, `api-9 +gone +4m`, b.ok("instances"))
			assert.Regexp(t, `api-9 has it until .*, as attempt .*\. That process was last seen 4m\d+s ago: it was killed`, b.ok("explain", "key:d0"))
			assert.Contains(t, b.do("overview").stderr, "no live process has a handler for: refund.")
			assert.Contains(t, b.ok("explain", "key:d1"), "No process that stores what it is has a handler for refund and runs.")
			b.exec("UPDATE common_process_log_instance SET seen_at=seen_at+230000 WHERE name='api-9'")
			assert.Regexp(t, `api-9 has it until .*\. That process was last seen \d+s ago\. It renews`, b.ok("explain", "key:d0"))
			assert.Contains(t, b.ok("explain", "key:d1"), "Number of other processes that have one: 1.")
			b.exec("UPDATE common_process_log SET business_type='mail', lease_until=9000000000000 WHERE idempotent_id='d1'")
			for where, want := range map[string]int{"running=yes": 2, "running=yes,type=mail": 1, "running=yes,state=pending": 0} {
				assert.Len(t, items(t, b.ok("list", "--where", where, "-o", "json")), want, where)
			}
			cut := b.do("list", "--where", "running=yes", "--limit", "1")
			assert.Contains(t, cut.stderr, "further entries of these types may run: ")
			assert.Contains(t, cut.stderr, "list them by type, for example --where running=yes,type=")
			assert.Contains(t, b.refused(codeUsage, "cancel", "--where", "running=yes", "--reason", "x", "--yes"), "running=yes wants a type")
			b.exec("DROP TABLE common_process_log_instance")
			assert.Contains(t, b.refused(codeUsage, "instances"), "Operations.Instances")
			assert.Contains(t, b.ok("explain", "key:d0"), "Another process has it until")
			b.exec("DELETE FROM common_process_log", "DELETE FROM common_process_log_case")
		})
	}
}
