// Package wallet is a service as it is tested with no server: payments are booked through GORM, in the transaction of a
// handler that runs exactly once. Its test is what there is to read.
package wallet

import (
	"context"
	"fmt"

	"gorm.io/gorm"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/orms/gormtx"
)

// Account has money.
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

// New registers what books payments.
func New(c *compensator.Compensator, db *gorm.DB) (*Wallet, error) {
	w := &Wallet{db: db}
	var err error
	w.pay, err = compensator.HandleTx(c, "pay", w.book, compensator.TypeConfig{})
	return w, err
}

// Pay has a payment booked, if and when tx commits.
func (w *Wallet) Pay(ctx context.Context, tx *gorm.DB, p Payment) error {
	_, err := w.pay.Record(ctx, gormtx.Tx(tx), p, compensator.Options{IdempotentID: compensator.IdempotentID("pay-" + p.ID)})
	return err
}

func (w *Wallet) book(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, p Payment) error {
	db := gormtx.Use(ctx, w.db, tx)
	for id, change := range map[string]int{p.From: -p.Amount, p.To: p.Amount} {
		booked := db.Model(&Account{}).Where("id = ? AND balance + ? >= 0", id, change).Update("balance", gorm.Expr("balance + ?", change))
		if booked.Error != nil {
			return booked.Error
		}
		if booked.RowsAffected == 0 {
			return compensator.Permanent(fmt.Errorf("account %q does not exist, or has too little", id))
		}
	}
	return nil
}
