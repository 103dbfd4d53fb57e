package shop

import (
	"context"
	"database/sql"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
)

// Manual holds what the hand-written versions of both sales share.
type Manual struct {
	Settings
	Tables
	DB    *sql.DB
	Redis *redis.Client
	Name  string
}

// Key returns a key in Redis.
func (h *Manual) Key(subject, goods string) string { return h.Name + ":hand:" + subject + ":" + goods }

// Warm sets the stock in Redis unless it is set.
func (h *Manual) Warm(ctx context.Context) { h.Redis.SetNX(ctx, h.Key("stock", h.Goods), h.Stock, 0) }

const findUnpaid = `SELECT ticket, goods, buyer FROM shop_orders WHERE state = 'open' AND due_at < UTC_TIMESTAMP(3) LIMIT 100`

// CloseUnpaid closes orders whose time is up.
func (h *Manual) CloseUnpaid(ctx context.Context) {
	for _, t := range h.Scan(ctx, findUnpaid) {
		closed, err := h.SetClosed(ctx, h.DB, t)
		if err != nil || !closed {
			continue
		}
		if _, err := h.DB.ExecContext(ctx, h.SQL(`UPDATE shop_goods SET stock = stock + 1 WHERE goods = ?`), t.Goods); err != nil {
			continue
		}
		h.Redis.Incr(ctx, h.Key("stock", t.Goods))
		h.Redis.SRem(ctx, h.Key("buyers", t.Goods), t.Buyer)
	}
}

// Scan logs an error and returns what it has read.
func (h *Manual) Scan(ctx context.Context, query string) (found []Ticket) {
	err := EachRow(ctx, h.DB, h.SQL(query), func(scan func(...any) error) error {
		var t Ticket
		err := scan(&t.ID, &t.Goods, &t.Buyer)
		found = append(found, t)
		return err
	})
	if err != nil {
		slog.Debug("manual: scan failed", "err", err)
	}
	return found
}

// EverySecond runs a function once a second until ctx ends.
func EverySecond(ctx context.Context, call func(context.Context)) {
	for pause(ctx, time.Second) {
		call(ctx)
	}
}

// Pay marks an order as paid. It returns ErrClosed if the order is not open.
func (h *Manual) Pay(ctx context.Context, id uint64) error {
	paid, err := Changed(h.DB.ExecContext(ctx, h.SQL(`UPDATE shop_orders SET state = 'paid', paid_at = UTC_TIMESTAMP(3) WHERE id = ? AND state = 'open'`), id))
	if err == nil && !paid {
		return ErrClosed
	}
	return err
}
