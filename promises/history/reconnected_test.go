package history

import (
	"context"
	"database/sql"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// lone is a process whose reconciler runs only one round during a test. So the process can notice a loss only when it
// claims.
type lone struct {
	*compensator.Compensator
	db      *sql.DB
	name    string
	waiting compensator.EntryID
	begun   chan struct{} // receives a value when a round of the reconciler is over, and the process has begun
	settled chan struct{}
	noticed chan struct{}
	starts  atomic.Int64
}

func (f *failover) lone(name string, db *sql.DB) *lone {
	f.T.Helper()
	l := &lone{db: db, name: name, settled: make(chan struct{}, 100), noticed: make(chan struct{})}
	cfg := f.QuickConfig()
	cfg.DB, cfg.StopOnLoss, l.begun = db, true, make(chan struct{}, 100)
	cfg.ReconcileInterval, cfg.PollInterval, cfg.Grace = time.Hour, time.Hour, time.Minute
	cfg.Observer = observe.Observer{
		Reconciled:     func(observe.ReconciledEvent) { l.begun <- struct{}{} },
		AttemptStarted: func(observe.AttemptEvent) { l.starts.Add(1) },
		Settled:        func(observe.SettledEvent) { l.settled <- struct{}{} },
		HistoryLost:    func(*processlog.LossError) { close(l.noticed) },
	}
	l.Compensator = f.New(cfg)
	_, err := compensator.Handle(context.Background(), l.Compensator, name, func(context.Context, *compensator.Entry, harness.Order) error { return nil }, nil)
	require.NoError(f.T, err)
	return l
}

func (l *lone) record(t *testing.T, delay time.Duration) (compensator.EntryID, error) {
	t.Helper()
	tx, err := l.db.Begin()
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	receipt, err := l.Record(t.Context(), tx, compensator.NewEntry{BusinessType: l.name, Content: []byte("{}"), Options: compensator.Options{Delay: delay}})
	if err != nil {
		return compensator.EntryID{}, err
	}
	require.NoError(t, tx.Commit())
	receipt.Committed()
	return receipt.ID(), nil
}

// Failure: F21
func TestNothingClaimedAfterAFailoverStartsUntilAPersonSaysGoOn(t *testing.T) {
	t.Parallel()
	f := newFailover(t)
	f.WithRedis()
	person := f.service(false, false)
	// idle needs a watched pool. On a plain pool the library does not see new connections, and would notice the loss
	// only in a reconciler round.
	idle := f.lone("idle", f.Open(harness.WatchedPool(f.DSN)))
	all := []*lone{idle}
	// The processes busy_… repeatedly try to claim this locked entry. When the primary dies, their claim fails.
	held := f.Begin(f.DB)
	for name, pool := range harness.Pools {
		l := f.lone("busy_"+name, f.Open(pool(f.DSN)))
		l.waiting = f.InsertDue(l.name, len(all)+1, 1)[0]
		_, err := held.Exec("SELECT id FROM common_process_log WHERE id=? FOR UPDATE", l.waiting.Row())
		require.NoError(t, err)
		all = append(all, l)
	}
	for _, l := range all {
		f.Run(l.Compensator)
		f.Wait(l.begun, "its first round")
	}
	var err error
	idle.waiting, err = idle.record(t, time.Hour)
	require.NoError(t, err)
	f.replica.Lag(t, f.primary)
	for _, l := range all {
		_, err := l.record(t, 0)
		require.NoError(t, err)
		f.Wait(l.settled, "the success that will be lost")
		require.EqualValues(t, 1, l.starts.Load())
	}

	f.dies()
	for _, l := range all[1:] {
		f.Eventually(func() bool { return len(l.Health(t.Context()).Problems) > 0 }, "a claim of %s fails", l.name)
	}
	f.succeeds()
	require.NoError(t, person.Reschedule(t.Context(), idle.waiting, 0))
	for _, l := range all {
		f.Wait(l.noticed, l.name+" notices the loss")
	}
	for _, l := range all {
		_, err := l.record(t, time.Hour)
		require.NoError(t, err, "recording goes on")
		require.Equal(t, compensator.Pending, f.State(l.waiting))
		assert.EqualValues(t, 1, l.starts.Load(), "%s starts nothing from the promotion on", l.name)
	}

	for _, l := range all {
		_, err := admin.Of(l.Compensator).AcceptLoss(t.Context(), admin.AuditInfo{Actor: "ann", Reason: "the old primary is gone"})
		require.NoError(t, err)
		f.WaitState(l.waiting, compensator.Succeeded)
		assert.EqualValues(t, 2, l.starts.Load(), l.name)
	}
}
