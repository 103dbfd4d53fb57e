package compensator_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
)

// modes are the ways an entry can travel; each promise below must hold on all of them.
var modes = map[string]func(t *testing.T) (*world, compensator.Config){
	"connector and redis": func(t *testing.T) (*world, compensator.Config) {
		w := newWorld(t).withRedis()
		return w, w.quick()
	},
	"connector, no redis": func(t *testing.T) (*world, compensator.Config) {
		w := newWorld(t)
		return w, w.quick()
	},
	"plain pool and redis": func(t *testing.T) (*world, compensator.Config) {
		w := newWorld(t).withRedis()
		cfg := w.quick()
		cfg.DB = w.open(plain(w.DSN))
		return w, cfg
	},
	"plain pool, no redis": func(t *testing.T) (*world, compensator.Config) {
		w := newWorld(t)
		cfg := w.quick()
		cfg.DB = w.open(plain(w.DSN))
		return w, cfg
	},
}

func inEveryMode(t *testing.T, test func(t *testing.T, w *world, cfg compensator.Config)) {
	for name, open := range modes {
		t.Run(name, func(t *testing.T) {
			w, cfg := open(t)
			test(t, w, cfg)
		})
	}
}

func TestCommittedEntryRunsAndSucceeds(t *testing.T) {
	inEveryMode(t, func(t *testing.T, w *world, cfg compensator.Config) {
		c := w.new(cfg)
		var ran calls
		orders, err := compensator.Handle(c, "close_order", func(ctx context.Context, e *compensator.Entry, o order) error {
			assert.Equal(t, 7, o.Number)
			ran.add(e.ID)
			return nil
		}, compensator.TypeConfig{})
		require.NoError(t, err)
		w.run(c)
		var receipts []*compensator.Receipt
		for range 20 {
			w.inTx(cfg.DB, func(tx *sql.Tx) {
				receipt, err := orders.Record(t.Context(), tx, order{Number: 7}, compensator.Options{})
				require.NoError(t, err)
				receipts = append(receipts, receipt)
			})
			receipts[len(receipts)-1].Committed()
		}
		w.waitAllEnded()
		for _, r := range receipts {
			require.Equal(t, compensator.Succeeded, w.state(r.ID()))
			require.Equal(t, 1, ran.of(r.ID()), "one run of entry %s", r.ID())
		}
	})
}

func TestRolledBackEntryNeverRuns(t *testing.T) {
	inEveryMode(t, func(t *testing.T, w *world, cfg compensator.Config) {
		c := w.new(cfg)
		var ran calls
		orders, err := compensator.Handle(c, "close_order", func(ctx context.Context, e *compensator.Entry, o order) error {
			ran.add(e.ID)
			return nil
		}, compensator.TypeConfig{})
		require.NoError(t, err)
		w.run(c)
		tx, err := cfg.DB.Begin()
		require.NoError(t, err)
		gone, err := orders.Record(t.Context(), tx, order{}, compensator.Options{})
		require.NoError(t, err)
		require.NoError(t, tx.Rollback())
		var kept *compensator.Receipt
		w.inTx(cfg.DB, func(tx *sql.Tx) {
			kept, err = orders.Record(t.Context(), tx, order{}, compensator.Options{})
			require.NoError(t, err)
		})
		w.waitState(kept.ID(), compensator.Succeeded)
		require.Zero(t, ran.of(gone.ID()))
	})
}

