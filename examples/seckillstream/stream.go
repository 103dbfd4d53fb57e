package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator/examples/internal/shop"
	"github.com/compensator-go/compensator/intake"
)

//go:embed lua/take.lua
var takeLua string

var takeScript = redis.NewScript(takeLua)

// streamKey is in the counter's hash slot, so that one script can write both.
func streamKey(c *shop.Counter, goods string) string { return "{" + c.Name + ":" + goods + "}:orders" }

// take takes a piece for the ticket t and adds the message of the order. If it returns ErrNoGoods, ErrSoldOut, ErrAgain
// or ErrStale, it has taken nothing. After any other error, Redis may have run the script. If Redis has run the script,
// a purchase with a new ticket returns ErrAgain.
func (s *sale) take(ctx context.Context, t *shop.Ticket) error {
	if t.Goods != s.Goods { // No consumer reads the stream of other goods.
		return shop.ErrNoGoods
	}
	keys := append(s.Counter.Keys(t.Goods)[:2:2], streamKey(s.Counter, t.Goods))
	return shop.Taken(t, takeScript.Run(ctx, s.Counter.Redis, keys, t.Goods, t.Buyer, t.ID))
}

func (s *sale) held(ctx context.Context, p shop.Purchase) (string, error) {
	id, err := s.Counter.Redis.HGet(ctx, s.Counter.Keys(p.Goods)[1], p.Buyer).Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return id, err
}

// ticketOf reads the ticket in a message. It returns an error if the message has no ticket of this sale, because any
// program can add messages to the stream.
func (s *sale) ticketOf(m *intake.Message) (shop.Ticket, error) {
	t := shop.Ticket{ID: m.Fields["ticket"], Goods: m.Fields["goods"], Buyer: m.Fields["buyer"], Edition: m.Fields["edition"]}
	if err := (shop.Purchase{Buyer: t.Buyer, Goods: t.Goods}).Validate(); err != nil {
		return t, err
	}
	if t.ID == "" || len(t.ID) > 26 || t.Goods != s.Goods {
		return t, fmt.Errorf("ticket %q of goods %q: not of this sale", t.ID, t.Goods)
	}
	return t, nil
}
