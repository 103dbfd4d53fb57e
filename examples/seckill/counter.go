package main

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator/examples/internal/shop"
)

// counter is a shop.Counter that also lists a ticket as open until its sale in the database is confirmed.
type counter struct{ *shop.Counter }

var (
	//go:embed lua/take.lua
	takeLua string
	//go:embed lua/confirm.lua
	confirmLua string
	//go:embed lua/abandoned.lua
	abandonedLua string

	takeScript      = redis.NewScript(takeLua)
	confirmScript   = redis.NewScript(confirmLua)
	abandonedScript = redis.NewScript(abandonedLua)
)

// take takes a piece for the ticket t, and writes the edition of the counter into t. It returns one of these errors if
// Redis answers and takes nothing:
//
//   - ErrSoldOut: No piece is left.
//   - ErrAgain: The buyer has another ticket.
//   - ErrStale: Redis does not know the sale.
func (c counter) take(ctx context.Context, t *shop.Ticket) error {
	return shop.Taken(t, takeScript.Run(ctx, c.Redis, c.Keys(t.Goods), t.Buyer, t.ID))
}

func (c counter) confirm(ctx context.Context, t shop.Ticket) error {
	return confirmScript.Run(ctx, c.Redis, c.Keys(t.Goods), t.Buyer, t.ID).Err()
}

const atOnce = 500

// abandoned returns tickets that were taken longer than age ago and were neither confirmed nor given back.
func (c counter) abandoned(ctx context.Context, goods string, age time.Duration) ([]shop.Ticket, error) {
	found, err := abandonedScript.Run(ctx, c.Redis, c.Keys(goods), age.Milliseconds(), atOnce).StringSlice()
	if err != nil {
		return nil, fmt.Errorf("abandoned tickets: %w", err)
	}
	tickets := make([]shop.Ticket, 0, len(found)/2)
	for i := 0; i+1 < len(found); i += 2 {
		tickets = append(tickets, shop.Ticket{ID: found[i+1], Goods: goods, Buyer: found[i]})
	}
	return tickets, nil
}

func (c counter) open(ctx context.Context, goods string) (int, error) {
	n, err := c.Redis.ZCard(ctx, c.Keys(goods)[2]).Result()
	return int(n), err
}
