package commits

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/harness"
)

// No handler ran under the first lease, so the entry must not count a lost lease.
func TestLateCommitLooksLikeNoLostLease(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg, ready := w.HooksOnlyConfig(w.QuickConfig())
	cfg.Lease = time.Hour // With this lease, no other process can claim the entry during the test.
	c := w.New(cfg)
	given := make(chan compensator.Entry, 1)
	orders, err := compensator.Handle(t.Context(), c, "close_order", func(_ context.Context, e *compensator.Entry, _ harness.Order) error {
		given <- *e
		return nil
	}, nil)
	require.NoError(t, err)
	w.Run(c)
	ready()
	w.InTx(w.DB, func(tx *sql.Tx) {
		receipt, err := orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{})
		require.NoError(t, err)
		late, err := tx.Exec("UPDATE common_process_log SET lease_until=lease_until-3000000 WHERE id=? AND lease_until>0 AND delivery_count=1", receipt.ID().Row())
		require.NoError(t, err)
		n, err := late.RowsAffected()
		require.NoError(t, err)
		require.EqualValues(t, 1, n, "the entry is inserted with a lease")
	})
	w.WaitAllEnded()
	e := <-given
	assert.EqualValues(t, 1, e.Version, "it was claimed again")
	assert.Equal(t, 1, e.DeliveryCount)
}

func TestEntryCommittedAfterTheLeaseItWasInsertedWithIsClaimedAnew(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg := w.QuickConfig()
	cfg.Lease = time.Second
	c := w.New(cfg)
	var versions sync.Map
	orders, _ := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, func(e *compensator.Entry, _ int) error {
		versions.Store(e.ID, e.Version)
		assert.Zero(t, w.Count("common_process_log WHERE id=? AND lease_until < TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(3)) DIV 1000", e.ID.Row()),
			"it runs under a lease")
		return nil
	})
	w.Run(c)
	w.WaitState(w.Record(orders, 0, compensator.Options{}), compensator.Succeeded) // From here on, Run starts entries as they are recorded.
	tx := w.Begin(w.DB)
	receipt, err := orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{})
	require.NoError(t, err)
	var leased bool
	require.NoError(t, tx.QueryRow("SELECT lease_until>0 FROM common_process_log WHERE id=?", receipt.ID().Row()).Scan(&leased))
	require.True(t, leased, "it is inserted with a lease")
	_, err = tx.Exec("SELECT SLEEP(1.2)")
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	w.WaitState(receipt.ID(), compensator.Succeeded)
	version, _ := versions.Load(receipt.ID())
	require.NotEqual(t, uint64(0), version, "a claim came before the attempt")
}

func TestEntryOfALostCommitReplyRunsWithoutTheReconciler(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	proxy, db := w.OpenProxied(true)
	cfg, ready := w.HooksOnlyConfig(w.QuickConfig())
	worker := w.New(cfg)
	orders, _ := harness.HandleCounted(t, worker, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(worker)
	ready()
	producer := w.QuickConfig()
	producer.DB = db
	c := w.New(producer) // This instance never runs.
	trap := proxy.Arm(faultproxy.Rule{Match: faultproxy.Commit(), Nth: 1, Fault: faultproxy.DropReply})
	entry := orders.Entry(harness.Order{}, compensator.Options{})
	require.ErrorIs(t, harness.CommitTx(c, db, func(tx compensator.Tx) error {
		_, err := c.Record(t.Context(), tx, entry)
		return err
	}), compensator.ErrCommitUnknown)
	require.Equal(t, 1, trap.Fired())
	w.WaitAllEnded()
	require.Equal(t, 1, w.CountEnded(compensator.Succeeded, 0))
}
