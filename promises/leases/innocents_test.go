package leases

import (
	"context"
	"flag"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
)

var innocentRuns = flag.Int("innocents", 1, "runs of TestInnocentsBesideKillersAreToldApart")

func countDeliveries(w *harness.World) {
	w.Exec("CREATE TABLE deliveries (id BIGINT PRIMARY KEY, n INT NOT NULL) ENGINE=InnoDB")
	for event, count := range map[string]string{"INSERT": "NEW.delivery_count>0", "UPDATE": "NEW.delivery_count>OLD.delivery_count"} {
		w.Exec("CREATE TRIGGER count_" + event + " AFTER " + event + " ON common_process_log FOR EACH ROW BEGIN IF " + count +
			" THEN INSERT INTO deliveries VALUES (NEW.id, NEW.delivery_count) ON DUPLICATE KEY UPDATE n=GREATEST(n, NEW.delivery_count); END IF; END")
	}
}

// innocents counts the succeeded entries. n[i] is the number of those whose highest delivery count is i.
func innocents(w *harness.World) (n [5]int) {
	w.T.Helper()
	rows, err := w.DB.Query("SELECT d.n, COUNT(*) FROM deliveries d JOIN common_process_log l ON l.id=d.id WHERE l.state=1 GROUP BY d.n")
	require.NoError(w.T, err)
	defer rows.Close()
	for rows.Next() {
		var deliveries, count int
		require.NoError(w.T, rows.Scan(&deliveries, &count))
		n[deliveries] = count
	}
	require.NoError(w.T, rows.Err())
	return n
}

// few is the maximum number of entries that have lost one lease and run at the same time. So at most this number of
// entries lose a second lease in one crash. No entry loses a second lease in these crashes:
//   - the first crash of all, because no entry has lost a lease before,
//   - the last crash of each killer, because the killer then runs alone.
const few = 8

// Failure: F61
func TestInnocentsBesideKillersAreToldApart(t *testing.T) {
	t.Parallel()
	for _, killers := range []string{"250", "100,250,400"} {
		for run := range *innocentRuns {
			t.Run(fmt.Sprint(killers, "/", run), func(t *testing.T) {
				t.Parallel()
				w := harness.NewWorld(t).WithRedis()
				c, types := w.LifeInstance(w.DB)
				countDeliveries(w)
				w.RecordMany(c, types.Ship, 500, compensator.Options{})
				crashes := w.Supervise(harness.Program{Killer: killers, Works: 10 * time.Millisecond})
				n := innocents(w)
				t.Logf("killers %d, crashes %d, innocents by deliveries: 1: %d, 2: %d, 3: %d", 1+strings.Count(killers, ","), crashes, n[1], n[2], n[3])
				require.Equal(t, 500-1-strings.Count(killers, ","), w.CountEnded(compensator.Succeeded, 0), "no innocent is taken out")
				require.LessOrEqual(t, n[3], few*(crashes-1-strings.Count(killers, ",")-1), "third deliveries")
			})
		}
	}
}

// Failure: F61
func TestEntriesThatAKilledProcessHeldAreWorkedOffInFewCalls(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		const concurrency, size = 4, 100
		c := w.New(cfg)
		var mu sync.Mutex
		var calls []int
		_, err := compensator.HandleBatch(t.Context(), c, "close_order", func(_ context.Context, items []compensator.Item[harness.Order]) []error {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, len(items))
			return nil
		}, &compensator.BatchConfig[harness.Order]{Concurrency: concurrency, BatchSize: size})
		require.NoError(t, err)
		w.Backlog("close_order", concurrency*size)
		w.Exec("UPDATE common_process_log SET delivery_count=1")
		w.Run(c)
		w.WaitAllEnded()
		require.Equal(t, concurrency*size, w.CountEnded(compensator.Succeeded, 0))
		t.Log(calls)
		require.LessOrEqual(t, len(calls), 4*concurrency, "undisturbed they take four calls")
		require.LessOrEqual(t, calls[0], 20, "the first are few")
	})
}

// Failure: F61
func TestEntryThatKillsItsBatchIsDeadLetteredAlone(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	c, types := w.LifeInstance(w.DB)
	countDeliveries(w)
	w.RecordMany(c, types.Mail, 400, compensator.Options{})
	crashes := w.Supervise(harness.Program{Killer: "250"})
	n := innocents(w)
	t.Logf("crashes %d, innocents by deliveries: 1: %d, 2: %d, 3: %d", crashes, n[1], n[2], n[3])
	require.Equal(t, 3, crashes)
	require.Equal(t, 399, w.CountEnded(compensator.Succeeded, 0), "no innocent is taken out, and none has spent an attempt")
	require.Equal(t, 1, w.Count("common_process_log WHERE business_id='250' AND state=-2 AND ended_by='crash' AND process_count=0"))
	require.LessOrEqual(t, n[3], 180, "no more than ran beside it at the second crash")
}

// The test logs how long the entries take, for docs/internals/reliability.md.
// Failure: F61
func TestEntriesOfAPlainKillAreWorkedOffAmongFew(t *testing.T) {
	t.Parallel()
	for _, concurrency := range []int{50, 1000} {
		for run := range *innocentRuns {
			t.Run(fmt.Sprint(concurrency, "/", run), func(t *testing.T) {
				t.Parallel()
				harness.InOppositeModes(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
					c := w.New(cfg)
					var running, most atomic.Int64
					_, err := compensator.Handle(t.Context(), c, "close_order", func(context.Context, *compensator.Entry, harness.Order) error {
						for now, before := running.Add(1), most.Load(); now > before && !most.CompareAndSwap(before, now); before = most.Load() {
						}
						defer running.Add(-1)
						<-time.After(10 * time.Millisecond)
						return nil
					}, &compensator.HandlerConfig[harness.Order]{Concurrency: concurrency})
					require.NoError(t, err)
					w.Backlog("close_order", concurrency)
					w.Exec("UPDATE common_process_log SET delivery_count=1")
					began := time.Now()
					w.Run(c)
					w.WaitAllEnded()
					t.Logf("concurrency %d: %d entries of one lost lease, handlers of 10 ms, took %v", concurrency, concurrency, time.Since(began).Round(10*time.Millisecond))
					require.Equal(t, concurrency, w.CountEnded(compensator.Succeeded, 0))
					require.LessOrEqual(t, most.Load(), int64(math.Ceil(math.Sqrt(float64(concurrency)))), "at once")
				})
			})
		}
	}
}
