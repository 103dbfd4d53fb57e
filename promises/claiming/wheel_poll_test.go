package claiming

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
)

func TestWithoutRedisTheEntriesOfOtherProcessesRunWhenTheyAreDue(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg := w.QuickConfig()
	cfg.Grace = time.Hour // With a long grace period, the reconciler does not enqueue entries again.
	runner := w.New(cfg)
	_, ran := harness.HandleCounted(t, runner, "order", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(runner)

	recorder := w.New(w.QuickConfig())
	orders, err := compensator.Declare[harness.Order](t.Context(), recorder, "order", nil)
	require.NoError(t, err)
	var ids []compensator.EntryID
	for _, delay := range []time.Duration{0, 500 * time.Millisecond} {
		w.InTx(w.DB, func(tx *sql.Tx) {
			receipt, err := orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{Delay: delay})
			require.NoError(t, err)
			ids = append(ids, receipt.ID())
		})
	}
	w.WaitAllEnded()
	for _, id := range ids {
		assert.Equal(t, 1, ran.Of(id))
	}
}
