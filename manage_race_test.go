package compensator_test

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
	"github.com/compensator-go/compensator/internal/faultproxy"
)

// underWay is an entry whose handler waits at a gate, deaf to its context, and then returns an error or nil.
type underWay struct {
	*world
	c       *compensator.Compensator
	id      compensator.EntryID
	gate    *gate
	ctx     context.Context // the waiting handler's
	dropped chan compensator.SettledEvent
	settled chan compensator.SettledEvent
}

// startDeaf records an entry and waits until its handler is at the gate. Only the first attempt goes there;
// later ones succeed at once.
func startDeaf(t *testing.T, w *world, verdict error) *underWay {
	t.Helper()
	cfg := w.quick()
	cfg.Lease = 20 * time.Second
	u := &underWay{world: w, gate: newGate(), dropped: make(chan compensator.SettledEvent, 10), settled: make(chan compensator.SettledEvent, 10)}
	cfg.Observer.OutcomeDropped = func(e compensator.SettledEvent) { u.dropped <- e }
	cfg.Observer.Settled = func(e compensator.SettledEvent) { u.settled <- e }
	u.c = w.new(cfg)
	_, _ = numbered(t, u.c, "other", compensator.TypeConfig{}, nil)
	var ran calls
	orders, err := compensator.Handle(u.c, "close_order", func(ctx context.Context, e *compensator.Entry, _ order) error {
		if ran.add(e.ID) > 1 {
			return nil
		}
		u.ctx = ctx
		_ = u.gate.passDeaf(e)
		return verdict
	}, compensator.TypeConfig{Retry: compensator.Fixed(0)})
	require.NoError(t, err)
	w.run(u.c)
	u.gate.openAtEnd(t)
	u.id = put(w, orders, 1, compensator.Options{})
	u.gate.await(t)
	return u
}

// outcomes of an attempt that somebody overtakes.
var overtaken = map[string]error{
	"success":   nil,
	"failure":   errors.New("no"),
	"permanent": compensator.Permanent(errors.New("never")),
	"snooze":    compensator.Snooze(0),
}

func TestCompletedEntryTakesNoOutcomeOfTheAttemptThatRan(t *testing.T) {
	for name, verdict := range overtaken {
		t.Run(name, func(t *testing.T) {
			u := startDeaf(t, newWorld(t).withRedis(), verdict)
			require.NoError(t, u.c.Complete(t.Context(), u.id))
			require.ErrorIs(t, context.Cause(u.ctx), compensator.ErrCancelled, "the handler is told")
			stored := u.row(u.id)
			u.gate.open()
			require.Equal(t, compensator.Succeeded, next(t, u.dropped).State)
			require.Equal(t, stored, u.row(u.id))
			require.Equal(t, compensator.EndedByComplete, u.entry(u.c, u.id).EndedBy)
		})
	}
}

func TestCancelledEntryTakesNoOutcomeOfTheAttemptThatRan(t *testing.T) {
	for name, verdict := range overtaken {
		t.Run(name, func(t *testing.T) {
			u := startDeaf(t, newWorld(t), verdict)
			found, err := u.c.Cancel(t.Context(), u.id)
			require.NoError(t, err)
			require.True(t, found.WasRunning)
			require.ErrorIs(t, context.Cause(u.ctx), compensator.ErrCancelled)
			stored := u.row(u.id)
			u.gate.open()
			require.Equal(t, compensator.Cancelled, next(t, u.dropped).State)
			require.Equal(t, stored, u.row(u.id))
		})
	}
}

