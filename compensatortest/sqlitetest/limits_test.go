package sqlitetest_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/compensatortest/sqlitetest"
)

func newCharges(c *compensator.Compensator, partner func(order string) error) (*compensator.Type[string], error) {
	limit := compensator.Limit{
		Rate: compensator.Rate{Starts: 2, Per: time.Hour}, Burst: 2,
		Key: func(e *compensator.Entry) string { return e.UserID },
	}
	return compensator.Handle(context.Background(), c, "charge", func(_ context.Context, _ *compensator.Entry, order string) error {
		return partner(order)
	}, &compensator.HandlerConfig[string]{TypeConfig: compensator.TypeConfig{Limit: limit}})
}

func TestPartnerIsCalledTwiceAnHourForEachCustomer(t *testing.T) {
	t.Parallel()
	c, _ := sqlitetest.New(t)
	var calls atomic.Int64
	charges, err := newCharges(c, func(string) error { calls.Add(1); return nil })
	require.NoError(t, err)
	require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		for _, customer := range []string{"ann", "ann", "ann", "bob"} {
			if _, err := charges.Record(ctx, tx, "42", compensator.Options{UserID: customer}); err != nil {
				return err
			}
		}
		return nil
	}))

	compensatortest.Run(t, c)
	require.Eventually(t, func() bool {
		limited := c.Health(t.Context()).Limited
		return calls.Load() == 3 && len(limited) == 1 && limited[0].Waiting == 1
	}, time.Minute, 5*time.Millisecond)
	waiting := c.Health(t.Context()).Limited[0]
	assert.Equal(t, "charge", waiting.BusinessType)
	assert.True(t, waiting.NextAt.After(time.Now().Add(20*time.Minute)), "the third charge of ann waits")
}
