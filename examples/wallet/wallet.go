// Package wallet shows how to test a service without servers. A handler with exactly-once effects books payments
// through GORM in its transaction. Read the test first.
package wallet

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"gorm.io/gorm"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/orms/gormtx"
)

// Account is an account with a balance.
type Account struct {
	ID      string `gorm:"primaryKey"`
	Balance int
}

// Payment moves money from one account to another.
type Payment struct {
	ID, From, To string
	Amount       int
}

// Wallet books payments.
type Wallet struct {
	db  *gorm.DB
	pay *compensator.Type[Payment]
}

// New registers the handler that books payments.
func New(c *compensator.Compensator, db *gorm.DB) (*Wallet, error) {
	w := &Wallet{db: db}
	var err error
	w.pay, err = compensator.HandleTx(context.Background(), c, "pay", w.book, nil)
	return w, err
}

// Pay records a payment in tx. The payment is booked after tx commits.
func (w *Wallet) Pay(ctx context.Context, tx *gorm.DB, p Payment) error {
	_, err := w.pay.Record(ctx, gormtx.Tx(tx), p, compensator.Options{IdempotencyKey: compensator.IdempotencyKey("pay-" + p.ID)})
	return err
}

func (w *Wallet) book(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, p Payment) error {
	if p.Amount <= 0 || p.From == p.To {
		return compensator.Permanent(fmt.Errorf("payment of %d from %q to %q", p.Amount, p.From, p.To))
	}
	changes := []change{{p.From, -p.Amount}, {p.To, p.Amount}}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.account, b.account) }) // Update the accounts in the same order everywhere, so that no two payments deadlock.
	db := gormtx.Use(ctx, w.db, tx)
	for _, c := range changes {
		booked := db.Model(&Account{}).Where("id = ? AND balance + ? >= 0", c.account, c.by).Update("balance", gorm.Expr("balance + ?", c.by))
		if booked.Error != nil {
			return booked.Error
		}
		if booked.RowsAffected == 0 {
			return compensator.Permanent(fmt.Errorf("account %q does not exist, or has too little", c.account))
		}
	}
	return nil
}

type change struct {
	account string
	by      int
}
