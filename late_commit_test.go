package compensator_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
)

// TestLateCommitLooksLikeNoLostLease has most of a born lease go by before the commit, so that the entry is claimed
// once more. Nothing has run under the first lease: it must not bring the entry nearer to what is taken for crashes.
func TestLateCommitLooksLikeNoLostLease(t *testing.T) {
	w := newWorld(t)
	cfg, ready := w.hooksOnly(w.quick())
	cfg.Lease = time.Hour // nobody else can have the entry
	c := w.new(cfg)
	given := make(chan compensator.Entry, 1)
	orders, err := compensator.Handle(c, "close_order", func(_ context.Context, e *compensator.Entry, _ order) error {
		given <- *e
		return nil
	}, compensator.TypeConfig{})
	require.NoError(t, err)
	w.run(c)
	ready()
	w.inTx(w.DB, func(tx *sql.Tx) {
		receipt, err := orders.Record(t.Context(), tx, order{}, compensator.Options{})
		require.NoError(t, err)
		late, err := tx.Exec("UPDATE common_process_log SET lease_until=lease_until-3000000 WHERE id=? AND lease_until>0 AND delivery_count=1", receipt.ID().Row())
		require.NoError(t, err)
		n, err := late.RowsAffected()
		require.NoError(t, err)
		require.EqualValues(t, 1, n, "the entry is born claimed")
	})
	w.waitAllEnded()
	e := <-given
	assert.EqualValues(t, 1, e.Version, "it was claimed anew")
	assert.Equal(t, 1, e.DeliveryCount)
}
