package admin_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/observe"
)

// A program finds dead entries, and records that a person did their work.
func ExampleOf() {
	ctx, stop := context.WithCancel(context.Background())
	c := compensator.Must(compensator.New(ctx, compensator.Config{ // a real service sets DB and Redis
		Store: compensatortest.NewMemoryStore(), Logger: slog.New(slog.DiscardHandler),
		Observer: observe.Observer{Settled: func(observe.SettledEvent) { stop() }},
	}))
	defer c.Close()
	refund := compensator.Must(compensator.Handle(ctx, c, "refund", func(context.Context, *compensator.Entry, int) error {
		return compensator.Permanent(errors.New("the account is closed"))
	}, nil))
	err := c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := refund.Record(ctx, tx, 12900, compensator.Options{IdempotencyKey: "refund-42"})
		return err
	})
	if err := errors.Join(err, c.Run(ctx)); err != nil {
		log.Fatal(err)
	}

	ctx = context.Background()
	entries := admin.Of(c)
	page := compensator.Must(entries.List(ctx, admin.Filter{States: []compensator.State{compensator.Dead}, BusinessType: "refund"}))
	for _, e := range page.Entries {
		fmt.Println(e.IdempotencyKey, e.State, e.LastError)
		if err := entries.SettleManually(ctx, e.ID, admin.AuditInfo{Actor: "mei", Reason: "paid in cash"}); err != nil {
			log.Fatal(err)
		}
		fmt.Println(compensator.Must(c.Get(ctx, e.ID)).State == compensator.SettledManually)
		for _, record := range compensator.Must(entries.History(ctx, e.ID)) {
			fmt.Println(record.Actor, record.Reason)
		}
	}
	// Output:
	// refund-42 dead the account is closed
	// true
	// mei paid in cash
}