func TestRequeuedEntryTakesNoOutcomeOfItsFormerGeneration(t *testing.T) {
	for name, verdict := range overtaken {
		t.Run(name, func(t *testing.T) {
			u := startDeaf(t, newWorld(t).withRedis(), verdict)
			w, before := u.world, u.entry(u.c, u.id).Key()
			w.exec("UPDATE common_process_log SET state=-1, process_count=1 WHERE id=?", u.id.Row()) // pending ones are not for people
			require.NoError(t, u.c.Requeue(t.Context(), u.id, compensator.RequeueOptions{ByHand: byMei, Delay: time.Hour}))
			require.ErrorIs(t, context.Cause(u.ctx), compensator.ErrCancelled)
			stored := w.row(u.id)
			u.gate.open()
			require.Equal(t, compensator.Pending, next(t, u.dropped).State)
			require.Equal(t, stored, w.row(u.id))
			require.NotEqual(t, before, u.entry(u.c, u.id).Key())
			require.NoError(t, u.c.Reschedule(t.Context(), u.id, 0))
			w.waitState(u.id, compensator.Succeeded)
			require.Zero(t, u.entry(u.c, u.id).ProcessCount)
		})
	}
}

func TestRequeuedEntryRunsWhileItsFormerAttemptStillDoes(t *testing.T) {
	u := startDeaf(t, newWorld(t).withRedis(), errors.New("too late"))
	u.exec("UPDATE common_process_log SET state=-1, process_count=1 WHERE id=?", u.id.Row())
	require.NoError(t, u.c.Requeue(t.Context(), u.id, compensator.RequeueOptions{ByHand: byMei}))
	u.waitState(u.id, compensator.Succeeded)
	stored := u.row(u.id)
	u.gate.open()
	next(t, u.dropped)
	require.Equal(t, stored, u.row(u.id))
}

func TestEntrySettledByHandTakesNoOutcomeOfTheAttemptThatRan(t *testing.T) {
	u := startDeaf(t, newWorld(t), nil)
	u.exec("UPDATE common_process_log SET state=-1, process_count=1 WHERE id=?", u.id.Row())
	require.NoError(t, u.c.SettleByHand(t.Context(), u.id, byMei))
	u.gate.open()
	require.Equal(t, compensator.SettledByHand, next(t, u.dropped).State)
}

func TestRescheduledEntryKeepsASuccessAndDropsAFailure(t *testing.T) {
	t.Run("success", func(t *testing.T) {
		u := startDeaf(t, newWorld(t).withRedis(), nil)
		require.NoError(t, u.c.Reschedule(t.Context(), u.id, time.Hour))
		require.NoError(t, context.Cause(u.ctx), "the attempt goes on")
		u.gate.open()
		require.Equal(t, compensator.Succeeded, next(t, u.settled).State)
	})
	t.Run("failure", func(t *testing.T) {
		u := startDeaf(t, newWorld(t).withRedis(), errors.New("no"))
		require.NoError(t, u.c.Reschedule(t.Context(), u.id, time.Hour))
		u.gate.open()
		next(t, u.dropped)
		e := u.entry(u.c, u.id)
		require.Equal(t, compensator.Pending, e.State)
		require.Zero(t, e.ProcessCount)
		require.Greater(t, time.Until(e.NextAt), 30*time.Minute, "the new moment stands")
	})
}

func TestCancellationRolledBackDisturbsNobody(t *testing.T) {
	for name, pool := range pools {
		t.Run(name, func(t *testing.T) {
			u := startDeaf(t, newWorld(t), nil)
			db := u.open(pool(u.DSN))
			tx := u.begin(db)
			found, err := u.c.CancelTx(t.Context(), tx, u.id)
			require.NoError(t, err)
			require.True(t, found.WasRunning)
			require.NoError(t, tx.Rollback())
			require.NoError(t, context.Cause(u.ctx), "nobody told the handler")
			u.gate.open()
			require.Equal(t, compensator.Succeeded, next(t, u.settled).State)
		})
	}
}

func TestCancellationInATransactionStopsTheHandlerOnceItCommits(t *testing.T) {
	u := startDeaf(t, newWorld(t), nil)
	tx := u.begin(u.DB)
	_, err := u.c.CancelTx(t.Context(), tx, u.id)
	require.NoError(t, err)
	require.NoError(t, context.Cause(u.ctx))
	require.NoError(t, tx.Commit())
	require.ErrorIs(t, context.Cause(u.ctx), compensator.ErrCancelled)
	u.gate.open()
	require.Equal(t, compensator.Cancelled, next(t, u.dropped).State)
}

