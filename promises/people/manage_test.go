package people

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/processlog"
)

// The queue still holds the old due time.
func TestEntryMovedForwardDoesNotWaitForTheReconciler(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		cfg, ready := w.HooksOnlyConfig(cfg)
		// With this lease, no lease ends during the test. If a lease ended, the queue would offer the entry again
		// without Reschedule.
		cfg.Lease = time.Hour
		c := w.New(cfg)
		orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
		w.Run(c)
		ready()
		id := w.RecordThrough(cfg.DB, orders, 1, compensator.Options{Delay: 5 * time.Minute})
		if w.Redis != nil {
			w.Eventually(func() bool { return w.Queued() == 1 }, "the queue knows the entry")
		}
		require.NoError(t, c.Reschedule(t.Context(), id, 100*time.Millisecond))
		w.WaitState(id, compensator.Succeeded)
		require.Equal(t, 1, ran.Of(id))
	})
}

// If inTx is set, there is also a variant that runs in the caller's transaction.
type deed struct {
	action processlog.Action
	from   []compensator.State
	to     func(before compensator.State) compensator.State
	epochs uint32
	counts bool // whether the counts process_count and compensate_count keep their values
	alone  func(ctx context.Context, c *compensator.Compensator, ref compensator.Ref) error
	inTx   func(ctx context.Context, c *compensator.Compensator, tx *sql.Tx, ref compensator.Ref) error
}

func always(s compensator.State) func(compensator.State) compensator.State {
	return func(compensator.State) compensator.State { return s }
}

var deeds = map[string]deed{
	"complete": {processlog.ActionComplete, []compensator.State{compensator.Pending, compensator.Retrying}, always(compensator.Succeeded), 0, true,
		func(ctx context.Context, c *compensator.Compensator, ref compensator.Ref) error {
			return harness.ErrOf(c.Complete(ctx, ref))
		},
		func(ctx context.Context, c *compensator.Compensator, tx *sql.Tx, ref compensator.Ref) error {
			return harness.ErrOf(c.CompleteTx(ctx, tx, ref))
		}},
	"cancel": {processlog.ActionCancel, []compensator.State{compensator.Pending, compensator.Retrying}, always(compensator.Cancelled), 0, true,
		func(ctx context.Context, c *compensator.Compensator, ref compensator.Ref) error {
			_, err := c.Cancel(ctx, ref)
			return err
		},
		func(ctx context.Context, c *compensator.Compensator, tx *sql.Tx, ref compensator.Ref) error {
			_, err := c.CancelTx(ctx, tx, ref)
			return err
		}},
	"reschedule": {processlog.ActionReschedule, []compensator.State{compensator.Pending, compensator.Retrying},
		func(before compensator.State) compensator.State { return before }, 0, true,
		func(ctx context.Context, c *compensator.Compensator, ref compensator.Ref) error {
			return c.Reschedule(ctx, ref, 2*time.Hour)
		},
		func(ctx context.Context, c *compensator.Compensator, tx *sql.Tx, ref compensator.Ref) error {
			return c.RescheduleTx(ctx, tx, ref, 2*time.Hour)
		}},
	"requeue": {processlog.ActionRequeue,
		[]compensator.State{compensator.Dead, compensator.Succeeded, compensator.Compensated, compensator.Cancelled, compensator.SettledManually, compensator.Retrying},
		always(compensator.Pending), 1, false,
		func(ctx context.Context, c *compensator.Compensator, ref compensator.Ref) error {
			return admin.Of(c).Requeue(ctx, ref, admin.RequeueOptions{AuditInfo: harness.ByMei, Delay: 2 * time.Hour})
		}, nil},
	"requeue to compensate": {processlog.ActionRequeue,
		[]compensator.State{compensator.Dead, compensator.Succeeded, compensator.Compensated, compensator.Cancelled, compensator.SettledManually, compensator.Retrying},
		always(compensator.Compensating), 1, false,
		func(ctx context.Context, c *compensator.Compensator, ref compensator.Ref) error {
			return admin.Of(c).Requeue(ctx, ref, admin.RequeueOptions{AuditInfo: harness.ByMei, Delay: 2 * time.Hour, Compensate: true})
		}, nil},
	"settle by hand": {processlog.ActionSettleManually, []compensator.State{compensator.Dead, compensator.Retrying, compensator.Compensating},
		always(compensator.SettledManually), 1, true,
		func(ctx context.Context, c *compensator.Compensator, ref compensator.Ref) error {
			return admin.Of(c).SettleManually(ctx, ref, harness.ByMei)
		},
		func(ctx context.Context, c *compensator.Compensator, tx *sql.Tx, ref compensator.Ref) error {
			return admin.Of(c).SettleManuallyTx(ctx, tx, ref, harness.ByMei)
		}},
}

