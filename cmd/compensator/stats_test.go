package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/processlog"
)

func TestStatsShowsWhatServicesHaveCounted(t *testing.T) {
	for name, bed := range map[string]func(*testing.T) *bed{"MariaDB": inMariaDB, "SQLite": inSQLite} {
		t.Run(name, func(t *testing.T) {
			b := bed(t)
			c, err := compensator.New(t.Context(), compensator.Config{DB: b.db, Logger: slog.New(slog.DiscardHandler), Operations: &compensator.Operations{Statistics: true}})
			require.NoError(t, err)
			charges, err := compensator.Handle(t.Context(), c, "charge", func(context.Context, *compensator.Entry, harness.Order) error { return nil }, nil)
			require.NoError(t, err)
			require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
				_, err := charges.Record(ctx, tx, harness.Order{}, compensator.Options{IdempotencyKey: "charged"})
				return err
			}))
			ctx, stop := context.WithCancel(t.Context())
			ran := make(chan error, 1)
			go func() { ran <- c.Run(ctx) }()
			require.Eventually(t, func() bool { return b.entry("charged").State == compensator.Succeeded }, harness.Timeout, 5*time.Millisecond)
			stop()
			require.NoError(t, <-ran)
			require.NoError(t, c.Close())

			for _, args := range [][]string{{"stats", "-o", "json"}, {"stats", "-o", "json", "--type", "charge", "--over", "24h", "--period", "1h"}} {
				var list struct{ Items []map[string]any }
				require.NoError(t, json.Unmarshal([]byte(b.ok(args...)), &list), args)
				require.Len(t, list.Items, 1, args)
				row := list.Items[0]
				assert.Equal(t, "charge", row["type"], args)
				for _, count := range []string{"recorded", "started", "succeeded"} {
					assert.EqualValues(t, 1, row[count], "%s %v", count, args)
				}
			}
			assert.Contains(t, b.ok("stats"), "TOOK P50 MS")
			b.exec("INSERT INTO common_process_log_instance (id, name, `library`, build, started_at, seen_at, queue, types) SELECT X'0102030405060708', 'api-9', '', 'v7', last_at-3600000, last_at, '', '[]' FROM common_process_log_stat WHERE `at`=0")
			assert.Regexp(t, `20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ build v7 began to run`, b.do("stats", "-o", "json").stderr)
			assert.NotContains(t, b.do("stats", "--over", "10m").stderr, "v7")
			assert.Contains(t, b.ok("stats", "-o", "json", "--type", "unknown"), `"items":[]`)
			assert.Contains(t, b.refused(codeUsage, "stats", "--period", "90s"), "--period 1m30s: give a whole number of minutes")
			assert.Contains(t, b.refused(codeUsage, "stats", "--over", "1s"), "--over 1s: give 1m to 2400h")
			b.exec("DROP TABLE common_process_log_stat")
			assert.Contains(t, b.refused(codeUsage, "stats"), "common_process_log_stat")
		})
	}
}

// If no service has stored the number of waiting entries, the command counts the entries itself, up to 1,000. The
// number that a service has stored has no limit.
func TestWaitingEntriesArePrintedWithoutALimit(t *testing.T) {
	for name, bed := range map[string]func(*testing.T) *bed{"MariaDB": inMariaDB, "SQLite": inSQLite} {
		t.Run(name, func(t *testing.T) {
			b := bed(t)
			b.exec("INSERT INTO common_process_log (idempotent_id, business_type, content, next_at, created_at, updated_at)" +
				" WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i+1 FROM n WHERE i<1000) SELECT CONCAT('waits ', n.i, ' ', m.i), 'charge', '{}', 9000000000000, '2026-01-01 00:00:00.000', '2026-01-01 00:00:00.000' FROM n, n m WHERE m.i<3")
			b.exec("INSERT INTO common_process_log_stat (instance, `at`, business_type, recorded) VALUES ('', 1000*60*60000, 'charge', 0)")
			assert.Contains(t, b.ok("overview", "-o", "json"), `"pending":"1000+"`)
			assert.Contains(t, b.ok("health", "-o", "json"), `"waiting":"1000+"}`)

			store, err := compensator.OpenStore(t.Context(), b.db, compensator.DefaultTable)
			require.NoError(t, err)
			defer func() { require.NoError(t, store.Close()) }()
			require.NoError(t, store.(processlog.Operations).WriteBacklog(t.Context(), time.Now().Truncate(time.Minute), []processlog.Backlog{{BusinessType: "charge", Pending: 2000, Due: 7, Overdue: 5}}))
			assert.Contains(t, b.ok("overview", "-o", "json"), `"pending":"2000"`)
			assert.Contains(t, b.ok("health", "-o", "json"), `"waiting":"2000","due":7,"overdue":5`)
		})
	}
}
