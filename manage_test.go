package compensator_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// byMei is a person.
var byMei = compensator.ByHand{Actor: "mei", Reason: "the customer called"}

// deed is an action of a service or a person, alone and, if there is such, in the caller's transaction.
type deed struct {
	action compensator.Action
	from   []compensator.State
	to     func(before compensator.State) compensator.State
	epochs uint32
	counts bool // keeps process and compensate count
	alone  func(ctx context.Context, c *compensator.Compensator, ref compensator.Ref) error
	inTx   func(ctx context.Context, c *compensator.Compensator, tx *sql.Tx, ref compensator.Ref) error
}

func always(s compensator.State) func(compensator.State) compensator.State {
	return func(compensator.State) compensator.State { return s }
}

// deeds are the contract's lines for services and people.
var deeds = map[string]deed{
	"complete": {compensator.ActionComplete, []compensator.State{compensator.Pending, compensator.Retrying}, always(compensator.Succeeded), 0, true,
		func(ctx context.Context, c *compensator.Compensator, ref compensator.Ref) error {
			return c.Complete(ctx, ref)
		},
		func(ctx context.Context, c *compensator.Compensator, tx *sql.Tx, ref compensator.Ref) error {
			return c.CompleteTx(ctx, tx, ref)
		}},
	"cancel": {compensator.ActionCancel, []compensator.State{compensator.Pending, compensator.Retrying}, always(compensator.Cancelled), 0, true,
		func(ctx context.Context, c *compensator.Compensator, ref compensator.Ref) error {
			_, err := c.Cancel(ctx, ref)
			return err
		},
		func(ctx context.Context, c *compensator.Compensator, tx *sql.Tx, ref compensator.Ref) error {
			_, err := c.CancelTx(ctx, tx, ref)
			return err
		}},
	"reschedule": {compensator.ActionReschedule, []compensator.State{compensator.Pending, compensator.Retrying},
		func(before compensator.State) compensator.State { return before }, 0, true,
		func(ctx context.Context, c *compensator.Compensator, ref compensator.Ref) error {
			return c.Reschedule(ctx, ref, 2*time.Hour)
		},
		func(ctx context.Context, c *compensator.Compensator, tx *sql.Tx, ref compensator.Ref) error {
			return c.RescheduleTx(ctx, tx, ref, 2*time.Hour)
		}},
	"requeue": {compensator.ActionRequeue,
		[]compensator.State{compensator.Dead, compensator.Succeeded, compensator.Compensated, compensator.Cancelled, compensator.SettledByHand, compensator.Retrying},
		always(compensator.Pending), 1, false,
		func(ctx context.Context, c *compensator.Compensator, ref compensator.Ref) error {
			return c.Requeue(ctx, ref, compensator.RequeueOptions{ByHand: byMei, Delay: 2 * time.Hour})
		}, nil},
	"requeue to compensate": {compensator.ActionRequeue,
		[]compensator.State{compensator.Dead, compensator.Succeeded, compensator.Compensated, compensator.Cancelled, compensator.SettledByHand, compensator.Retrying},
		always(compensator.Compensating), 1, false,
		func(ctx context.Context, c *compensator.Compensator, ref compensator.Ref) error {
			return c.Requeue(ctx, ref, compensator.RequeueOptions{ByHand: byMei, Delay: 2 * time.Hour, Compensate: true})
		}, nil},
	"settle by hand": {compensator.ActionSettleByHand, []compensator.State{compensator.Dead, compensator.Retrying, compensator.Compensating},
		always(compensator.SettledByHand), 1, true,
		func(ctx context.Context, c *compensator.Compensator, ref compensator.Ref) error {
			return c.SettleByHand(ctx, ref, byMei)
		}, nil},
}

// inState records an entry and puts it into a state with a history that state can have.
func inState(w *world, orders *compensator.Type[order], state compensator.State) compensator.EntryID {
	w.t.Helper()
	id := put(w, orders, 1, compensator.Options{Delay: time.Hour})
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
	case compensator.Cancelled, compensator.SettledByHand:
		endedBy = "person"
	}
	w.exec("UPDATE common_process_log SET state=?, process_count=?, compensate_count=?, ended_by=?, version=7 WHERE id=?", int64(state), failures, undone, endedBy, id.Row())
	return id
}

// row is all that is stored of an entry.
func (w *world) row(id compensator.EntryID) string {
	w.t.Helper()
	var s string
	require.NoError(w.t, w.DB.QueryRow("SELECT CONCAT_WS('/', state, version, epoch, process_count, compensate_count, delivery_count, next_at, lease_until, "+
		"ended_by, HEX(token), last_error) FROM common_process_log WHERE id=?", id.Row()).Scan(&s))
	return s
}

