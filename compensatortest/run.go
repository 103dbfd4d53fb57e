package compensatortest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/testkit"
)

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

// Call records v and makes one attempt of it: the type's handler runs with its middleware, its timeout and, if it is
// transactional, in a transaction that commits with its success. It returns the entry as the attempt has left it: State,
// LastError, ProcessCount and NextAt are the outcome. Nothing else runs, not even what the handler records. c must have
// the type's handler, and not be inside Run. opts must leave the entry due at once, and its idempotency key be new. Of an entry
// that are blocked (TypeConfig.Serial) nothing runs: the test fails, and is told which entry is in front.
//
//	entry := compensatortest.Call(t, c, closeOrder, Order{ID: 42}, compensator.Options{})
//	require.Equal(t, compensator.Succeeded, entry.State, entry.LastError)
func Call[T any](tb testing.TB, c *compensator.Compensator, typ *compensator.Type[T], v T, opts compensator.Options) compensator.Entry {
	tb.Helper()
	opts.FailOnDuplicate = true
	var receipt *compensator.Receipt
	require.NoError(tb, c.InTx(tb.Context(), func(ctx context.Context, tx *compensator.ScopedTx) (err error) {
		receipt, err = typ.Record(ctx, tx, v, opts)
		return err
	}))
	return Attempt(tb, c, receipt.ID())
}

// Attempt makes one attempt of an entry that is due, also of one that is compensated next, and returns it as Call does,
// under the same conditions.
func Attempt(tb testing.TB, c *compensator.Compensator, ref compensator.Ref) compensator.Entry {
	tb.Helper()
	entry, err := c.Get(tb.Context(), ref)
	require.NoError(tb, err)
	require.NoError(tb, testkit.Attempt(tb.Context(), c, entry.ID), "attempt of %s, entry %v; Elapse makes due what waits", entry.BusinessType, entry.ID)
	entry, err = c.Get(tb.Context(), entry.ID)
	require.NoError(tb, err)
	return *entry
}
