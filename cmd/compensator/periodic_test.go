package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPeriodicShowsLastAndNextSlots(t *testing.T) {
	for name, bed := range map[string]func(*testing.T) *bed{"MariaDB": inMariaDB, "SQLite": inSQLite} {
		t.Run(name, func(t *testing.T) {
			b := bed(t).dead(1)
			b.exec("INSERT INTO common_process_log_slots (business_type, slot) VALUES (' keep', 0), ('refund', 1792281600000), ('once', 1792281600000)",
				"UPDATE common_process_log SET idempotent_id='refund@2026-10-18T00:00:00Z' WHERE idempotent_id='d0'",
				"INSERT INTO common_process_log_instance (id, name, library, build, started_at, seen_at, running, queue, types) VALUES (X'0102030405060708', 'api-9', '', 'v7', 0, 4102444800000, 1, '',"+
					" '[{\"name\":\"refund\",\"schedule\":{\"next\":[\"2026-10-18T16:00:00Z\",\"2099-01-01T00:00:00Z\"]}}]')")
			found := items(t, b.ok("periodic", "-o", "json"))
			require.Len(t, found, 2, "not the rounds of maintenance")
			assert.Equal(t, []any{"once", "unknown"}, []any{found[0]["business_type"], found[0]["schedule"]})
			refund := found[1]
			assert.Equal(t, []any{"refund", "2026-10-18T00:00:00.000Z", "dead", "2099-01-01T00:00:00.000Z", "2026-10-18T16:00:00.000Z", "process", "api-9"},
				[]any{refund["business_type"], refund["last"], refund["state"], refund["next"], refund["missed_at"], refund["schedule"], refund["process"]})
			assert.EqualValues(t, 1, refund["missed"])
			assert.Regexp(t, `refund +2026-10-18 .* dead .* 1 `, b.ok("periodic"))
			b.exec("DELETE FROM common_process_log", "DELETE FROM common_process_log_case")
		})
	}
}
