package compensatortest

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
)

// RequireRecorded returns the committed entries of a type, in the order they were recorded, and fails the
// test unless there are n of them.
//
//	store := compensatortest.NewMemoryStore()
//	c, err := compensator.New(ctx, compensator.Config{Store: store})
//	placeOrder(ctx, c, tx) // the code under test; tx from store.BeginTx
//	entries := compensatortest.RequireRecorded(t, store, "close_order", 1)
func RequireRecorded(tb testing.TB, store *MemoryStore, businessType string, n int) []compensator.Entry {
	tb.Helper()
	reader, err := compensator.New(tb.Context(), compensator.Config{Store: store, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(tb, err)
	defer func() { require.NoError(tb, reader.Close()) }()
	var entries []compensator.Entry
	for _, row := range store.Rows() {
		if row.BusinessType == businessType {
			entry, err := reader.Get(tb.Context(), row.ID)
			require.NoError(tb, err)
			entries = append(entries, *entry)
		}
	}
	require.Len(tb, entries, n, "entries of type %q", businessType)
	return entries
}

// Run runs c for the rest of the test and returns a function that stops it earlier and waits; both require
// that nothing was left undone. In a testing/synctest bubble call it before the bubble ends.
func Run(tb testing.TB, c *compensator.Compensator) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	stopped := false
	stop = func() {
		tb.Helper()
		if stopped {
			return
		}
		stopped = true
		cancel()
		require.NoError(tb, <-done, "Run")
	}
	tb.Cleanup(stop)
	return stop
}
