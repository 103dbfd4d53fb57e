package rabbitmq

import (
	"database/sql"
	"flag"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
)

var messages = flag.Int("messages", 2000, "how many messages flow while the broker is killed")

// Failure: F87
func TestNoMessageIsLostWhileTheBrokerIsKilled(t *testing.T) {
	t.Parallel()
	b := ownBroker(t)
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	p := open(t, Config{URL: b.URL()})
	queue := b.queue(nil)
	b.keepDeclared()
	cfg := compensator.HandlerConfig[harness.Order]{MaxAttempts: 1, Timeout: testTimeout}
	single, err := Handle[harness.Order](t.Context(), c, "single_message", p, To("", queue), &cfg)
	require.NoError(t, err)
	batch, err := HandleBatch(t.Context(), c, "batch_message", p, To("", queue), &compensator.BatchConfig[harness.Order]{MaxAttempts: 1, Timeout: testTimeout})
	require.NoError(t, err)
	want := make(map[string]bool)
	for first := 0; first < *messages; first += 1000 {
		w.InTx(w.DB, func(tx *sql.Tx) {
			entries := make([]compensator.NewEntry, 0, 1000)
			for i := first; i < min(first+1000, *messages); i++ {
				of := []*compensator.Type[harness.Order]{single, batch}[i%2]
				entry := of.Entry(harness.Order{Number: i}, compensator.Options{IdempotencyKey: compensator.IdempotencyKey(fmt.Sprint("m", i))})
				entries, want[string(entry.IdempotencyKey)] = append(entries, entry), true
			}
			_, err := c.Record(t.Context(), tx, entries...)
			require.NoError(t, err)
		})
	}
	w.Run(c)
	succeeded := func() int { return w.Count("common_process_log WHERE state=1") }
	for kill := 1; kill <= 2; kill++ {
		eventually(t, func() bool { return succeeded() >= *messages*kill/4 }, "the flow goes on")
		b.Kill()
		require.Less(t, succeeded(), *messages, "killed in mid-flow")
		b.Restart(t)
	}
	eventually(t, func() bool { return succeeded() == *messages }, "every entry succeeds")
	ids, again := b.ids(queue), 0
	for id, times := range ids {
		assert.True(t, want[id], "%q belongs to no entry", id)
		again += times - 1
	}
	assert.Len(t, ids, *messages, "a message was lost")
	t.Logf("%d messages, the broker killed twice: %d came twice, under the same id", *messages, again)
}
