package compensator_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
)

func TestWithoutRedisTheEntriesOfOtherProcessesRunWhenTheyAreDue(t *testing.T) {
	w := newWorld(t)
	cfg := w.quick()
	cfg.Grace = time.Hour // nothing counts as forgotten
	runner := w.new(cfg)
	_, ran := numbered(t, runner, "order", compensator.TypeConfig{}, nil)
	w.run(runner)

	recorder := w.new(w.quick())
	orders, err := compensator.Declare[order](recorder, "order", compensator.TypeConfig{})
	require.NoError(t, err)
	var ids []compensator.EntryID
	for _, delay := range []time.Duration{0, 500 * time.Millisecond} {
		w.inTx(w.DB, func(tx *sql.Tx) {
			receipt, err := orders.Record(t.Context(), tx, order{}, compensator.Options{Delay: delay})
			require.NoError(t, err)
			ids = append(ids, receipt.ID())
		})
	}
	w.waitAllEnded()
	for _, id := range ids {
		assert.Equal(t, 1, ran.of(id))
	}
}
