package running

import (
	"context"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/observe"
)

// A user's function ends its goroutine with runtime.Goexit, as FailNow of a test does.
// Failure: F63
func TestFunctionThatEndsItsGoroutineStopsNothing(t *testing.T) {
	t.Parallel()
	type config = compensator.HandlerConfig[harness.Order]
	for name, set := range map[string]func(o *observe.Observer, h *config, exit func()){
		"AttemptStarted": func(o *observe.Observer, _ *config, exit func()) {
			o.AttemptStarted = func(observe.AttemptEvent) { exit() }
		},
		"AttemptEnded": func(o *observe.Observer, _ *config, exit func()) {
			o.AttemptEnded = func(observe.AttemptEvent) { exit() }
		},
		"Settled": func(o *observe.Observer, _ *config, exit func()) { o.Settled = func(observe.SettledEvent) { exit() } },
		"Reconciled": func(o *observe.Observer, _ *config, exit func()) {
			o.Reconciled = func(observe.ReconciledEvent) { exit() }
		},
		"Retry": func(_ *observe.Observer, h *config, exit func()) {
			h.Retry = func(int) time.Duration { exit(); return time.Second }
		},
		"Serial": func(_ *observe.Observer, h *config, exit func()) {
			h.Serial = func(*compensator.Entry) string { exit(); return "key" }
		},
		"Key": func(_ *observe.Observer, h *config, exit func()) {
			h.Limit = compensator.Limit{Concurrent: 5, Key: func(*compensator.Entry) string { exit(); return "key" }}
		},
		"handler": func(_ *observe.Observer, h *config, exit func()) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := compensatortest.NewMemoryStore()
				var recorded, ended atomic.Bool
				exit := func() {
					if recorded.Load() && !ended.Swap(true) {
						runtime.Goexit()
					}
				}
				cfg := compensator.Config{Store: store, Logger: slog.New(slog.DiscardHandler)}
				var typeCfg config
				set(&cfg.Observer, &typeCfg, exit)
				c, err := compensator.New(t.Context(), cfg)
				require.NoError(t, err)
				var failed atomic.Bool
				orders, err := compensator.Handle(t.Context(), c, "close_order", func(context.Context, *compensator.Entry, harness.Order) error {
					if name == "handler" {
						exit()
					}
					if !failed.Swap(true) {
						return harness.ErrSoldOut
					}
					return nil
				}, &typeCfg)
				require.NoError(t, err)
				stop := compensatortest.Run(t, c)
				for i := range 20 {
					require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
						_, err := orders.Record(ctx, tx, harness.Order{Number: i}, compensator.Options{Delay: time.Second})
						return err
					}))
				}
				recorded.Store(true)
				time.Sleep(time.Hour)
				assert.True(t, ended.Load())
				succeeded := 0
				for _, row := range store.Rows() {
					if row.State == compensator.Succeeded {
						succeeded++
					}
				}
				assert.Equal(t, 20, succeeded)
				stop()
				require.NoError(t, c.Close())
			})
		})
	}
}
