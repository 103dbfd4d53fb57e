package compensatortest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/testkit"
)

// Run runs c until the test ends. The function stop ends c earlier and waits until c has stopped. In a testing/synctest
// bubble, call stop before the bubble ends. The test fails if c.Run returns an error.
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

// Call records v and makes one attempt of the entry. The type's handler runs with its middleware and its timeout. A
// transactional handler runs in a transaction that commits when the handler succeeds. Call returns the entry after the
// attempt.
//
// No other entry runs, not even an entry that the handler records.
//
// c must have the type's handler and must not be inside Run. opts must leave the entry due at once, with an idempotency
// key that is not in the log. If an earlier entry of the same ordering key blocks the entry (TypeConfig.Serial), Call
// runs nothing and fails the test. If the type has a TypeConfig.Limit that allows no start now, Call fails the test,
// too.
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

// Attempt makes one attempt of an entry that is due. The attempt may be a compensation. Attempt returns the entry as
// Call does. The conditions of Call apply to Attempt too.
func Attempt(tb testing.TB, c *compensator.Compensator, ref compensator.Ref) compensator.Entry {
	tb.Helper()
	entry, err := c.Get(tb.Context(), ref)
	require.NoError(tb, err)
	require.NoError(tb, testkit.Attempt(tb.Context(), c, entry.ID), "attempt of %s, entry %v. If the entry waits for its due time, call Elapse first", entry.BusinessType, entry.ID)
	entry, err = c.Get(tb.Context(), entry.ID)
	require.NoError(tb, err)
	return *entry
}
