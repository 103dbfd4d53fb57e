package compensator_test

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
)

// innocentRuns is how often TestInnocentsBesideKillersAreToldApart is repeated, to see a distribution.
var innocentRuns = flag.Int("innocents", 1, "runs of TestInnocentsBesideKillersAreToldApart")

// countDeliveries keeps the most deliveries that each entry ever counted.
func (w *world) countDeliveries() {
	w.exec("CREATE TABLE deliveries (id BIGINT PRIMARY KEY, n INT NOT NULL) ENGINE=InnoDB")
	for event, count := range map[string]string{"INSERT": "NEW.delivery_count>0", "UPDATE": "NEW.delivery_count>OLD.delivery_count"} {
		w.exec("CREATE TRIGGER count_" + event + " AFTER " + event + " ON common_process_log FOR EACH ROW BEGIN IF " + count +
			" THEN INSERT INTO deliveries VALUES (NEW.id, NEW.delivery_count) ON DUPLICATE KEY UPDATE n=GREATEST(n, NEW.delivery_count); END IF; END")
	}
}

// innocents counts the entries that have succeeded by the most deliveries they counted: the place in the list.
func (w *world) innocents() (n [5]int) {
	w.t.Helper()
	rows, err := w.DB.Query("SELECT d.n, COUNT(*) FROM deliveries d JOIN common_process_log l ON l.id=d.id WHERE l.state=1 GROUP BY d.n")
	require.NoError(w.t, err)
	defer rows.Close()
	for rows.Next() {
		var deliveries, count int
		require.NoError(w.t, rows.Scan(&deliveries, &count))
		n[deliveries] = count
	}
	require.NoError(w.t, rows.Err())
	return n
}

// Entries that kill their process, among many that only happen to be there: these must not come near the end of the
// crash budget themselves.
func TestInnocentsBesideKillersAreToldApart(t *testing.T) {
	for _, killers := range []string{"250", "100,250,400"} {
		for run := range *innocentRuns {
			t.Run(fmt.Sprint(killers, "/", run), func(t *testing.T) {
				w := newWorld(t).withRedis()
				c, types := w.lifeInstance(w.DB)
				w.countDeliveries()
				putMany(w, c, types.ship, 500, compensator.Options{})
				crashes := w.supervise(program{Killer: killers, Works: 10 * time.Millisecond})
				n := w.innocents()
				t.Logf("killers %d, crashes %d, innocents by deliveries: 1: %d, 2: %d, 3: %d", 1+strings.Count(killers, ","), crashes, n[1], n[2], n[3])
				require.Equal(t, 500-1-strings.Count(killers, ","), w.ended(compensator.Succeeded, 0), "no innocent is taken out")
			})
		}
	}
}

// All that a healthy process had claimed when somebody killed it has lost a lease, and is run among few: that must end
// as well. How long it takes is logged, for docs/reliability.md.
func TestEntriesOfAPlainKillAreWorkedOffAmongFew(t *testing.T) {
	for _, concurrency := range []int{50, 1000} {
		for run := range *innocentRuns {
			t.Run(fmt.Sprint(concurrency, "/", run), func(t *testing.T) {
				inOppositeModes(t, func(t *testing.T, w *world, cfg compensator.Config) {
					c := w.new(cfg)
					_, err := compensator.Handle(c, "close_order", func(context.Context, *compensator.Entry, order) error {
						<-time.After(10 * time.Millisecond)
						return nil
					}, compensator.TypeConfig{Concurrency: concurrency})
					require.NoError(t, err)
					w.backlog("close_order", concurrency)
					w.exec("UPDATE common_process_log SET delivery_count=1")
					began := time.Now()
					w.run(c)
					w.waitAllEnded()
					t.Logf("concurrency %d: %d entries of one lost lease, handlers of 10 ms, took %v", concurrency, concurrency, time.Since(began).Round(10*time.Millisecond))
					require.Equal(t, concurrency, w.ended(compensator.Succeeded, 0))
				})
			})
		}
	}
}