func TestFailedEntryIsRetriedUntilItSucceeds(t *testing.T) {
	inEveryMode(t, func(t *testing.T, w *world, cfg compensator.Config) {
		c := w.new(cfg)
		var ran calls
		orders, err := compensator.Handle(c, "close_order", func(ctx context.Context, e *compensator.Entry, o order) error {
			if n := ran.add(e.ID); n < 3 {
				return fmt.Errorf("try %d", n)
			}
			assert.Equal(t, 3, e.Attempt())
			assert.Equal(t, "try 2", e.LastError)
			return nil
		}, compensator.TypeConfig{Retry: compensator.Fixed(100 * time.Millisecond)})
		require.NoError(t, err)
		w.run(c)
		var r *compensator.Receipt
		w.inTx(cfg.DB, func(tx *sql.Tx) {
			r, err = orders.Record(t.Context(), tx, order{}, compensator.Options{})
			require.NoError(t, err)
		})
		w.waitState(r.ID(), compensator.Succeeded)
		require.Equal(t, 3, ran.of(r.ID()))
		require.Equal(t, 1, w.count("common_process_log WHERE process_count=2 AND version>=5"))
	})
}

func TestExhaustedEntryIsCompensated(t *testing.T) {
	inEveryMode(t, func(t *testing.T, w *world, cfg compensator.Config) {
		c := w.new(cfg)
		var ran, undone calls
		orders, err := compensator.Handle(c, "close_order", func(ctx context.Context, e *compensator.Entry, o order) error {
			ran.add(e.ID)
			return errors.New("out of stock")
		}, compensator.TypeConfig{MaxProcessCount: 2, Retry: compensator.Fixed(0),
			Compensate: func(ctx context.Context, e *compensator.Entry) error {
				if undone.add(e.ID) == 1 {
					assert.Equal(t, "out of stock", e.LastError)
					return errors.New("not yet")
				}
				return nil
			}})
		require.NoError(t, err)
		w.run(c)
		var r *compensator.Receipt
		w.inTx(cfg.DB, func(tx *sql.Tx) {
			r, err = orders.Record(t.Context(), tx, order{}, compensator.Options{})
			require.NoError(t, err)
		})
		w.waitState(r.ID(), compensator.Compensated)
		require.Equal(t, 2, ran.of(r.ID()))
		require.Equal(t, 2, undone.of(r.ID()))
	})
}

func TestDelayedEntryIsNeverEarly(t *testing.T) {
	inEveryMode(t, func(t *testing.T, w *world, cfg compensator.Config) {
		c := w.new(cfg)
		orders, err := compensator.Handle(c, "close_order", func(ctx context.Context, e *compensator.Entry, o order) error {
			var early bool
			err := w.DB.QueryRow("SELECT next_at > TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))/1000 FROM common_process_log WHERE id=?", e.ID.Row()).Scan(&early)
			if err != nil || early {
				return compensator.Permanent(fmt.Errorf("early: %v %w", early, err))
			}
			return nil
		}, compensator.TypeConfig{})
		require.NoError(t, err)
		w.run(c)
		for i := range 20 {
			w.inTx(cfg.DB, func(tx *sql.Tx) {
				r, err := orders.Record(t.Context(), tx, order{}, compensator.Options{Delay: time.Duration(20*i) * time.Millisecond})
				require.NoError(t, err)
				defer r.Committed()
			})
		}
		w.waitAllEnded()
		require.Equal(t, 20, w.count("common_process_log WHERE state=1"))
	})
}

func TestTransactionalHandlersEffectHappensExactlyOnce(t *testing.T) {
	inEveryMode(t, func(t *testing.T, w *world, cfg compensator.Config) {
		c := w.new(cfg)
		var ran calls
		orders, err := compensator.HandleTx(c, "close_order", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, o order) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES (?)", e.ID.String()); err != nil {
				return err
			}
			if ran.add(e.ID) == 1 {
				return errors.New("after the effect")
			}
			return nil
		}, compensator.TypeConfig{Retry: compensator.Fixed(0)})
		require.NoError(t, err)
		w.run(c)
		for i := range 30 {
			w.inTx(cfg.DB, func(tx *sql.Tx) {
				_, err := orders.Record(t.Context(), tx, order{Number: i}, compensator.Options{})
				require.NoError(t, err)
			})
		}
		w.waitAllEnded()
		require.Equal(t, 30, w.count("effects"))
		require.Equal(t, 30, w.count("common_process_log WHERE state=1 AND process_count=1"))
	})
}
