package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator/examples/internal/faults"
	"github.com/compensator-go/compensator/examples/internal/servers"
	"github.com/compensator-go/compensator/examples/internal/shop"
)

// manual is a typical hand-written sale, for comparison with sale.go. It has these parts:
//   - A lock in Redis for 30 s, and the stock and the buyers in Redis.
//   - A message table in the business transaction.
//   - A message that is published after the transaction, without waiting for the broker's confirm.
//   - Scans for unsent messages and unpaid orders.
type manual struct {
	shop.Manual
	workers int
	url     string // URL of the broker
	queue   string

	mu      sync.Mutex // guards channel
	channel *amqp091.Channel
}

const createHandLog = `CREATE TABLE IF NOT EXISTS shop_hand_log (
	ticket     VARCHAR(26) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
	goods      VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
	buyer      VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
	status     TINYINT NOT NULL DEFAULT 0 COMMENT '0 waits, 1 sent, 2 order made, 3 failed',
	created_at DATETIME(3) NOT NULL,
	KEY (status, created_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4`

const (
	handSent   = 1
	handMade   = 2
	handFailed = 3
	lockFor    = 30 * time.Second
)

// Sell holds the lock from the first read of the stock until the message is sent.
func (h *manual) Sell(ctx context.Context, p shop.Purchase) (t shop.Ticket, err error) {
	lock := h.Key("lock", p.Goods)
	locked, err := h.Redis.SetNX(ctx, lock, 1, lockFor).Result()
	if err != nil || !locked {
		return t, shop.ErrBusy
	}
	defer h.Redis.Del(ctx, lock)
	stock, err := h.Redis.Get(ctx, h.Key("stock", p.Goods)).Int()
	if errors.Is(err, redis.Nil) {
		return t, shop.ErrNoGoods
	}
	if err != nil {
		return t, err
	}
	bought, err := h.Redis.SIsMember(ctx, h.Key("buyers", p.Goods), p.Buyer).Result()
	switch {
	case err != nil:
		return t, err
	case bought:
		return t, shop.ErrAgain
	case stock <= 0:
		return t, shop.ErrSoldOut
	}
	h.Redis.Decr(ctx, h.Key("stock", p.Goods))
	h.Redis.SAdd(ctx, h.Key("buyers", p.Goods), p.Buyer)
	t = shop.NewTicket(p)
	if err := h.insert(ctx, t); err != nil {
		return t, err
	}
	h.send(ctx, t)
	return t, nil
}

func (h *manual) insert(ctx context.Context, t shop.Ticket) error {
	tx, err := h.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	taken, err := shop.Changed(tx.ExecContext(ctx, h.SQL(`UPDATE shop_goods SET stock = stock - 1 WHERE goods = ? AND stock > 0`), t.Goods))
	if err != nil {
		return err
	}
	if !taken {
		return shop.ErrSoldOut
	}
	_, err = tx.ExecContext(ctx, h.SQL(`INSERT INTO shop_hand_log (ticket, goods, buyer, created_at) VALUES (?, ?, ?, UTC_TIMESTAMP(3))`), t.ID, t.Goods, t.Buyer)
	if err != nil {
		return err
	}
	return tx.Commit()
}

// send does not wait until the broker has the message. If the connection breaks after send has returned, the message
// may be lost.
func (h *manual) send(ctx context.Context, t shop.Ticket) {
	status := handSent
	if err := h.publish(ctx, t); err != nil {
		status = handFailed
	}
	h.set(ctx, t, status)
}

func (h *manual) publish(ctx context.Context, t shop.Ticket) error {
	body, err := json.Marshal(t)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.channel == nil {
		return amqp091.ErrClosed
	}
	return h.channel.PublishWithContext(ctx, "", h.queue, false, false, amqp091.Publishing{DeliveryMode: amqp091.Persistent, Body: body})
}

func (h *manual) set(ctx context.Context, t shop.Ticket, status int) {
	if _, err := h.DB.ExecContext(ctx, h.SQL(`UPDATE shop_hand_log SET status = ? WHERE ticket = ?`), status, t.ID); err != nil {
		slog.Debug("manual: status not set", "err", err)
	}
}

// Run works until ctx ends.
func (h *manual) Run(ctx context.Context) error {
	h.Warm(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		shop.EverySecond(ctx, func(ctx context.Context) {
			h.sendLate(ctx)
			h.CloseUnpaid(ctx)
		})
	})
	for ctx.Err() == nil {
		if err := h.serve(ctx); err != nil && ctx.Err() == nil {
			slog.Debug("manual: connection lost", "err", err)
		}
		faults.Pause(ctx, 200*time.Millisecond)
	}
	group.Wait()
	return nil
}

func (h *manual) serve(ctx context.Context) error {
	conn, err := amqp091.Dial(h.url)
	if err != nil {
		return err
	}
	defer conn.Close()
	channel, err := conn.Channel()
	if err != nil {
		return err
	}
	out, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := errors.Join(servers.Declare(h.queue)(channel), channel.Qos(h.workers, 0, false)); err != nil {
		return err
	}
	messages, err := channel.ConsumeWithContext(ctx, h.queue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	h.publishOn(out)
	defer h.publishOn(nil)
	var working sync.WaitGroup
	for range h.workers {
		working.Go(func() {
			for m := range messages {
				h.consume(context.WithoutCancel(ctx), m)
				_ = m.Ack(false)
			}
		})
	}
	working.Wait()
	return amqp091.ErrClosed
}

func (h *manual) publishOn(c *amqp091.Channel) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.channel = c
}

func (h *manual) consume(ctx context.Context, d amqp091.Delivery) {
	var t shop.Ticket
	if err := json.Unmarshal(d.Body, &t); err != nil {
		return
	}
	err := h.Luck().Of(t, rand.Uint64())
	if err == nil {
		_, err = h.DB.ExecContext(ctx, h.SQL(shop.InsertOpenOrder), t.ID, t.Goods, t.Buyer, h.Window.Microseconds())
	}
	if err != nil {
		h.set(ctx, t, handFailed)
		return
	}
	h.set(ctx, t, handMade)
}

const findLate = `SELECT ticket, goods, buyer FROM shop_hand_log WHERE status = 0 AND created_at < UTC_TIMESTAMP(3) - INTERVAL 5 SECOND LIMIT 100`

func (h *manual) sendLate(ctx context.Context) {
	for _, t := range h.Scan(ctx, findLate) {
		h.send(ctx, t)
	}
}

// Find returns the state of a buyer's latest ticket.
func (h *manual) Find(ctx context.Context, p shop.Purchase) (shop.Order, error) {
	return shop.FindOrder(ctx, h.DB, p, h.SQL(`SELECT l.ticket, COALESCE(o.id, 0), COALESCE(o.state, 'accepted'), o.due_at
		FROM shop_hand_log l LEFT JOIN shop_orders o ON o.ticket = l.ticket
		WHERE l.goods = ? AND l.buyer = ? ORDER BY l.created_at DESC LIMIT 1`))
}

// End does nothing, because there is nothing to close.
func (h *manual) End() {}