// inState inserts the row at version 7.
func inState(w *harness.World, orders *compensator.Type[harness.Order], state compensator.State) compensator.EntryID {
	w.T.Helper()
	id := w.Record(orders, 1, compensator.Options{Delay: time.Hour})
	failures, undone, endedBy := 0, 0, ""
	switch state {
	case compensator.Retrying:
		failures = 2
	case compensator.Compensating:
		failures, undone = 3, 1
	case compensator.Dead:
		failures, undone, endedBy = 3, 2, "exhausted"
	case compensator.Compensated:
		failures, undone, endedBy = 3, 1, "handler"
	case compensator.Succeeded:
		endedBy = "handler"
	case compensator.Cancelled:
		endedBy = "cancel"
	case compensator.SettledManually:
		endedBy = "person"
	}
	w.Exec("UPDATE common_process_log SET state=?, process_count=?, compensate_count=?, ended_by=?, version=7 WHERE id=?", int64(state), failures, undone, endedBy, id.Row())
	return id
}

func (d deed) requireDone(t *testing.T, before, after *compensator.Entry) {
	t.Helper()
	require.Equal(t, d.to(before.State), after.State)
	require.Equal(t, before.Version+1, after.Version)
	require.Equal(t, before.Epoch+d.epochs, after.Epoch)
	require.Equal(t, d.epochs == 0, before.CallKey() == after.CallKey(), "a new generation has a new key")
	require.Zero(t, after.DeliveryCount)
	require.Equal(t, after.State.Terminal(), after.EndedBy != "")
	if d.counts {
		require.Equal(t, [2]int{before.ProcessCount, before.CompensateCount}, [2]int{after.ProcessCount, after.CompensateCount})
	} else {
		require.Zero(t, after.ProcessCount+after.CompensateCount)
	}
}

func TestActionsFollowTheContract(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	orders, err := compensator.Declare[harness.Order](t.Context(), c, "close_order", nil)
	require.NoError(t, err)
	for name, d := range deeds {
		for _, state := range processlog.States {
			t.Run(fmt.Sprintf("%s/%s", name, state), func(t *testing.T) {
				id := inState(w, orders, state)
				before, stored := w.Entry(c, id), w.Row(id)
				err := d.alone(t.Context(), c, id)
				if d.action == processlog.ActionCancel && state == compensator.Cancelled {
					require.NoError(t, err)
					require.Equal(t, stored, w.Row(id))
					return
				}
				if !slices.Contains(d.from, state) {
					var refused *compensator.StateError
					require.ErrorAs(t, err, &refused)
					begun := state == compensator.Dead && d.action != processlog.ActionReschedule // A dead entry has begun its compensation: see inState.
					require.Equal(t, compensator.StateError{ID: id, IdempotencyKey: before.IdempotencyKey, State: state, Action: d.action, CompensationBegun: begun}, *refused)
					require.Equal(t, stored, w.Row(id))
					return
				}
				require.NoError(t, err)
				d.requireDone(t, before, w.Entry(c, id))
			})
		}
	}
}

func TestActionsInATransactionHappenExactlyIfItCommits(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB = db
		c := w.New(cfg)
		orders, err := compensator.Declare[harness.Order](t.Context(), c, "close_order", nil)
		require.NoError(t, err)
		for name, d := range deeds {
			if d.inTx == nil {
				continue
			}
			for _, state := range d.from {
				id := inState(w, orders, state)
				before, stored := w.Entry(c, id), w.Row(id)
				tx := w.Begin(db)
				require.NoError(t, d.inTx(t.Context(), c, tx, id), "%s %s", name, state)
				require.Equal(t, stored, w.Row(id), "nothing is visible yet")
				require.NoError(t, tx.Rollback())
				require.Equal(t, stored, w.Row(id), "%s %s, rolled back", name, state)

				w.InTx(db, func(tx *sql.Tx) { require.NoError(t, d.inTx(t.Context(), c, tx, id)) })
				d.requireDone(t, before, w.Entry(c, id))
			}
		}
	})
}

func TestRefusedActionLeavesTheTransactionUsable(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB = db
		c := w.New(cfg)
		orders, err := compensator.Declare[harness.Order](t.Context(), c, "close_order", nil)
		require.NoError(t, err)
		for name, d := range deeds {
			if d.inTx == nil {
				continue
			}
			succeeded, free := inState(w, orders, compensator.Succeeded), inState(w, orders, d.from[0])
			w.InTx(db, func(tx *sql.Tx) {
				w.WriteEffect(tx, name)
				var refused *compensator.StateError
				require.ErrorAs(t, d.inTx(t.Context(), c, tx, succeeded), &refused)
				require.ErrorIs(t, d.inTx(t.Context(), c, tx, processlog.RowID(1<<40)), compensator.ErrNotFound)
				require.NoError(t, d.inTx(t.Context(), c, tx, free))
			})
			require.Equal(t, 1, w.Count("effects WHERE what=?", name), "the business went on and committed")
			require.Equal(t, d.to(d.from[0]), w.State(free))
		}
	})
}

