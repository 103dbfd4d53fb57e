package compensator_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/internal/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

func TestCommittedEntryRunsAndSucceeds(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		var ran harness.Calls
		orders, err := compensator.Handle(t.Context(), c, "close_order", func(ctx context.Context, e *compensator.Entry, o harness.Order) error {
			assert.Equal(t, 7, o.Number)
			ran.Add(e.ID)
			return nil
		}, nil)
		require.NoError(t, err)
		w.Run(c)
		var receipts []*compensator.Receipt
		for range 20 {
			w.InTx(cfg.DB, func(tx *sql.Tx) {
				receipt, err := orders.Record(t.Context(), tx, harness.Order{Number: 7}, compensator.Options{})
				require.NoError(t, err)
				receipts = append(receipts, receipt)
			})
			receipts[len(receipts)-1].Committed()
		}
		w.WaitAllEnded()
		for _, r := range receipts {
			require.Equal(t, compensator.Succeeded, w.State(r.ID()))
			require.Equal(t, 1, ran.Of(r.ID()), "one run of entry %s", r.ID())
		}
	})
}

func TestRolledBackEntryNeverRuns(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		var ran harness.Calls
		orders, err := compensator.Handle(t.Context(), c, "close_order", func(ctx context.Context, e *compensator.Entry, o harness.Order) error {
			ran.Add(e.ID)
			return nil
		}, nil)
		require.NoError(t, err)
		w.Run(c)
		tx, err := cfg.DB.Begin()
		require.NoError(t, err)
		gone, err := orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{})
		require.NoError(t, err)
		require.NoError(t, tx.Rollback())
		var kept *compensator.Receipt
		w.InTx(cfg.DB, func(tx *sql.Tx) {
			kept, err = orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{})
			require.NoError(t, err)
		})
		w.WaitState(kept.ID(), compensator.Succeeded)
		require.Zero(t, ran.Of(gone.ID()))
	})
}

// Failure: F33
func TestFailedEntryIsRetriedUntilItSucceeds(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		var ran harness.Calls
		orders, err := compensator.Handle(t.Context(), c, "close_order", func(ctx context.Context, e *compensator.Entry, o harness.Order) error {
			if n := ran.Add(e.ID); n < 3 {
				return fmt.Errorf("try %d", n)
			}
			assert.Equal(t, 3, e.Attempt())
			assert.Equal(t, "try 2", e.LastError)
			return nil
		}, &compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(100 * time.Millisecond)})
		require.NoError(t, err)
		w.Run(c)
		var r *compensator.Receipt
		w.InTx(cfg.DB, func(tx *sql.Tx) {
			r, err = orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{})
			require.NoError(t, err)
		})
		w.WaitState(r.ID(), compensator.Succeeded)
		require.Equal(t, 3, ran.Of(r.ID()))
		require.Equal(t, 1, w.Count("common_process_log WHERE process_count=2 AND version>=5"))
	})
}

// Failure: F33
func TestExhaustedEntryIsCompensated(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		var ran, undone harness.Calls
		orders, err := compensator.Handle(t.Context(), c, "close_order", func(ctx context.Context, e *compensator.Entry, o harness.Order) error {
			ran.Add(e.ID)
			return errors.New("out of stock")
		}, &compensator.HandlerConfig[harness.Order]{MaxAttempts: 2, Retry: compensator.Fixed(0),
			Compensate: func(ctx context.Context, e *compensator.Entry, _ harness.Order) error {
				if undone.Add(e.ID) == 1 {
					assert.Equal(t, "out of stock", e.LastError)
					return errors.New("not yet")
				}
				return nil
			}})
		require.NoError(t, err)
		w.Run(c)
		var r *compensator.Receipt
		w.InTx(cfg.DB, func(tx *sql.Tx) {
			r, err = orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{})
			require.NoError(t, err)
		})
		w.WaitState(r.ID(), compensator.Compensated)
		require.Equal(t, 2, ran.Of(r.ID()))
		require.Equal(t, 2, undone.Of(r.ID()))
	})
}

func TestDelayedEntryIsNeverEarly(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		orders, err := compensator.Handle(t.Context(), c, "close_order", func(ctx context.Context, e *compensator.Entry, o harness.Order) error {
			var early bool
			err := w.DB.QueryRow("SELECT next_at > TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))/1000 FROM common_process_log WHERE id=?", e.ID.Row()).Scan(&early)
			if err != nil || early {
				return compensator.Permanent(fmt.Errorf("early: %v %w", early, err))
			}
			return nil
		}, nil)
		require.NoError(t, err)
		w.Run(c)
		for i := range 20 {
			w.InTx(cfg.DB, func(tx *sql.Tx) {
				r, err := orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{Delay: time.Duration(20*i) * time.Millisecond})
				require.NoError(t, err)
				defer r.Committed()
			})
		}
		w.WaitAllEnded()
		require.Equal(t, 20, w.Count("common_process_log WHERE state=1"))
	})
}

// Failure: F8
func TestTransactionalHandlersEffectHappensExactlyOnce(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		var ran harness.Calls
		orders, err := compensator.HandleTx(t.Context(), c, "close_order", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, o harness.Order) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES (?)", e.ID.String()); err != nil {
				return err
			}
			if ran.Add(e.ID) == 1 {
				return errors.New("after the effect")
			}
			return nil
		}, &compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(0)})
		require.NoError(t, err)
		w.Run(c)
		for i := range 30 {
			w.InTx(cfg.DB, func(tx *sql.Tx) {
				_, err := orders.Record(t.Context(), tx, harness.Order{Number: i}, compensator.Options{})
				require.NoError(t, err)
			})
		}
		w.WaitAllEnded()
		require.Equal(t, 30, w.Count("effects"))
		require.Equal(t, 30, w.Count("common_process_log WHERE state=1 AND process_count=1"))
	})
}

func TestNameOfTheLogStandsInEachOfItsLines(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"stock": " log=stock", "": ""} {
		var lines bytes.Buffer
		c, err := compensator.New(t.Context(), compensator.Config{Name: name, Store: compensatortest.NewMemoryStore(), Logger: slog.New(slog.NewTextHandler(&lines, nil))})
		require.NoError(t, err)
		require.Equal(t, name, c.Name())
		for _, content := range []string{"1", "2"} { // The second content is reported, and not stored.
			require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
				_, err := c.Record(ctx, tx, compensator.NewEntry{BusinessType: "mail", Content: []byte(content), Options: compensator.Options{IdempotencyKey: "mail-42"}})
				return err
			}))
		}
		require.NoError(t, c.Close())
		require.Regexp(t, `other content.*"`+want+` type=mail`, lines.String())
	}
}
