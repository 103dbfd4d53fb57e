package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/compensator-go/compensator"
	_ "modernc.org/sqlite"
)

type Order struct{ ID string }

func main() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	db := compensator.Must(compensator.Open("sqlite", "file:shop.db?_txlock=immediate&_pragma=busy_timeout(10000)"))
	check(compensator.Migrate(ctx, db))
	compensator.Must(db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS orders (id TEXT, state TEXT)"))

	c := compensator.Must(compensator.New(ctx, compensator.Config{DB: db}))
	closeOrder := compensator.Must(compensator.HandleTx(ctx, c, "close_order",
		func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, o Order) error {
			defer stop() // stop after one order; Run stores its outcome before it returns
			fmt.Println("closing order", o.ID)
			_, err := tx.ExecContext(ctx, "UPDATE orders SET state='closed' WHERE id=? AND state='unpaid'", o.ID)
			return err // commits together with the entry's success, so it happens exactly once
		}, nil)) // nil: up to ten attempts, and no compensation

	check(c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		o := Order{ID: fmt.Sprint(time.Now().UnixMilli())}
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES (?, 'unpaid')", o.ID); err != nil {
			return err
		}
		closing := compensator.IdempotencyKey("close-" + o.ID)
		_, err := closeOrder.Record(ctx, tx, o, compensator.Options{IdempotencyKey: closing, Delay: 2 * time.Second})
		return err
	}))
	check(c.Run(ctx)) // runs until ctx ends, then stores the outcomes of running handlers
	check(c.Close())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
