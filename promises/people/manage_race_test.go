package people

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/observe"
)

// underWay is an entry whose handler waits at a gate and ignores its context.
type underWay struct {
	*harness.World
	c       *compensator.Compensator
	id      compensator.EntryID
	gate    *harness.Gate
	ctx     context.Context // context of the waiting handler
	dropped chan observe.SettledEvent
	settled chan observe.SettledEvent
}

// The first attempt ignores its context and returns the error verdict when the gate opens. Later attempts succeed at
// once.
func startDeaf(t *testing.T, w *harness.World, verdict error) *underWay {
	t.Helper()
	cfg := w.QuickConfig()
	cfg.Lease = 20 * time.Second
	u := &underWay{World: w, gate: harness.NewGate(), dropped: make(chan observe.SettledEvent, 10), settled: make(chan observe.SettledEvent, 10)}
	cfg.Observer.OutcomeDropped = func(e observe.SettledEvent) { u.dropped <- e }
	cfg.Observer.Settled = func(e observe.SettledEvent) { u.settled <- e }
	u.c = w.New(cfg)
	_, _ = harness.HandleCounted(t, u.c, "other", compensator.HandlerConfig[harness.Order]{}, nil)
	var ran harness.Calls
	orders, err := compensator.Handle(t.Context(), u.c, "close_order", func(ctx context.Context, e *compensator.Entry, _ harness.Order) error {
		if ran.Add(e.ID) > 1 {
			return nil
		}
		u.ctx = ctx
		_ = u.gate.PassIgnoringContext(e)
		return verdict
	}, &compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(0)})
	require.NoError(t, err)
	w.Run(u.c)
	u.gate.OpenAtEnd(t)
	u.id = w.Record(orders, 1, compensator.Options{})
	u.gate.Await(t)
	return u
}

// If the attempt succeeded too, awaitCompleted waits for Settled. Otherwise it waits for a dropped outcome.
func (u *underWay) awaitCompleted(verdict error) observe.SettledEvent {
	u.T.Helper()
	if verdict != nil {
		return harness.Receive(u.T, u.dropped)
	}
	event := harness.Receive(u.T, u.settled)
	require.Equal(u.T, compensator.EndedByComplete, event.EndedBy)
	return event
}

// overtaken holds outcomes of attempts whose entry somebody changes meanwhile.
var overtaken = map[string]error{
	"success":   nil,
	"failure":   errors.New("no"),
	"permanent": compensator.Permanent(errors.New("never")),
	"snooze":    compensator.Snooze(0),
}

func TestCompletedEntryTakesNoOutcomeOfTheAttemptThatRan(t *testing.T) {
	t.Parallel()
	for name, verdict := range overtaken {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := startDeaf(t, harness.NewWorld(t).WithRedis(), verdict)
			require.NoError(t, harness.ErrOf(u.c.Complete(t.Context(), u.id)))
			require.ErrorIs(t, context.Cause(u.ctx), compensator.ErrCancelled, "the handler's context is cancelled")
			stored := u.Row(u.id)
			u.gate.Open()
			require.Equal(t, compensator.Succeeded, u.awaitCompleted(verdict).State)
			require.Equal(t, stored, u.Row(u.id))
			require.Equal(t, compensator.EndedByComplete, u.Entry(u.c, u.id).EndedBy)
		})
	}
}

func TestCancelledEntryTakesNoOutcomeOfTheAttemptThatRan(t *testing.T) {
	t.Parallel()
	for name, verdict := range overtaken {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := startDeaf(t, harness.NewWorld(t), verdict)
			found, err := u.c.Cancel(t.Context(), u.id)
			require.NoError(t, err)
			require.True(t, found.WasRunning)
			require.ErrorIs(t, context.Cause(u.ctx), compensator.ErrCancelled)
			stored := u.Row(u.id)
			u.gate.Open()
			require.Equal(t, compensator.Cancelled, harness.Receive(t, u.dropped).State)
			require.Equal(t, stored, u.Row(u.id))
		})
	}
}

func TestRequeuedEntryTakesNoOutcomeOfItsFormerGeneration(t *testing.T) {
	t.Parallel()
	for name, verdict := range overtaken {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := startDeaf(t, harness.NewWorld(t).WithRedis(), verdict)
			w, before := u.World, u.Entry(u.c, u.id).CallKey()
			w.Exec("UPDATE common_process_log SET state=-1, process_count=1 WHERE id=?", u.id.Row()) // Manual actions do not apply to pending entries.
			require.NoError(t, admin.Of(u.c).Requeue(t.Context(), u.id, admin.RequeueOptions{AuditInfo: harness.ByMei, Delay: time.Hour}))
			require.ErrorIs(t, context.Cause(u.ctx), compensator.ErrCancelled)
			stored := w.Row(u.id)
			u.gate.Open()
			require.Equal(t, compensator.Pending, harness.Receive(t, u.dropped).State)
			require.Equal(t, stored, w.Row(u.id))
			require.NotEqual(t, before, u.Entry(u.c, u.id).CallKey())
			require.NoError(t, u.c.Reschedule(t.Context(), u.id, 0))
			w.WaitState(u.id, compensator.Succeeded)
			require.Zero(t, u.Entry(u.c, u.id).ProcessCount)
		})
	}
}