// requireDone requires that d was done to an entry in state before.
func (d deed) requireDone(t *testing.T, before, after *compensator.Entry) {
	t.Helper()
	require.Equal(t, d.to(before.State), after.State)
	require.Equal(t, before.Version+1, after.Version)
	require.Equal(t, before.Epoch+d.epochs, after.Epoch)
	require.Equal(t, d.epochs == 0, before.Key() == after.Key(), "a new generation has a new key")
	require.Zero(t, after.DeliveryCount)
	require.Equal(t, after.State.Terminal(), after.EndedBy != "")
	if d.counts {
		require.Equal(t, [2]int{before.ProcessCount, before.CompensateCount}, [2]int{after.ProcessCount, after.CompensateCount})
	} else {
		require.Zero(t, after.ProcessCount+after.CompensateCount)
	}
}

func TestActionsFollowTheContract(t *testing.T) {
	w := newWorld(t)
	c := w.new(w.quick())
	orders, err := compensator.Declare[order](c, "close_order", compensator.TypeConfig{})
	require.NoError(t, err)
	for name, d := range deeds {
		for _, state := range compensator.States {
			t.Run(fmt.Sprintf("%s/%s", name, state), func(t *testing.T) {
				id := inState(w, orders, state)
				before, stored := w.entry(c, id), w.row(id)
				err := d.alone(t.Context(), c, id)
				if !slices.Contains(d.from, state) {
					var refused *compensator.StateError
					require.ErrorAs(t, err, &refused)
					require.Equal(t, compensator.StateError{ID: id, State: state, Action: d.action}, *refused)
					require.Equal(t, stored, w.row(id))
					return
				}
				require.NoError(t, err)
				d.requireDone(t, before, w.entry(c, id))
			})
		}
	}
}

func TestActionsInATransactionHappenExactlyIfItCommits(t *testing.T) {
	inEveryPool(t, func(t *testing.T, w *world, db *sql.DB) {
		cfg := w.quick()
		cfg.DB = db
		c := w.new(cfg)
		orders, err := compensator.Declare[order](c, "close_order", compensator.TypeConfig{})
		require.NoError(t, err)
		for name, d := range deeds {
			if d.inTx == nil {
				continue
			}
			for _, state := range d.from {
				id := inState(w, orders, state)
				before, stored := w.entry(c, id), w.row(id)
				tx := w.begin(db)
				require.NoError(t, d.inTx(t.Context(), c, tx, id), "%s %s", name, state)
				require.Equal(t, stored, w.row(id), "nothing is visible yet")
				require.NoError(t, tx.Rollback())
				require.Equal(t, stored, w.row(id), "%s %s, rolled back", name, state)

				w.inTx(db, func(tx *sql.Tx) { require.NoError(t, d.inTx(t.Context(), c, tx, id)) })
				d.requireDone(t, before, w.entry(c, id))
			}
		}
	})
}

func TestRefusedActionLeavesTheTransactionUsable(t *testing.T) {
	inEveryPool(t, func(t *testing.T, w *world, db *sql.DB) {
		cfg := w.quick()
		cfg.DB = db
		c := w.new(cfg)
		orders, err := compensator.Declare[order](c, "close_order", compensator.TypeConfig{})
		require.NoError(t, err)
		for name, d := range deeds {
			if d.inTx == nil {
				continue
			}
			succeeded, free := inState(w, orders, compensator.Succeeded), inState(w, orders, compensator.Pending)
			w.inTx(db, func(tx *sql.Tx) {
				w.effect(tx, name)
				var refused *compensator.StateError
				require.ErrorAs(t, d.inTx(t.Context(), c, tx, succeeded), &refused)
				require.ErrorIs(t, d.inTx(t.Context(), c, tx, processlog.RowID(1<<40)), compensator.ErrNotFound)
				require.NoError(t, d.inTx(t.Context(), c, tx, free))
			})
			require.Equal(t, 1, w.count("effects WHERE what=?", name), "the business went on and committed")
			require.Equal(t, d.to(compensator.Pending), w.state(free))
		}
	})
}

func TestActionsTakeAnIdempotentID(t *testing.T) {
	w := newWorld(t)
	c := w.new(w.quick())
	orders, err := compensator.Declare[order](c, "close_order", compensator.TypeConfig{})
	require.NoError(t, err)
	for name, d := range deeds {
		id := inState(w, orders, d.from[0])
		key := compensator.IdempotentID(w.entry(c, id).IdempotentID)
		require.NoError(t, d.alone(t.Context(), c, key), name)
		require.Equal(t, d.to(d.from[0]), w.state(id), name)
		require.ErrorIs(t, d.alone(t.Context(), c, compensator.IdempotentID("nobody's")), compensator.ErrNotFound)
		require.ErrorIs(t, d.alone(t.Context(), c, processlog.RowID(1<<40)), compensator.ErrNotFound)
	}
}

