package sqlitetest_test

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/compensatortest/sqlitetest"
)

// The function open returns a shop with one piece in stock and the number of mails that the shop has sent.
func open(t *testing.T) (s *shop, mails *atomic.Int32) {
	t.Helper()
	c, db := sqlitetest.New(t)
	_, err := db.Exec(tables)
	require.NoError(t, err)
	mails = new(atomic.Int32)
	s, err = newShop(c, db, func(string) error { mails.Add(1); return nil })
	require.NoError(t, err)
	return s, mails
}

func read[T any](t *testing.T, db *sql.DB, query string) (v T) {
	t.Helper()
	require.NoError(t, db.QueryRow(query).Scan(&v))
	return v
}

func TestOrderIsToBeClosedInHalfAnHour(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	require.NoError(t, s.order(t.Context(), "42"))
	entry := compensatortest.RequireRecorded(t, s.c, "close_order", 1)[0]
	assert.Equal(t, compensator.IdempotencyKey("close-42"), entry.IdempotencyKey)
	assert.WithinDuration(t, entry.CreatedAt.Add(closeAfter), entry.NextAt, time.Second)

	require.ErrorContains(t, s.order(t.Context(), "43"), "sold out")
	compensatortest.RequireRecorded(t, s.c, "close_order", 1) // the rolled-back order has no entry
}

func TestClosingGivesTheStockBack(t *testing.T) {
	t.Parallel()
	s, mails := open(t)
	require.NoError(t, s.order(t.Context(), "42"))
	entry := compensatortest.Call(t, s.c, s.close, "42", compensator.Options{})
	assert.Equal(t, compensator.Succeeded, entry.State, entry.LastError)
	assert.Equal(t, 1, read[int](t, s.db, "SELECT n FROM stock"))
	compensatortest.RequireRecorded(t, s.c, "tell_buyer", 1) // the handler recorded it in its transaction
	assert.Zero(t, mails.Load(), "Call does not run the entry that the handler recorded")

	again := compensatortest.Call(t, s.c, s.close, "42", compensator.Options{})
	assert.Equal(t, compensator.Dead, again.State)
	assert.Equal(t, "order 42 is not open", again.LastError)
	assert.Equal(t, 1, read[int](t, s.db, "SELECT n FROM stock"), "the failed handler's transaction was rolled back")
}

// Elapse skips the half hour of delay.
func TestUnpaidOrderIsClosedAndItsBuyerTold(t *testing.T) {
	t.Parallel()
	s, mails := open(t)
	compensatortest.Run(t, s.c)
	require.NoError(t, s.order(t.Context(), "42"))
	compensatortest.WaitIdle(t, s.c)
	assert.Equal(t, "open", read[string](t, s.db, "SELECT state FROM orders"))

	compensatortest.Elapse(t, s.c, closeAfter)
	compensatortest.WaitIdle(t, s.c)
	assert.Equal(t, "closed", read[string](t, s.db, "SELECT state FROM orders"))
	assert.EqualValues(t, 1, mails.Load())
	require.Error(t, s.pay(t.Context(), "42"), "too late")
}

func TestPaidOrderStaysPaid(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	compensatortest.Run(t, s.c)
	require.NoError(t, s.order(t.Context(), "42"))
	require.NoError(t, s.pay(t.Context(), "42"))
	compensatortest.Elapse(t, s.c, closeAfter)
	compensatortest.WaitIdle(t, s.c)
	assert.Equal(t, "paid", read[string](t, s.db, "SELECT state FROM orders"))
	assert.Equal(t, compensator.Cancelled, compensatortest.RequireRecorded(t, s.c, "close_order", 1)[0].State)
}

func TestBuyerWhomNoMailReachesGetsALetter(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	s.mail = func(string) error { return errors.New("no such address") }
	entry := compensatortest.Call(t, s.c, s.tell, "42", compensator.Options{})
	require.Equal(t, compensator.Retrying, entry.State)
	assert.Equal(t, "no such address", entry.LastError)

	compensatortest.Elapse(t, s.c, entry.NextAt.Sub(entry.UpdatedAt))
	entry = compensatortest.Attempt(t, s.c, entry.ID)
	require.Equal(t, compensator.Compensating, entry.State)
	entry = compensatortest.Attempt(t, s.c, entry.ID)
	require.Equal(t, compensator.Compensated, entry.State, entry.LastError)
	assert.Equal(t, 1, read[int](t, s.db, "SELECT COUNT(*) FROM letters"))
}

func ExampleNew() {
	testPayment := func(t *testing.T) { // your test: func TestPayment(t *testing.T)
		c, db := sqlitetest.New(t)
		_, err := db.Exec("CREATE TABLE payments (amount INTEGER)")
		require.NoError(t, err)
		pay, err := compensator.HandleTx(t.Context(), c, "pay", func(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, amount int) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO payments VALUES (?)", amount)
			return err
		}, nil)
		require.NoError(t, err)

		entry := compensatortest.Call(t, c, pay, 100, compensator.Options{})
		require.Equal(t, compensator.Succeeded, entry.State, entry.LastError)
	}
	_ = testPayment
}
