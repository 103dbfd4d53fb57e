package main

import (
	"context"
	"time"

	"github.com/compensator-go/compensator"
)

// Two processes open a shop on one database: the first trades and records entries, and the worker runs them.
type shop struct {
	*compensator.Compensator
	db *database

	closeUnpaid *compensator.Type[Order]
	packParcel  *compensator.Type[Order]
	sendByDrone *compensator.Type[Order]
}

// lease is short, so that the entries of the killed worker do not wait long.
const lease = 2 * time.Second

func openShop(ctx context.Context, db *database) (*shop, error) {
	c, err := compensator.New(ctx, compensator.Config{
		DB: db.DB, Redis: db.redis,
		Table: logTable, Prefix: ownName,
		Lease: lease,
		Grace: 100 * time.Millisecond, // Polling takes entries that are overdue by more than this.
	})
	if err != nil {
		return nil, err
	}
	s := &shop{Compensator: c, db: db}
	return s, s.register()
}

func (s *shop) trade(ctx context.Context) (books, error) {
	var b books
	for id := 1; id <= 120; id++ {
		o := newOrder(id)
		blocked, pays := id%6 == 0, id%7 > 1
		placed := s.place(ctx, o, blocked)
		if err := b.enterPlaced(o, placed); err != nil {
			return b, err
		}
		if placed == nil && pays {
			if err := b.enterPaid(o, s.pay(ctx, o)); err != nil {
				return b, err
			}
		}
	}
	return b, nil
}
