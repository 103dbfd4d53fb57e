package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator/examples/internal/faults"
	"github.com/compensator-go/compensator/examples/internal/shop"
)

// manual is a typical hand-written sale with its typical faults, for comparison with sale.go. A script takes the stock
// and adds a message. One goroutine reads the group under a fixed consumer name and makes the order. After an error the
// goroutine reads its pending list until the list is empty.
//
// One fault is that the goroutine acknowledges each message on the wrong stream. Redis returns no error, and every
// message stays pending.
type manual struct{ shop.Manual }

//go:embed lua/hand.lua
var handLua string

var handScript = redis.NewScript(handLua)

const (
	handGroup    = "g1"
	handConsumer = "c1" // the same in every process
)

func (h *manual) stream(goods string) string { return h.Key("orders", goods) }

// Sell runs one script.
func (h *manual) Sell(ctx context.Context, p shop.Purchase) (shop.Ticket, error) {
	t := shop.NewTicket(p)
	keys := []string{h.Key("stock", p.Goods), h.Key("buyers", p.Goods), h.stream(p.Goods)}
	switch answer, err := handScript.Run(ctx, h.Redis, keys, p.Goods, p.Buyer, t.ID).Int(); {
	case err != nil:
		return t, err
	case answer == 1:
		return t, shop.ErrSoldOut
	case answer == 2:
		return t, shop.ErrAgain
	}
	return t, nil
}

// Run sets the stock in Redis, creates the group, then reads and scans until ctx ends.
func (h *manual) Run(ctx context.Context) error {
	h.Warm(ctx)
	_ = h.Redis.XGroupCreateMkStream(ctx, h.stream(h.Goods), handGroup, "0").Err() // An error means that the group already exists.
	var scanning sync.WaitGroup
	scanning.Go(func() { shop.EverySecond(ctx, h.CloseUnpaid) })
	for ctx.Err() == nil {
		if _, err := h.next(ctx, ">"); err != nil && ctx.Err() == nil {
			slog.Debug("manual: no order made", "err", err)
			h.pending(ctx)
		}
	}
	scanning.Wait()
	return nil
}

func (h *manual) pending(ctx context.Context) {
	for ctx.Err() == nil {
		done, err := h.next(ctx, "0")
		switch {
		case err != nil:
			faults.Pause(ctx, 20*time.Millisecond)
		case done:
			return
		}
	}
}

// next returns isEmpty if there was no message.
func (h *manual) next(ctx context.Context, from string) (isEmpty bool, err error) {
	streams, err := h.Redis.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: handGroup, Consumer: handConsumer, Streams: []string{h.stream(h.Goods), from}, Count: 1, Block: 500 * time.Millisecond,
	}).Result()
	switch {
	case errors.Is(err, redis.Nil), err == nil && (len(streams) == 0 || len(streams[0].Messages) == 0):
		return true, nil
	case err != nil:
		return false, err
	}
	m := streams[0].Messages[0]
	if err := h.order(context.WithoutCancel(ctx), m); err != nil {
		return false, err
	}
	return false, h.Redis.XAck(ctx, h.Key("s1", h.Goods), handGroup, m.ID).Err()
}

func (h *manual) order(ctx context.Context, m redis.XMessage) error {
	var t shop.Ticket
	for field, to := range map[string]*string{"ticket": &t.ID, "goods": &t.Goods, "buyer": &t.Buyer} {
		text, ok := m.Values[field].(string)
		if !ok {
			return fmt.Errorf("message %s: no %s", m.ID, field)
		}
		*to = text
	}
	if err := h.Luck().Of(t, rand.Uint64()); err != nil {
		return err
	}
	return h.insert(ctx, t)
}

// insert makes no order, and returns no error, if the buyer has or had an order, or if no stock is left.
func (h *manual) insert(ctx context.Context, t shop.Ticket) error {
	tx, err := h.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var has int
	err = tx.QueryRowContext(ctx, h.SQL(`SELECT COUNT(*) FROM shop_orders WHERE goods = ? AND buyer = ?`), t.Goods, t.Buyer).Scan(&has)
	if err != nil || has > 0 {
		return err
	}
	taken, err := shop.Changed(tx.ExecContext(ctx, h.SQL(`UPDATE shop_goods SET stock = stock - 1 WHERE goods = ? AND stock > 0`), t.Goods))
	if err != nil || !taken {
		return err
	}
	if err := h.InsertOrder(ctx, tx, t, h.Window); err != nil {
		return err
	}
	return tx.Commit()
}

// Find returns the state of a buyer's latest order. If the database has no order of the buyer, but Redis has the buyer,
// the state is "accepted".
func (h *manual) Find(ctx context.Context, p shop.Purchase) (shop.Order, error) {
	o, err := shop.FindOrder(ctx, h.DB, p, h.SQL(`SELECT ticket, id, state, due_at FROM shop_orders WHERE goods = ? AND buyer = ? ORDER BY id DESC LIMIT 1`))
	if errors.Is(err, shop.ErrNotFound) {
		if isKnown, asked := h.Redis.SIsMember(ctx, h.Key("buyers", p.Goods), p.Buyer).Result(); asked == nil && isKnown {
			o.State, err = "accepted", nil
		}
	}
	return o, err
}

// End does nothing, because there is nothing to close.
func (h *manual) End() {}