func TestSuccessWaitsForAnOpenCancellationAndIsDroppedWhenItCommits(t *testing.T) {
	u := startDeaf(t, newWorld(t).withRedis(), nil)
	tx := u.begin(u.open(plain(u.DSN)))
	_, err := u.c.CancelTx(t.Context(), tx, u.id)
	require.NoError(t, err)
	u.gate.open()
	free, _ := compensator.Declare[order](u.c, "other", compensator.TypeConfig{})
	u.waitState(put(u.world, free, 2, compensator.Options{}), compensator.Succeeded) // the lock holds up nobody else
	require.Equal(t, "other", next(t, u.settled).BusinessType)
	require.NoError(t, tx.Commit())
	require.Equal(t, compensator.Cancelled, next(t, u.dropped).State)
}

func TestOneOfTwoRacingActionsWins(t *testing.T) {
	w := newWorld(t)
	c := w.new(w.quick())
	orders, err := compensator.Declare[order](c, "close_order", compensator.TypeConfig{})
	require.NoError(t, err)
	for range 30 {
		id := inState(w, orders, compensator.Pending)
		results := make(chan error, 2)
		go func() { results <- c.Complete(t.Context(), id) }()
		go func() { _, err := c.Cancel(t.Context(), id); results <- err }()
		first, second := next(t, results), next(t, results)
		if first != nil {
			first, second = second, first
		}
		require.NoError(t, first)
		var lost *compensator.StateError
		require.ErrorAs(t, second, &lost)
		require.Equal(t, w.state(id), lost.State)
		require.Equal(t, uint64(8), w.entry(c, id).Version, "one change")
	}
}

func TestEntryRescheduledInATransactionRunsWhenItsNewMomentComes(t *testing.T) {
	inEveryMode(t, func(t *testing.T, w *world, cfg compensator.Config) {
		c := w.new(cfg)
		orders, ran := numbered(t, c, "close_order", compensator.TypeConfig{}, nil)
		w.run(c)
		sooner := putThrough(w, cfg.DB, orders, 1, compensator.Options{Delay: time.Hour})
		w.inTx(cfg.DB, func(tx *sql.Tx) { assert.NoError(t, c.RescheduleTx(t.Context(), tx, sooner, 0)) })
		w.waitState(sooner, compensator.Succeeded)
		require.Equal(t, 1, ran.of(sooner))
	})
}

func TestEntryCancelledBetweenItsCommitAndItsFirstAttemptDoesNotRun(t *testing.T) {
	w := newWorld(t)
	proxy, db := w.proxied(true)
	cfg := w.quick()
	cfg.Lease = patience
	elsewhere := w.new(cfg)
	cfg.DB = db
	c := w.new(cfg)
	orders, ran := numbered(t, c, "close_order", compensator.TypeConfig{Concurrency: 1}, nil)
	w.run(c)
	w.waitState(putThrough(w, db, orders, 1, compensator.Options{}), compensator.Succeeded) // Run takes entries as they are born
	readBack := proxy.Arm(faultproxy.Rule{Fault: faultproxy.DelayRequest, Delay: 2 * time.Second, Nth: 1, Match: func(r faultproxy.Request) bool {
		return r.Runs() && strings.HasPrefix(r.Text, "SELECT") && strings.Contains(r.Text, " IN (") && !strings.Contains(r.Text, "FOR UPDATE")
	}})
	id := putThrough(w, db, orders, 2, compensator.Options{})
	require.NoError(t, readBack.Await(t.Context()))
	found, err := elsewhere.Cancel(t.Context(), id)
	require.NoError(t, err)
	require.True(t, found.WasRunning, "it was born claimed")
	stored := w.row(id)
	// It holds the only slot until it has been read back.
	w.waitState(putThrough(w, db, orders, 3, compensator.Options{}), compensator.Succeeded)
	require.Zero(t, ran.of(id))
	require.Equal(t, stored, w.row(id))
}