func TestRequeuedEntryRunsWhileItsFormerAttemptStillDoes(t *testing.T) {
	t.Parallel()
	u := startDeaf(t, harness.NewWorld(t).WithRedis(), errors.New("too late"))
	u.Exec("UPDATE common_process_log SET state=-1, process_count=1 WHERE id=?", u.id.Row())
	require.NoError(t, admin.Of(u.c).Requeue(t.Context(), u.id, admin.RequeueOptions{AuditInfo: harness.ByMei}))
	u.WaitState(u.id, compensator.Succeeded)
	stored := u.Row(u.id)
	u.gate.Open()
	harness.Receive(t, u.dropped)
	require.Equal(t, stored, u.Row(u.id))
}

func TestEntrySettledManuallyTakesNoOutcomeOfTheAttemptThatRan(t *testing.T) {
	t.Parallel()
	u := startDeaf(t, harness.NewWorld(t), nil)
	u.Exec("UPDATE common_process_log SET state=-1, process_count=1 WHERE id=?", u.id.Row())
	require.NoError(t, admin.Of(u.c).SettleManually(t.Context(), u.id, harness.ByMei))
	u.gate.Open()
	require.Equal(t, compensator.SettledManually, harness.Receive(t, u.dropped).State)
}

func TestRescheduledEntryKeepsASuccessAndDropsAFailure(t *testing.T) {
	t.Parallel()
	t.Run("success", func(t *testing.T) {
		t.Parallel()
		u := startDeaf(t, harness.NewWorld(t).WithRedis(), nil)
		require.NoError(t, u.c.Reschedule(t.Context(), u.id, time.Hour))
		require.NoError(t, context.Cause(u.ctx), "the attempt goes on")
		u.gate.Open()
		require.Equal(t, compensator.Succeeded, harness.Receive(t, u.settled).State)
	})
	t.Run("failure", func(t *testing.T) {
		t.Parallel()
		u := startDeaf(t, harness.NewWorld(t).WithRedis(), errors.New("no"))
		require.NoError(t, u.c.Reschedule(t.Context(), u.id, time.Hour))
		u.gate.Open()
		harness.Receive(t, u.dropped)
		e := u.Entry(u.c, u.id)
		require.Equal(t, compensator.Pending, e.State)
		require.Zero(t, e.ProcessCount)
		require.Greater(t, time.Until(e.NextAt), 30*time.Minute, "the new moment stands")
	})
}

func TestCancellationRolledBackDisturbsNobody(t *testing.T) {
	t.Parallel()
	for name, pool := range harness.Pools {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := startDeaf(t, harness.NewWorld(t), nil)
			db := u.Open(pool(u.DSN))
			tx := u.Begin(db)
			found, err := u.c.CancelTx(t.Context(), tx, u.id)
			require.NoError(t, err)
			require.True(t, found.WasRunning)
			require.NoError(t, tx.Rollback())
			require.NoError(t, context.Cause(u.ctx), "the handler's context was not cancelled")
			u.gate.Open()
			require.Equal(t, compensator.Succeeded, harness.Receive(t, u.settled).State)
		})
	}
}

// A Connector sees only the outer commit, so the process believes that the entry is cancelled.
// Failure: F27
func TestCancellationThatASavepointUndoesCostsNothing(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg := w.QuickConfig()
	cfg.DB = w.Open(harness.WatchedPool(w.DSN))
	c := w.New(cfg)
	begun := make(chan compensator.EntryID, 1)
	var ran harness.Calls
	orders, err := compensator.Handle(t.Context(), c, "close_order", func(ctx context.Context, e *compensator.Entry, _ harness.Order) error {
		if ran.Add(e.ID) > 1 {
			return nil
		}
		begun <- e.ID
		<-ctx.Done()
		return ctx.Err()
	}, &compensator.HandlerConfig[harness.Order]{MaxAttempts: 1})
	require.NoError(t, err)
	w.Run(c)
	id := w.RecordThrough(cfg.DB, orders, 1, compensator.Options{})
	require.Equal(t, id, <-begun)
	w.InTx(cfg.DB, func(tx *sql.Tx) {
		_, err := tx.Exec("SAVEPOINT nested")
		require.NoError(t, err)
		_, err = c.CancelTx(t.Context(), tx, id)
		require.NoError(t, err)
		_, err = tx.Exec("ROLLBACK TO SAVEPOINT nested")
		require.NoError(t, err)
	})
	w.WaitAllEnded()
	require.Equal(t, compensator.Succeeded, w.State(id))
	require.Equal(t, 2, ran.Of(id))
}

