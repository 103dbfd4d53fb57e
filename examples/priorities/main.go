package main

import (
	"context"
	"fmt"
	"log"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator"
	_ "modernc.org/sqlite"
)

type Refund struct{ Order string }

// register registers both types with the same handler. Each type has its own slots.
func register(ctx context.Context, c *compensator.Compensator, refund func(ctx context.Context, e *compensator.Entry, r Refund) error) (urgent, normal *compensator.Type[Refund]) {
	urgent = compensator.Must(compensator.Handle(ctx, c, "refund_urgent", refund, &compensator.HandlerConfig[Refund]{Concurrency: 8}))
	normal = compensator.Must(compensator.Handle(ctx, c, "refund", refund, &compensator.HandlerConfig[Refund]{Concurrency: 2}))
	return urgent, normal
}

// record records ten normal refunds, and then three urgent ones.
func record(ctx context.Context, c *compensator.Compensator, urgent, normal *compensator.Type[Refund]) error {
	return c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		var entries []compensator.NewEntry
		for i := range 10 {
			entries = append(entries, normal.Entry(Refund{fmt.Sprint(i)}, compensator.Options{}))
		}
		for i := range 3 {
			entries = append(entries, urgent.Entry(Refund{fmt.Sprint(100 + i)}, compensator.Options{}))
		}
		_, err := c.Record(ctx, tx, entries...)
		return err
	})
}

func main() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	db := compensator.Must(compensator.Open("sqlite", "file:refunds.db?_txlock=immediate&_pragma=busy_timeout(10000)"))
	check(compensator.Migrate(ctx, db))
	c := compensator.Must(compensator.New(ctx, compensator.Config{DB: db}))
	var ended atomic.Int32
	urgent, normal := register(ctx, c, func(_ context.Context, e *compensator.Entry, r Refund) error {
		time.Sleep(200 * time.Millisecond) // stands for a call to the partner
		fmt.Println(e.BusinessType, r.Order)
		if ended.Add(1) == 13 {
			stop() // Run stores the last outcomes before it returns
		}
		return nil
	})
	check(record(ctx, c, urgent, normal))
	check(c.Run(ctx))
	check(c.Close())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
