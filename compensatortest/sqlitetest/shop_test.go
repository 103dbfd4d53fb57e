package sqlitetest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/compensator-go/compensator"
)

// shop is the code under test. It closes unpaid orders, returns their stock and notifies the buyer.
type shop struct {
	c     *compensator.Compensator
	db    *sql.DB
	close *compensator.Type[string]
	tell  *compensator.Type[string]
	mail  func(text string) error // calls another service
}

const closeAfter = 30 * time.Minute

func newShop(c *compensator.Compensator, db *sql.DB, mail func(string) error) (*shop, error) {
	s := &shop{c: c, db: db, mail: mail}
	var errs [2]error
	s.close, errs[0] = compensator.HandleTx(context.Background(), c, "close_order", s.closeOrder, nil)
	s.tell, errs[1] = compensator.Handle(context.Background(), c, "tell_buyer", s.tellBuyer, &compensator.HandlerConfig[string]{MaxAttempts: 2, Compensate: s.print})
	return s, errors.Join(errs[:]...)
}

// The buyer has half an hour to pay.
func (s *shop) order(ctx context.Context, id string) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	sold, err := tx.ExecContext(ctx, "UPDATE stock SET n=n-1 WHERE n>0")
	if err != nil {
		return err
	}
	if n, _ := sold.RowsAffected(); n == 0 {
		return errors.New("sold out")
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, state) VALUES (?, 'open')", id); err != nil {
		return err
	}
	if _, err := s.close.Record(ctx, tx, id, compensator.Options{IdempotencyKey: compensator.IdempotencyKey("close-" + id), Delay: closeAfter}); err != nil {
		return err
	}
	return tx.Commit()
}

// pay fails if the order is closed.
func (s *shop) pay(ctx context.Context, id string) error {
	return s.c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		if _, err := tx.ExecContext(ctx, "UPDATE orders SET state='paid' WHERE id=?", id); err != nil {
			return err
		}
		_, err := s.close.CancelTx(ctx, tx, compensator.IdempotencyKey("close-"+id))
		return err
	})
}

func (s *shop) closeOrder(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, id string) error {
	closed, err := tx.ExecContext(ctx, "UPDATE orders SET state='closed' WHERE id=? AND state='open'", id)
	if err != nil {
		return err
	}
	if n, _ := closed.RowsAffected(); n == 0 {
		return compensator.Permanent(fmt.Errorf("order %s is not open", id))
	}
	if _, err := tx.ExecContext(ctx, "UPDATE stock SET n=n+1"); err != nil {
		return err
	}
	_, err = s.tell.Record(ctx, tx, id, compensator.Options{IdempotencyKey: compensator.IdempotencyKey("tell-" + id)})
	return err
}

func (s *shop) tellBuyer(_ context.Context, _ *compensator.Entry, id string) error {
	return s.mail("order " + id + " was closed")
}

func (s *shop) print(ctx context.Context, _ *compensator.Entry, id string) error {
	_, err := s.db.ExecContext(ctx, "INSERT INTO letters (text) VALUES (?)", "order "+id+" was closed")
	return err
}

const tables = `CREATE TABLE stock (n INTEGER NOT NULL); INSERT INTO stock VALUES (1);
	CREATE TABLE orders (id TEXT PRIMARY KEY, state TEXT NOT NULL); CREATE TABLE letters (text TEXT NOT NULL)`
