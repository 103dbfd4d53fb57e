package sqlitetest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/compensatortest/sqlitetest"
)

func newRefunds(c *compensator.Compensator, partner func(key, order string) (reference string, err error)) (*compensator.ResultType[string, string], error) {
	return compensator.HandleCall(context.Background(), c, "refund", func(_ context.Context, e *compensator.Entry, order string) (string, error) {
		return partner(e.CallKey(), order)
	}, func(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, order, reference string) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO refunds (order_id, reference) VALUES (?, ?)", order, reference)
		return err
	}, nil)
}

func TestRefundIsWrittenOnceAlthoughThePartnerIsCalledTwice(t *testing.T) {
	t.Parallel()
	c, db := sqlitetest.New(t)
	_, err := db.Exec("CREATE TABLE refunds (order_id TEXT PRIMARY KEY, reference TEXT NOT NULL)")
	require.NoError(t, err)
	var keys []string
	down := errors.New("no answer")
	refunds, err := newRefunds(c, func(key, order string) (string, error) {
		keys = append(keys, key)
		return "R-" + order, down
	})
	require.NoError(t, err)

	entry := compensatortest.Call(t, c, refunds.Type, "42", compensator.Options{})
	assert.Equal(t, compensator.Retrying, entry.State)
	assert.Equal(t, "no answer", entry.LastError)
	assert.Zero(t, read[int](t, db, "SELECT COUNT(*) FROM refunds"), "the second function did not run")

	down = nil
	compensatortest.Elapse(t, c, time.Hour)
	entry = compensatortest.Attempt(t, c, entry.ID)
	assert.Equal(t, compensator.Succeeded, entry.State, entry.LastError)
	assert.Equal(t, []string{entry.CallKey(), entry.CallKey()}, keys, "the partner can recognise the repeated call")
	assert.Equal(t, "R-42", read[string](t, db, "SELECT reference FROM refunds"))
	result, err := refunds.Result(t.Context(), entry.ID)
	require.NoError(t, err)
	assert.Equal(t, "R-42", result)
}

func TestRefundThatCannotBeWrittenHasNoResult(t *testing.T) {
	t.Parallel()
	c, db := sqlitetest.New(t)
	_, err := db.Exec("CREATE TABLE refunds (order_id TEXT PRIMARY KEY, reference TEXT NOT NULL); INSERT INTO refunds VALUES ('42', 'R-before')")
	require.NoError(t, err)
	refunds, err := newRefunds(c, func(_, order string) (string, error) { return "R-" + order, nil })
	require.NoError(t, err)
	entry := compensatortest.Call(t, c, refunds.Type, "42", compensator.Options{})
	assert.Equal(t, compensator.Retrying, entry.State)
	assert.Equal(t, "R-before", read[string](t, db, "SELECT reference FROM refunds"))
	var state *compensator.StateError
	_, err = refunds.Result(t.Context(), entry.ID)
	require.ErrorAs(t, err, &state)
}

func TestCallerGetsTheResult(t *testing.T) {
	t.Parallel()
	c, db := sqlitetest.New(t)
	_, err := db.Exec("CREATE TABLE refunds (order_id TEXT PRIMARY KEY, reference TEXT NOT NULL)")
	require.NoError(t, err)
	refunds, err := newRefunds(c, func(_, order string) (string, error) { return "R-" + order, nil })
	require.NoError(t, err)
	compensatortest.Run(t, c)
	require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := refunds.Record(ctx, tx, "42", compensator.Options{IdempotencyKey: "refund-42"})
		return err
	}))
	_, result, err := refunds.Wait(t.Context(), compensator.IdempotencyKey("refund-42"))
	require.NoError(t, err)
	assert.Equal(t, "R-42", result)
}
