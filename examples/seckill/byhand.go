package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator/examples/internal/servers"
)

// byHand is the way people do it: a lock in Redis for 30 s, stock and buyers in Redis, a message table in the business
// transaction, a message published after it without a confirm, its status set whatever happened, and scans by hand for
// what was not sent and not paid. It is here to be measured beside sale.go.
type byHand struct {
	settings
	db    *sql.DB
	redis *redis.Client
	name  string
	url   string // of the broker
	queue string
	luck  luck

	mu      sync.Mutex // guards channel
	channel *amqp091.Channel
}

const createHandLog = `CREATE TABLE IF NOT EXISTS seckill_hand_log (
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

func (h *byHand) key(what, goods string) string { return h.name + ":hand:" + what + ":" + goods }

// sellOne holds the lock from the first look at the stock to the message.
func (h *byHand) sellOne(ctx context.Context, p purchase) (t ticket, err error) {
	lock := h.key("lock", p.Goods)
	locked, err := h.redis.SetNX(ctx, lock, 1, lockFor).Result()
	if err != nil || !locked {
		return t, errBusy
	}
	defer h.redis.Del(ctx, lock)
	stock, err := h.redis.Get(ctx, h.key("stock", p.Goods)).Int()
	if errors.Is(err, redis.Nil) {
		return t, errNoGoods
	}
	if err != nil {
		return t, err
	}
	bought, err := h.redis.SIsMember(ctx, h.key("buyers", p.Goods), p.Buyer).Result()
	switch {
	case err != nil:
		return t, err
	case bought:
		return t, errAgain
	case stock <= 0:
		return t, errSoldOut
	}
	h.redis.Decr(ctx, h.key("stock", p.Goods))
	h.redis.SAdd(ctx, h.key("buyers", p.Goods), p.Buyer)
	t = newTicket(p)
	if err := h.insert(ctx, t); err != nil {
		return t, err
	}
	h.send(ctx, t)
	return t, nil
}

func (h *byHand) insert(ctx context.Context, t ticket) error {
	tx, err := h.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	taken, err := changed(tx.ExecContext(ctx, `UPDATE seckill_goods SET stock = stock - 1 WHERE goods = ? AND stock > 0`, t.Goods))
	if err != nil {
		return err
	}
	if !taken {
		return errSoldOut
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO seckill_hand_log (ticket, goods, buyer, created_at) VALUES (?, ?, ?, UTC_TIMESTAMP(3))`, t.ID, t.Goods, t.Buyer)
	if err != nil {
		return err
	}
	return tx.Commit()
}

// send returns when the message is in a buffer of this process.
func (h *byHand) send(ctx context.Context, t ticket) {
	status := handSent
	if err := h.publish(ctx, t); err != nil {
		status = handFailed
	}
	h.set(ctx, t, status)
}

func (h *byHand) publish(ctx context.Context, t ticket) error {
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

func (h *byHand) set(ctx context.Context, t ticket, status int) {
	if _, err := h.db.ExecContext(ctx, `UPDATE seckill_hand_log SET status = ? WHERE ticket = ?`, status, t.ID); err != nil {
		slog.Debug("by hand: status not set", "err", err)
	}
}

// run warms Redis up, consumes and scans until ctx ends.
func (h *byHand) run(ctx context.Context) error {
	h.luck = luck{seed: h.seed, fail: h.fail, hopeless: h.hopeless}
	h.redis.SetNX(ctx, h.key("stock", h.goods), h.stock, 0)
	var both sync.WaitGroup
	both.Go(func() { h.scan(ctx) })
	for ctx.Err() == nil {
		if err := h.serve(ctx); err != nil && ctx.Err() == nil {
			slog.Debug("by hand: connection lost", "err", err)
		}
		pause(ctx, 200*time.Millisecond)
	}
	both.Wait()
	return nil
}

// serve works with one connection until it breaks.
func (h *byHand) serve(ctx context.Context) error {
	conn, err := amqp091.Dial(h.url)
	if err != nil {
		return err
	}
	defer conn.Close()
	in, err := conn.Channel()
	if err != nil {
		return err
	}
	out, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := errors.Join(servers.Declare(h.queue)(in), in.Qos(h.workers, 0, false)); err != nil {
		return err
	}
	messages, err := in.ConsumeWithContext(ctx, h.queue, "", false, false, false, false, nil)
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

func (h *byHand) publishOn(c *amqp091.Channel) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.channel = c
}

// consume makes the order and sets the status.
func (h *byHand) consume(ctx context.Context, d amqp091.Delivery) {
	var t ticket
	if err := json.Unmarshal(d.Body, &t); err != nil {
		return
	}
	err := h.luck.of(t)
	if err == nil {
		_, err = h.db.ExecContext(ctx, insertOpenOrder, t.ID, t.Goods, t.Buyer, h.window.Microseconds())
	}
	if err != nil {
		h.set(ctx, t, handFailed)
		return
	}
	h.set(ctx, t, handMade)
}

// scan sends what was not sent, and closes what was not paid.
func (h *byHand) scan(ctx context.Context) {
	for pause(ctx, time.Second) {
		h.sendLate(ctx)
		h.closeUnpaid(ctx)
	}
}

const (
	findLate   = `SELECT 0, ticket, goods, buyer FROM seckill_hand_log WHERE status = 0 AND created_at < UTC_TIMESTAMP(3) - INTERVAL 5 SECOND LIMIT 100`
	findUnpaid = `SELECT id, ticket, goods, buyer FROM seckill_orders WHERE state = 'open' AND due_at < UTC_TIMESTAMP(3) LIMIT 100`
)

func (h *byHand) look(ctx context.Context, query string) (found []order) {
	err := eachRow(ctx, h.db, query, func(scan func(...any) error) error {
		var o order
		err := scan(&o.ID, &o.ticket.ID, &o.Goods, &o.Buyer)
		found = append(found, o)
		return err
	})
	if err != nil {
		slog.Debug("by hand: not scanned", "err", err)
	}
	return found
}

func (h *byHand) sendLate(ctx context.Context) {
	for _, o := range h.look(ctx, findLate) {
		h.send(ctx, o.ticket)
	}
}

func (h *byHand) closeUnpaid(ctx context.Context) {
	for _, o := range h.look(ctx, findUnpaid) {
		closed, err := setClosed(ctx, h.db, o.ID)
		if err != nil || !closed {
			continue
		}
		if _, err := h.db.ExecContext(ctx, `UPDATE seckill_goods SET stock = stock + 1 WHERE goods = ?`, o.Goods); err != nil {
			continue
		}
		h.redis.Incr(ctx, h.key("stock", o.Goods))
		h.redis.SRem(ctx, h.key("buyers", o.Goods), o.Buyer)
	}
}

func (h *byHand) find(ctx context.Context, p purchase) (order, error) {
	return findOrder(ctx, h.db, p, `SELECT l.ticket, COALESCE(o.id, 0), COALESCE(o.state, 'accepted'), o.due_at
		FROM seckill_hand_log l LEFT JOIN seckill_orders o ON o.ticket = l.ticket
		WHERE l.goods = ? AND l.buyer = ? ORDER BY l.created_at DESC LIMIT 1`)
}

func (h *byHand) pay(ctx context.Context, id uint64) error {
	paid, err := changed(h.db.ExecContext(ctx, `UPDATE seckill_orders SET state = 'paid', paid_at = UTC_TIMESTAMP(3) WHERE id = ? AND state = 'open'`, id))
	if err == nil && !paid {
		return errClosed
	}
	return err
}
