// Quickstart is a small shop that keeps its promises although its worker is killed during its work.
//
//	go run ./quickstart                                SQLite in a temporary directory; no servers
//	MYSQL_DSN=… REDIS_ADDR=… go run ./quickstart       the same shop on MySQL or MariaDB, and Redis
//
// With MYSQL_DSN the shop creates the database compensator_quickstart. If its user may not create it, the shop creates
// tables named shop_* in the DSN's database. The tables stay, so that you can look into them, and the next run replaces
// them.
//
// Read order.go first. It places and pays orders, and records follow-up work in the same transactions. handlers.go does
// the follow-up work. worker.go is the process that runs it and is killed. summary.go compares the database with the
// promises.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"
)

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
