package compensator_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
)

// leftOpen are ways to leave a pooled session inside a transaction.
var leftOpen = map[string][]string{
	"begin":           {"BEGIN", "SELECT COUNT(*) FROM common_process_log"},
	"completion type": {"SET SESSION completion_type=1", "START TRANSACTION", "SELECT COUNT(*) FROM common_process_log", "COMMIT", "SELECT COUNT(*) FROM common_process_log"},
	"autocommit":      {"SET SESSION autocommit=0", "SELECT COUNT(*) FROM common_process_log"},
}

// spoil leaves n idle connections of the pool inside a transaction.
func (w *world) spoil(db *sql.DB, n int, statements []string) {
	w.t.Helper()
	var conns []*sql.Conn
	for range n {
		conn, err := db.Conn(w.t.Context())
		require.NoError(w.t, err)
		for _, statement := range statements {
			_, err := conn.ExecContext(w.t.Context(), statement)
			require.NoError(w.t, err, statement)
		}
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		require.NoError(w.t, conn.Close())
	}
}

func TestSessionsLeftInsideATransactionHoldNothingUp(t *testing.T) {
	for name, statements := range leftOpen {
		t.Run(name, func(t *testing.T) {
			inEveryPool(t, func(t *testing.T, w *world, db *sql.DB) {
				db.SetMaxOpenConns(5)
				db.SetMaxIdleConns(5)
				cfg := w.quick()
				cfg.DB = db
				lines := logInto(&cfg)
				c := w.new(cfg)
				effects := transactional(t, c, compensator.TypeConfig{}, func(context.Context, *compensator.ScopedTx, *compensator.Entry) error { return nil })
				plainly, _ := numbered(t, c, "close_order", compensator.TypeConfig{}, nil)
				w.spoil(db, 5, statements)
				paid := putThrough(w, w.DB, effects, 1, compensator.Options{}) // nobody tells this process
				closed := putThrough(w, w.DB, plainly, 1, compensator.Options{})
				w.run(c)
				w.waitState(closed, compensator.Succeeded)
				w.waitState(paid, compensator.Succeeded)
				require.Zero(t, w.entry(c, paid).ProcessCount)
				require.NoError(t, c.InTx(t.Context(), func(_ context.Context, tx *compensator.ScopedTx) error {
					w.effect(tx, "closure")
					return nil
				}))
				require.Equal(t, 2, w.count("effects"))
				lines.contains(w, "level=WARN", "left inside a transaction", "1568")
			})
		})
	}
}

// TestClosureOutlastsAnyNumberOfSessionsLeftInsideATransaction: package sql by itself tries three.
func TestClosureOutlastsAnyNumberOfSessionsLeftInsideATransaction(t *testing.T) {
	for name, statements := range leftOpen {
		t.Run(name, func(t *testing.T) {
			inEveryPool(t, func(t *testing.T, w *world, db *sql.DB) {
				db.SetMaxIdleConns(10)
				cfg := w.quick()
				cfg.DB = db
				c := w.new(cfg)
				w.spoil(db, 10, statements)
				require.NoError(t, c.InTx(t.Context(), func(_ context.Context, tx *compensator.ScopedTx) error {
					w.effect(tx, "closure")
					return nil
				}))
				require.Equal(t, 1, w.count("effects"))
			})
		})
	}
}

// TestHealthSeesPastASnapshotThatSomebodyLeftOpen: the session shows the log as it was before the entry came.
func TestHealthSeesPastASnapshotThatSomebodyLeftOpen(t *testing.T) {
	for name, statements := range leftOpen {
		t.Run(name, func(t *testing.T) {
			inEveryPool(t, func(t *testing.T, w *world, db *sql.DB) {
				cfg := w.quick()
				cfg.DB = db
				c := w.new(cfg)
				db.SetMaxIdleConns(3)
				w.spoil(db, 3, statements)
				w.insertDue("close_order", 1, 1)
				w.exec("UPDATE common_process_log SET next_at=next_at-60000")
				assert.GreaterOrEqual(t, c.Health(t.Context()).OldestOverdue, time.Minute)
			})
		})
	}
}

// What the library needs and does not get is told, and no more than once a minute for each cause.
func TestWhatFailsIsLoggedAndShownInHealth(t *testing.T) {
	inEveryPool(t, func(t *testing.T, w *world, db *sql.DB) {
		cfg := w.quick()
		cfg.DB = db
		lines := logInto(&cfg)
		c := w.new(cfg)
		orders, _ := numbered(t, c, "close_order", compensator.TypeConfig{}, nil)
		w.run(c)
		w.exec("RENAME TABLE common_process_log TO elsewhere")
		defer func() { _, _ = w.DB.Exec("RENAME TABLE elsewhere TO common_process_log") }()
		lines.contains(w, "level=WARN", "could not be searched", "1146")
		var trouble compensator.Trouble
		w.eventually(func() bool {
			for _, trouble = range c.Health(t.Context()).Troubles {
				if trouble.Times > 3 {
					return true
				}
			}
			return false
		}, "it has failed several times")
		assert.Contains(t, trouble.Error, "1146")
		assert.False(t, trouble.Since.IsZero())
		for len(lines) > 0 {
			line := <-lines
			assert.NotContains(t, line, "could not be searched", "one line a minute")
		}
		w.exec("RENAME TABLE elsewhere TO common_process_log")
		w.waitState(putThrough(w, w.DB, orders, 1, compensator.Options{}), compensator.Succeeded)
		w.eventually(func() bool { return len(c.Health(t.Context()).Troubles) == 0 }, "what works is no trouble any more")
	})
}

func TestWhatMakesAttemptsUnavailableIsLoggedAndShownInHealth(t *testing.T) {
	w := newWorld(t)
	cfg := w.quick()
	lines := logInto(&cfg)
	c := w.new(cfg)
	down := make(chan struct{})
	orders, err := compensator.Handle(c, "close_order", func(context.Context, *compensator.Entry, order) error {
		select {
		case <-down:
			return nil
		default:
			return compensator.Unavailable(fmt.Errorf("the bank does not answer"))
		}
	}, compensator.TypeConfig{Retry: compensator.Fixed(time.Millisecond)})
	require.NoError(t, err)
	w.run(c)
	id := put(w, orders, 1, compensator.Options{})
	lines.contains(w, "level=WARN", "close_order", "the bank does not answer")
	w.eventually(func() bool {
		troubles := c.Health(t.Context()).Troubles
		return len(troubles) == 1 && troubles[0].BusinessType == "close_order" && troubles[0].Error == "the bank does not answer"
	}, "Health says so")
	close(down)
	require.NoError(t, c.Reschedule(t.Context(), id, 0))
	w.waitState(id, compensator.Succeeded)
	w.eventually(func() bool { return len(c.Health(t.Context()).Troubles) == 0 }, "it is over")
}
