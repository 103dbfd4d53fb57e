// Command shop closes orders that nobody pays. It is the program of the first tutorial.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/compensator-go/compensator"
	_ "modernc.org/sqlite"
)

type Order struct {
	ID     string
	Broken bool // every attempt to close this order fails
}

const dsn = "file:shop.db?_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(10000)"

func main() {
	ctx := context.Background()
	db, err := compensator.Open("sqlite", dsn)
	check(err)
	check(compensator.Migrate(ctx, db)) // creates the log's tables
	_, err = db.Exec("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, state TEXT)")
	check(err)
	quiet := slog.New(slog.DiscardHandler) // hides the library's warnings, because this tutorial provokes some
	c, err := compensator.New(ctx, compensator.Config{DB: db, Logger: quiet})
	check(err)
	closeOrder, err := compensator.HandleTx(ctx, c, "close_order", closeUnpaid, settings())
	check(err)

	switch argument(1) {
	case "place":
		place(ctx, c, closeOrder, Order{ID: argument(2), Broken: slices.Contains(os.Args, "broken")})
	case "work":
		work(ctx, c, db)
	case "list":
		list(db)
	}
	check(c.Close())
}

// argument returns an argument of the command line.
func argument(i int) string {
	if len(os.Args) <= i {
		log.Fatal("usage: shop place <order> [broken|refuse], shop work [crash] or shop list")
	}
	return os.Args[i]
}

// place stores an order. In the same transaction it records the entry that closes the order in two seconds.
func place(ctx context.Context, c *compensator.Compensator, closeOrder *compensator.Type[Order], o Order) {
	err := c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		key := compensator.IdempotencyKey("close-" + o.ID)
		receipt, err := closeOrder.Record(ctx, tx, o, compensator.Options{IdempotencyKey: key, Delay: 2 * time.Second})
		if err != nil || receipt.Duplicate() {
			return err // err is nil if the same order was placed before
		}
		if slices.Contains(os.Args, "refuse") {
			return errors.New("the customer has no credit") // rolls the transaction back, so the entry does not exist
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO orders VALUES (?, 'unpaid')", o.ID)
		return err
	})
	if err != nil {
		fmt.Printf("order %s is not placed: %v\n", o.ID, err)
		return
	}
	fmt.Printf("order %s is placed\n", o.ID)
}

// closeUnpaid is the handler. Its UPDATE commits together with the success of the entry.
func closeUnpaid(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, o Order) error {
	fmt.Printf("closing order %s, attempt %d\n", o.ID, e.Attempt())
	if _, err := tx.ExecContext(ctx, "UPDATE orders SET state='closed' WHERE id=? AND state='unpaid'", o.ID); err != nil {
		return err
	}
	if slices.Contains(os.Args, "crash") {
		self, _ := os.FindProcess(os.Getpid())
		self.Kill() // as kill -9, after the UPDATE and before the commit
		select {}
	}
	if o.Broken {
		return errors.New("the warehouse does not answer")
	}
	return nil
}

// settings says how often to try, and what to do when all attempts have failed.
func settings() *compensator.HandlerConfig[Order] {
	return &compensator.HandlerConfig[Order]{
		MaxAttempts: 3,
		Timeout:     2 * time.Second,
		Lease:       3 * time.Second,
		Retry:       compensator.Fixed(200 * time.Millisecond),
		CompensateTx: func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, o Order) error {
			fmt.Printf("giving up order %s: %s\n", o.ID, e.LastError)
			_, err := tx.ExecContext(ctx, "UPDATE orders SET state='for a person' WHERE id=?", o.ID)
			return err
		},
	}
}

// work runs handlers until no entry is left to run.
func work(ctx context.Context, c *compensator.Compensator, db *sql.DB) {
	ctx, stop := context.WithCancel(ctx)
	go func() {
		defer stop()
		for left := 1; left > 0; time.Sleep(100 * time.Millisecond) {
			check(db.QueryRow("SELECT COUNT(*) FROM common_process_log WHERE state IN (0,-1,-3)").Scan(&left)) // pending, retrying, compensating
		}
	}()
	check(c.Run(ctx))
	fmt.Println("nothing left to do")
}

func list(db *sql.DB) {
	rows, err := db.Query("SELECT id, state FROM orders ORDER BY id")
	check(err)
	defer rows.Close()
	for rows.Next() {
		var id, state string
		check(rows.Scan(&id, &state))
		fmt.Println(id, state)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
