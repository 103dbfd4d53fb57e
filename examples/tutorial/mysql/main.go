// Command shop sells one book. It closes orders that nobody pays, and returns their pieces to the stock. It is the
// program of the second tutorial.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/compensator-go/compensator"
	_ "github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
)

type Order struct{ ID int }

type shop struct {
	log        *compensator.Compensator
	db         *sql.DB
	closeOrder *compensator.Type[Order]
}

func main() {
	ctx := context.Background()
	db, err := compensator.Open("mysql", os.Getenv("SHOP_DSN"))
	check(err)
	db.SetMaxOpenConns(20)
	rdb := redis.NewClient(&redis.Options{Addr: os.Getenv("SHOP_REDIS")})
	if argument(1) == "create" {
		create(ctx, db)
		return
	}
	s := &shop{db: db}
	quiet := slog.New(slog.DiscardHandler) // hides the library's warnings, because this tutorial provokes some
	s.log, err = compensator.New(ctx, compensator.Config{DB: db, Redis: rdb, Logger: quiet})
	check(err)
	s.closeOrder, err = compensator.HandleTx(ctx, s.log, "close_order", s.close, &compensator.HandlerConfig[Order]{Concurrency: 2, Lease: 3 * time.Second})
	check(err)

	switch argument(1) {
	case "place":
		n, err := strconv.Atoi(argument(2))
		check(err)
		placed := 0
		for id := 1; id <= n; id++ {
			if s.place(ctx, Order{ID: id}) {
				placed++
			}
		}
		fmt.Println(placed, "orders are placed")
	case "pay":
		id, err := strconv.Atoi(argument(2))
		check(err)
		s.pay(ctx, id)
	case "work":
		s.work(ctx)
	case "books":
		s.books()
	}
	check(s.log.Close())
}

// argument returns an argument of the command line.
func argument(i int) string {
	if len(os.Args) <= i {
		log.Fatal("usage: shop create, shop place <number>, shop pay <order>, shop work or shop books")
	}
	return os.Args[i]
}

// create makes the log's tables and the shop's tables.
func create(ctx context.Context, db *sql.DB) {
	check(compensator.Migrate(ctx, db))
	for _, statement := range []string{
		"CREATE TABLE IF NOT EXISTS orders (id INT PRIMARY KEY, state VARCHAR(16) NOT NULL)",
		"CREATE TABLE IF NOT EXISTS stock (book INT PRIMARY KEY, pieces INT NOT NULL)",
		"INSERT IGNORE INTO stock VALUES (1, 100)",
	} {
		_, err := db.ExecContext(ctx, statement)
		check(err)
	}
	fmt.Println("the tables are created")
}

// place takes a piece from the stock, stores the order, and records the entry that closes it. All three commit together.
// It returns false if the order was placed before.
func (s *shop) place(ctx context.Context, o Order) (placed bool) {
	key := closingOf(o.ID)
	check(s.log.WithRetry(ctx, key, func(ctx context.Context) error { // after a lost COMMIT it looks for the entry with this key
		return s.log.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
			receipt, err := s.closeOrder.Record(ctx, tx, o, compensator.Options{IdempotencyKey: key, Delay: time.Second})
			placed = err == nil && !receipt.Duplicate()
			if !placed {
				return err
			}
			if _, err := tx.ExecContext(ctx, "UPDATE stock SET pieces=pieces-1"); err != nil {
				return err
			}
			_, err = tx.ExecContext(ctx, "INSERT INTO orders VALUES (?, 'unpaid')", o.ID)
			return err
		})
	}))
	return placed
}

// pay marks the order as paid, and cancels the entry that would close it.
func (s *shop) pay(ctx context.Context, id int) {
	err := s.log.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		if _, err := tx.ExecContext(ctx, "UPDATE orders SET state='paid' WHERE id=? AND state='unpaid'", id); err != nil {
			return err
		}
		_, err := s.closeOrder.CancelTx(ctx, tx, closingOf(id))
		return err
	})
	var late *compensator.StateError
	switch {
	case errors.As(err, &late):
		fmt.Println("too late: order", id, "is closed")
	case err != nil:
		log.Fatal(err)
	default:
		fmt.Println("order", id, "is paid")
	}
}

// close is the handler. Closing takes a moment, so that you can kill the process in the middle.
func (s *shop) close(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, o Order) error {
	closed, err := tx.ExecContext(ctx, "UPDATE orders SET state='closed' WHERE id=? AND state='unpaid'", o.ID)
	if err != nil {
		return err
	}
	time.Sleep(300 * time.Millisecond)
	if n, err := closed.RowsAffected(); err != nil || n == 0 {
		return err
	}
	_, err = tx.ExecContext(ctx, "UPDATE stock SET pieces=pieces+1")
	return err
}

// work runs handlers until every order is paid or closed.
func (s *shop) work(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	go func() {
		defer stop()
		for left := 1; left > 0; time.Sleep(100 * time.Millisecond) {
			check(s.db.QueryRow("SELECT COUNT(*) FROM orders WHERE state='unpaid'").Scan(&left))
		}
	}()
	check(s.log.Run(ctx))
	fmt.Println("every order is paid or closed")
}

// books prints how many orders are paid, closed and unpaid, and whether the stock fits these numbers.
func (s *shop) books() {
	var paid, closed, unpaid, pieces int
	check(s.db.QueryRow("SELECT COALESCE(SUM(state='paid'),0), COALESCE(SUM(state='closed'),0), COALESCE(SUM(state='unpaid'),0) FROM orders").Scan(&paid, &closed, &unpaid))
	check(s.db.QueryRow("SELECT pieces FROM stock").Scan(&pieces))
	fmt.Println("paid", paid, "closed", closed, "unpaid", unpaid, "stock", pieces)
	if pieces+paid+unpaid != 100 {
		log.Fatal("the books are WRONG")
	}
	fmt.Println("the books are right")
}

func closingOf(id int) compensator.IdempotencyKey {
	return compensator.IdempotencyKey(fmt.Sprint("close-", id))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