func TestActionsTakeAnIdempotencyKey(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	orders, err := compensator.Declare[harness.Order](t.Context(), c, "close_order", nil)
	require.NoError(t, err)
	for name, d := range deeds {
		id := inState(w, orders, d.from[0])
		key := w.Entry(c, id).IdempotencyKey
		require.NoError(t, d.alone(t.Context(), c, key), name)
		require.Equal(t, d.to(d.from[0]), w.State(id), name)
		require.ErrorIs(t, d.alone(t.Context(), c, compensator.IdempotencyKey("nobody's")), compensator.ErrNotFound)
		require.ErrorIs(t, d.alone(t.Context(), c, processlog.RowID(1<<40)), compensator.ErrNotFound)
	}
}

func TestActionsInATransactionNeedAnOpenOne(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB = db
		c := w.New(cfg)
		orders, err := compensator.Declare[harness.Order](t.Context(), c, "close_order", nil)
		require.NoError(t, err)
		id := inState(w, orders, compensator.Pending)
		stored := w.Row(id)
		ended := w.Begin(db)
		require.NoError(t, ended.Rollback())
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		for name, tx := range map[string]compensator.Tx{"a pool": db, "a connection": conn, "an ended transaction": ended} {
			require.ErrorIs(t, harness.ErrOf(c.CompleteTx(t.Context(), tx, id)), compensator.ErrNoTransaction, name)
			_, err := c.CancelTx(t.Context(), tx, id)
			require.ErrorIs(t, err, compensator.ErrNoTransaction, name)
			require.ErrorIs(t, c.RescheduleTx(t.Context(), tx, id, time.Hour), compensator.ErrNoTransaction, name)
		}
		require.Error(t, harness.ErrOf(c.CompleteTx(t.Context(), nil, id)))
		require.Equal(t, stored, w.Row(id))
	})
}

func TestActionOnALockedEntryIsBusy(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	orders, err := compensator.Declare[harness.Order](t.Context(), c, "close_order", nil)
	require.NoError(t, err)
	id := inState(w, orders, compensator.Retrying)
	release := w.LockRow(id)
	require.ErrorIs(t, harness.ErrOf(c.Complete(t.Context(), id)), compensator.ErrBusy)
	release()
	require.NoError(t, harness.ErrOf(c.Complete(t.Context(), id)))
}

func TestWhatPeopleDoIsKeptWithTheChange(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	orders, err := compensator.Declare[harness.Order](t.Context(), c, "close_order", nil)
	require.NoError(t, err)
	id := inState(w, orders, compensator.Dead)
	w.Exec("UPDATE common_process_log SET last_error='sold out' WHERE id=?", id.Row())
	require.NoError(t, admin.Of(c).Requeue(t.Context(), id, admin.RequeueOptions{AuditInfo: harness.ByMei, Delay: time.Hour}))
	require.Error(t, admin.Of(c).SettleManually(t.Context(), id, harness.ByMei), "it is pending")
	require.NoError(t, harness.ErrOf(c.Complete(t.Context(), id)), "a service's action is not a person's")
	history, err := admin.Of(c).History(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, history, 1, "what was refused is not kept")
	record := history[0]
	require.WithinDuration(t, time.Now(), record.At, harness.Timeout)
	record.At, record.Ago = time.Time{}, 0
	require.Equal(t, admin.AuditRecord{
		EntryID: id, Action: processlog.ActionRequeue, Actor: "mei", Reason: "the customer called",
		Before: admin.AuditState{State: compensator.Dead, Version: 7, Epoch: 0, ProcessCount: 3, LastError: "sold out"},
		After:  admin.AuditState{State: compensator.Pending, Version: 8, Epoch: 1, ProcessCount: 0, LastError: "sold out"},
	}, record)
}

// Failure: F54
func TestPeopleMustSayWhoTheyAreAndWhy(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	orders, err := compensator.Declare[harness.Order](t.Context(), c, "close_order", nil)
	require.NoError(t, err)
	id := inState(w, orders, compensator.Dead)
	stored := w.Row(id)
	for field, by := range map[string]admin.AuditInfo{"actor": {Reason: "because"}, "reason": {Actor: "mei"}} {
		var refused *compensator.FieldError
		require.ErrorAs(t, admin.Of(c).Requeue(t.Context(), id, admin.RequeueOptions{AuditInfo: by}), &refused)
		require.Equal(t, field, refused.Field)
		require.ErrorAs(t, admin.Of(c).SettleManually(t.Context(), id, by), &refused)
		require.Equal(t, field, refused.Field)
	}
	for _, delay := range []time.Duration{-1, 1<<63 - 1} {
		require.Error(t, admin.Of(c).Requeue(t.Context(), id, admin.RequeueOptions{AuditInfo: harness.ByMei, Delay: delay}))
		require.Error(t, c.Reschedule(t.Context(), id, delay))
	}
	require.Equal(t, stored, w.Row(id))
}
