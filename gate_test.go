package compensator_test

import (
	"context"
	"database/sql"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
)

// gate holds handlers up until a test opens it.
type gate struct {
	entered chan compensator.EntryID
	opened  chan struct{}
}

func newGate() *gate {
	return &gate{entered: make(chan compensator.EntryID, 20_000), opened: make(chan struct{})}
}

// pass tells that a handler is here and waits until the gate is open. It returns early, with its context's
// cause, when the handler is told to stop.
func (g *gate) pass(ctx context.Context, e *compensator.Entry) error {
	g.entered <- e.ID
	select {
	case <-g.opened:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// passDeaf is pass for a handler that does not listen to its context.
func (g *gate) passDeaf(e *compensator.Entry) error {
	g.entered <- e.ID
	<-g.opened
	return nil
}

func (g *gate) open() { close(g.opened) }

// openAtEnd opens the gate when the test ends, so that deaf handlers do not outlive it.
func (g *gate) openAtEnd(t *testing.T) {
	t.Cleanup(func() {
		select {
		case <-g.opened:
		default:
			g.open()
		}
	})
}

// await waits for the next handler at the gate.
func (g *gate) await(t *testing.T) compensator.EntryID {
	t.Helper()
	return next(t, g.entered)
}

// next waits for what comes through a channel.
func next[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case v := <-from:
		return v
	case <-timer.C:
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}

// held registers a type whose handlers wait at a gate and then return what verdict says; nil: success.
func held(t *testing.T, c *compensator.Compensator, name string, cfg compensator.TypeConfig, verdict func(e *compensator.Entry) error) (*compensator.Type[order], *gate) {
	t.Helper()
	g := newGate()
	orders, err := compensator.Handle(c, name, func(ctx context.Context, e *compensator.Entry, _ order) error {
		if err := g.pass(ctx, e); err != nil || verdict == nil {
			return err
		}
		return verdict(e)
	}, cfg)
	require.NoError(t, err)
	return orders, g
}

// put records one entry in a transaction of its own, and says that it has committed.
func put(w *world, orders *compensator.Type[order], number int, opts compensator.Options) compensator.EntryID {
	w.t.Helper()
	return putThrough(w, w.DB, orders, number, opts)
}

func putThrough(w *world, db *sql.DB, orders *compensator.Type[order], number int, opts compensator.Options) compensator.EntryID {
	w.t.Helper()
	var receipt *compensator.Receipt
	w.inTx(db, func(tx *sql.Tx) {
		var err error
		receipt, err = orders.Record(w.t.Context(), tx, order{Number: number}, opts)
		require.NoError(w.t, err)
	})
	receipt.Committed()
	return receipt.ID()
}

// putMany records n entries in one transaction, numbered from 0, also as their business ids.
func putMany(w *world, c *compensator.Compensator, orders *compensator.Type[order], n int, opts compensator.Options) {
	w.t.Helper()
	entries := make([]compensator.NewEntry, n)
	for i := range entries {
		var err error
		opts.BusinessID = strconv.Itoa(i)
		entries[i], err = orders.Entry(order{Number: i}, opts)
		require.NoError(w.t, err)
	}
	var receipt *compensator.Receipt
	w.inTx(w.DB, func(tx *sql.Tx) {
		var err error
		receipt, err = c.Record(w.t.Context(), tx, entries...)
		require.NoError(w.t, err)
	})
	receipt.Committed()
}

// entry reads an entry through c.
func (w *world) entry(c *compensator.Compensator, id compensator.EntryID) *compensator.Entry {
	w.t.Helper()
	e, err := c.Get(w.t.Context(), id)
	require.NoError(w.t, err)
	return e
}

// inOppositeModes is inEveryMode for heavier tests: with all the help there is, and with none.
func inOppositeModes(t *testing.T, test func(t *testing.T, w *world, cfg compensator.Config)) {
	for _, name := range []string{"connector and redis", "plain pool, no redis"} {
		t.Run(name, func(t *testing.T) {
			w, cfg := modes[name](t)
			test(t, w, cfg)
		})
	}
}
