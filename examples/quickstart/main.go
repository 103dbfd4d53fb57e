// Quickstart is a small shop that keeps its promises although its worker is killed in the middle of the work.
//
//	go run ./quickstart                                SQLite in a temporary directory; no servers
//	MYSQL_DSN=… REDIS_ADDR=… go run ./quickstart       the same shop on MySQL or MariaDB, and Redis
//
// With MYSQL_DSN the shop makes a database of its own, compensator_quickstart, or, where its user may not, tables
// of its own, shop_*, in the DSN's database. They are left to be looked at, and the next run replaces them.
//
// Read order.go first: orders are placed and paid, and what has to happen later is recorded in the same
// transactions. handlers.go is what happens later, worker.go the process that does it and is killed, and
// summary.go holds the database against what was promised.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"
)

// limit ends a run that hangs.
const limit = 2 * time.Minute

func main() {
	var err error
	if len(os.Args) > 1 && os.Args[1] == workerArgument {
		err = work(context.Background())
	} else {
		err = run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not ended after %v", limit))
	defer cancel()
	db, err := newDatabase(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	s, err := openShop(ctx, db)
	if err != nil {
		return err
	}
	defer s.Close()
	books, err := s.day(ctx)
	if err != nil {
		return err
	}
	broken, err := s.summarize(ctx, books)
	if broken > 0 {
		err = fmt.Errorf("broken promises: %d", broken)
	}
	return errors.Join(err, db.forget(ctx))
}