func TestActionsInATransactionNeedAnOpenOne(t *testing.T) {
	inEveryPool(t, func(t *testing.T, w *world, db *sql.DB) {
		cfg := w.quick()
		cfg.DB = db
		c := w.new(cfg)
		orders, err := compensator.Declare[order](c, "close_order", compensator.TypeConfig{})
		require.NoError(t, err)
		id := inState(w, orders, compensator.Pending)
		stored := w.row(id)
		ended := w.begin(db)
		require.NoError(t, ended.Rollback())
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		for name, tx := range map[string]compensator.Tx{"a pool": db, "a connection": conn, "an ended transaction": ended} {
			require.ErrorIs(t, c.CompleteTx(t.Context(), tx, id), compensator.ErrNoTransaction, name)
			_, err := c.CancelTx(t.Context(), tx, id)
			require.ErrorIs(t, err, compensator.ErrNoTransaction, name)
			require.ErrorIs(t, c.RescheduleTx(t.Context(), tx, id, time.Hour), compensator.ErrNoTransaction, name)
		}
		require.Error(t, c.CompleteTx(t.Context(), nil, id))
		require.Equal(t, stored, w.row(id))
	})
}

func TestActionOnALockedEntryIsBusy(t *testing.T) {
	w := newWorld(t)
	c := w.new(w.quick())
	orders, err := compensator.Declare[order](c, "close_order", compensator.TypeConfig{})
	require.NoError(t, err)
	id := inState(w, orders, compensator.Retrying)
	release := w.lockRow(id)
	require.ErrorIs(t, c.Complete(t.Context(), id), compensator.ErrBusy)
	release()
	require.NoError(t, c.Complete(t.Context(), id))
}

func TestWhatPeopleDoIsKeptWithTheChange(t *testing.T) {
	w := newWorld(t)
	c := w.new(w.quick())
	orders, err := compensator.Declare[order](c, "close_order", compensator.TypeConfig{})
	require.NoError(t, err)
	id := inState(w, orders, compensator.Dead)
	w.exec("UPDATE common_process_log SET last_error='sold out' WHERE id=?", id.Row())
	require.NoError(t, c.Requeue(t.Context(), id, compensator.RequeueOptions{ByHand: byMei, Delay: time.Hour}))
	require.Error(t, c.SettleByHand(t.Context(), id, byMei), "it is pending")
	require.NoError(t, c.Complete(t.Context(), id), "a service's action is not a person's")
	history, err := c.History(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, history, 1, "what was refused is not kept")
	record := history[0]
	require.WithinDuration(t, time.Now(), record.At, patience)
	record.At, record.Ago = time.Time{}, 0
	require.Equal(t, compensator.AuditRecord{
		EntryID: id, Action: compensator.ActionRequeue, Actor: "mei", Reason: "the customer called",
		Before: compensator.AuditState{State: compensator.Dead, Version: 7, Epoch: 0, ProcessCount: 3, LastError: "sold out"},
		After:  compensator.AuditState{State: compensator.Pending, Version: 8, Epoch: 1, ProcessCount: 0, LastError: "sold out"},
	}, record)
}

func TestPeopleMustSayWhoTheyAreAndWhy(t *testing.T) {
	w := newWorld(t)
	c := w.new(w.quick())
	orders, err := compensator.Declare[order](c, "close_order", compensator.TypeConfig{})
	require.NoError(t, err)
	id := inState(w, orders, compensator.Dead)
	stored := w.row(id)
	for field, by := range map[string]compensator.ByHand{"actor": {Reason: "because"}, "reason": {Actor: "mei"}} {
		var refused *compensator.FieldError
		require.ErrorAs(t, c.Requeue(t.Context(), id, compensator.RequeueOptions{ByHand: by}), &refused)
		require.Equal(t, field, refused.Field)
		require.ErrorAs(t, c.SettleByHand(t.Context(), id, by), &refused)
		require.Equal(t, field, refused.Field)
	}
	for _, delay := range []time.Duration{-1, 1<<63 - 1} {
		require.Error(t, c.Requeue(t.Context(), id, compensator.RequeueOptions{ByHand: byMei, Delay: delay}))
		require.Error(t, c.Reschedule(t.Context(), id, delay))
	}
	require.Equal(t, stored, w.row(id))
}