func TestCancellationInATransactionStopsTheHandlerOnceItCommits(t *testing.T) {
	t.Parallel()
	u := startDeaf(t, harness.NewWorld(t), nil)
	tx := u.Begin(u.DB)
	_, err := u.c.CancelTx(t.Context(), tx, u.id)
	require.NoError(t, err)
	require.NoError(t, context.Cause(u.ctx))
	require.NoError(t, tx.Commit())
	require.ErrorIs(t, context.Cause(u.ctx), compensator.ErrCancelled)
	u.gate.Open()
	require.Equal(t, compensator.Cancelled, harness.Receive(t, u.dropped).State)
}

// Failure: F27
func TestSuccessWaitsForAnOpenCancellationAndIsDroppedWhenItCommits(t *testing.T) {
	t.Parallel()
	u := startDeaf(t, harness.NewWorld(t).WithRedis(), nil)
	tx := u.Begin(u.Open(harness.PlainPool(u.DSN)))
	_, err := u.c.CancelTx(t.Context(), tx, u.id)
	require.NoError(t, err)
	u.gate.Open()
	free, _ := compensator.Declare[harness.Order](t.Context(), u.c, "other", nil)
	u.WaitState(u.World.Record(free, 2, compensator.Options{}), compensator.Succeeded) // The locked entry must not delay this one.
	require.Equal(t, "other", harness.Receive(t, u.settled).BusinessType)
	require.NoError(t, tx.Commit())
	require.Equal(t, compensator.Cancelled, harness.Receive(t, u.dropped).State)
}

func TestOneOfTwoRacingActionsWins(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	orders, err := compensator.Declare[harness.Order](t.Context(), c, "close_order", nil)
	require.NoError(t, err)
	for range 30 {
		id := inState(w, orders, compensator.Pending)
		results := make(chan error, 2)
		go func() { results <- harness.ErrOf(c.Complete(t.Context(), id)) }()
		go func() { _, err := c.Cancel(t.Context(), id); results <- err }()
		first, second := harness.Receive(t, results), harness.Receive(t, results)
		if first != nil {
			first, second = second, first
		}
		require.NoError(t, first)
		var lost *compensator.StateError
		require.ErrorAs(t, second, &lost)
		require.Equal(t, w.State(id), lost.State)
		require.Equal(t, uint64(8), w.Entry(c, id).Version, "one change")
	}
}

func TestEntryRescheduledInATransactionRunsWhenItsNewMomentComes(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
		w.Run(c)
		sooner := w.RecordThrough(cfg.DB, orders, 1, compensator.Options{Delay: time.Hour})
		w.InTx(cfg.DB, func(tx *sql.Tx) { assert.NoError(t, c.RescheduleTx(t.Context(), tx, sooner, 0)) })
		w.WaitState(sooner, compensator.Succeeded)
		require.Equal(t, 1, ran.Of(sooner))
	})
}

// Failure: F56
func TestEntryCancelledBetweenItsCommitAndItsFirstAttemptDoesNotRun(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	proxy, db := w.OpenProxied(true)
	cfg := w.QuickConfig()
	cfg.Lease = harness.Timeout
	elsewhere := w.New(cfg)
	cfg.DB = db
	c := w.New(cfg)
	orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{Concurrency: 1}, nil)
	w.Run(c)
	w.WaitState(w.RecordThrough(db, orders, 1, compensator.Options{}), compensator.Succeeded) // By now Run starts entries as they are recorded.
	readBack := proxy.Arm(faultproxy.Rule{Fault: faultproxy.DelayRequest, Delay: 2 * time.Second, Nth: 1, Match: func(r faultproxy.Request) bool {
		return r.Runs() && strings.HasPrefix(r.Text, "SELECT id, CAST(idempotent_id AS BINARY), CAST(business_type AS BINARY)") && strings.Contains(r.Text, "WHERE id IN (") && !strings.Contains(r.Text, "FOR UPDATE")
	}})
	id := w.RecordThrough(db, orders, 2, compensator.Options{})
	require.NoError(t, readBack.Await(t.Context()))
	found, err := elsewhere.Cancel(t.Context(), id)
	require.NoError(t, err)
	require.True(t, found.WasRunning, "it was inserted with a lease")
	stored := w.Row(id)
	// The cancelled entry holds the only slot until it has been read back.
	w.WaitState(w.RecordThrough(db, orders, 3, compensator.Options{}), compensator.Succeeded)
	require.Zero(t, ran.Of(id))
	require.Equal(t, stored, w.Row(id))
}
