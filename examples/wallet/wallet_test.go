package wallet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/sqlite"
	"gorm.io/gorm"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/compensatortest/sqlitetest"
)

func open(t *testing.T) (*compensator.Compensator, *gorm.DB, *Wallet) {
	began := time.Now()
	defer func() { t.Logf("ready in %v", time.Since(began)) }()
	c, pool := sqlitetest.New(t)
	db, err := gorm.Open(sqlite.New(sqlite.Config{Conn: pool}), &gorm.Config{})
	require.NoError(t, err)
	require.NoError(t, db.AutoMigrate(&Account{}))
	require.NoError(t, db.Create([]Account{{ID: "ann", Balance: 100}, {ID: "bob"}}).Error)
	w, err := New(c, db)
	require.NoError(t, err)
	return c, db, w
}

func balances(t *testing.T, db *gorm.DB) (list []int) {
	require.NoError(t, db.Model(&Account{}).Order("id").Pluck("balance", &list).Error)
	return list
}

func TestPaymentIsBooked(t *testing.T) {
	t.Parallel()
	c, db, w := open(t)
	entry := compensatortest.Call(t, c, w.pay, Payment{From: "ann", To: "bob", Amount: 30}, compensator.Options{})
	assert.Equal(t, compensator.Succeeded, entry.State, entry.LastError)
	assert.Equal(t, []int{70, 30}, balances(t, db))
}

func TestPaymentThatCannotBeBookedMovesNothing(t *testing.T) {
	t.Parallel()
	c, db, w := open(t)
	for _, p := range []Payment{{From: "ann", To: "nobody", Amount: 30}, {From: "ann", To: "bob", Amount: 101}} {
		entry := compensatortest.Call(t, c, w.pay, p, compensator.Options{})
		assert.Equal(t, compensator.Dead, entry.State)
		assert.Contains(t, entry.LastError, "does not exist, or has too little")
	}
	assert.Equal(t, []int{100, 0}, balances(t, db))
}

func TestPaymentThatIsNoneMovesNothing(t *testing.T) {
	t.Parallel()
	c, db, w := open(t)
	for _, p := range []Payment{{From: "ann", To: "ann", Amount: 30}, {From: "bob", To: "ann", Amount: -30}, {From: "ann", To: "bob"}} {
		entry := compensatortest.Call(t, c, w.pay, p, compensator.Options{})
		assert.Equal(t, compensator.Dead, entry.State)
	}
	assert.Equal(t, []int{100, 0}, balances(t, db))
}

func TestPaymentIsBookedOnceHoweverOftenItIsAskedFor(t *testing.T) {
	t.Parallel()
	c, db, w := open(t)
	compensatortest.Run(t, c)
	for range 3 {
		require.NoError(t, db.Transaction(func(tx *gorm.DB) error {
			return w.Pay(t.Context(), tx, Payment{ID: "1", From: "ann", To: "bob", Amount: 30})
		}))
	}
	compensatortest.WaitIdle(t, c)
	compensatortest.RequireRecorded(t, c, "pay", 1)
	assert.Equal(t, []int{70, 30}, balances(t, db))
}
