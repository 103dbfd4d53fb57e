package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"
)

// manual is a typical hand-written version, for comparison with sync.go. It has these parts:
//   - Rows with a status.
//   - Messages without confirms.
//   - A lock of 30 s in Redis.
//   - A scan that sends late users once more. It sets their status to done if the message is sent, and else to failed.
type manual struct {
	servers
	settings
	db    *sql.DB
	redis *redis.Client

	mu      sync.Mutex // guards channel
	channel *amqp091.Channel
}

const createHandLog = `CREATE TABLE IF NOT EXISTS usersync_hand_log (
	id         BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
	batch      VARCHAR(40) COLLATE utf8mb4_bin NOT NULL,
	user       VARCHAR(64) COLLATE utf8mb4_bin NOT NULL,
	status     TINYINT NOT NULL DEFAULT 0 COMMENT '0 waits, 1 done, 3 failed',
	created_at DATETIME(3) NOT NULL,
	KEY (status, created_at), UNIQUE KEY (batch, user)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin`

const (
	waits  = 0
	done   = 1
	failed = 3
)

func (h *manual) routes(mux *http.ServeMux) {
	mux.HandleFunc("POST /batches", answer(http.StatusCreated, uploadRequest(h.upload)))
}

func (h *manual) upload(ctx context.Context, u *upload) (batch, error) {
	err := h.insert(ctx, u)
	if isDuplicate(err) {
		return sameBatch(ctx, h.db, u)
	}
	if err != nil {
		return batch{}, err
	}
	for _, one := range u.Users {
		m := message{Batch: u.Batch, User: one.ID}
		if fateOf(one, h.seed).vanishes(0) {
			continue
		}
		if err := h.send(ctx, m, 0, u.Trace); err != nil {
			slog.Warn("manual: message not sent", "err", err)
		}
	}
	return findBatch(ctx, h.db, u.Batch)
}

func (h *manual) insert(ctx context.Context, u *upload) error {
	tx, err := h.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := insertBatch(ctx, tx, u); err != nil {
		return err
	}
	for _, one := range u.Users {
		_, err := tx.ExecContext(ctx, `INSERT INTO usersync_hand_log (batch, user, created_at) VALUES (?, ?, UTC_TIMESTAMP(3))`, u.Batch, one.ID)
		if err != nil {
			return err
		}
	}
	return tx.Commit()
}

// send does not wait until the broker has the message. If the connection breaks after send has returned, the message
// may be lost.
func (h *manual) send(ctx context.Context, m message, sending int, trace string) error {
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.channel == nil {
		return amqp091.ErrClosed
	}
	return h.channel.PublishWithContext(ctx, "", h.queue(), false, false, amqp091.Publishing{
		DeliveryMode: amqp091.Persistent, Body: body, Headers: amqp091.Table{sendingHeader: int32(sending), traceHeader: trace}})
}

func (h *manual) run(ctx context.Context) error {
	var group sync.WaitGroup
	group.Go(func() { h.scan(ctx) })
	for ctx.Err() == nil {
		if err := h.serve(ctx); err != nil && ctx.Err() == nil {
			slog.Warn("manual: connection lost", "err", err)
		}
		pause(ctx, 200*time.Millisecond)
	}
	group.Wait()
	return nil
}

func (h *manual) close() {}

func (h *manual) serve(ctx context.Context) error {
	conn, err := amqp091.Dial(h.AMQP)
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
	if err := errors.Join(h.declare(channel), channel.Qos(h.workers, 0, false)); err != nil {
		return err
	}
	messages, err := channel.ConsumeWithContext(ctx, h.queue(), "", false, false, false, false, nil)
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

const lockFor = 30 * time.Second

func (h *manual) consume(ctx context.Context, d amqp091.Delivery) {
	var m message
	if err := json.Unmarshal(d.Body, &m); err != nil {
		return
	}
	sending, _ := d.Headers[sendingHeader].(int32)
	trace, _ := d.Headers[traceHeader].(string)
	lock := h.Name + ":lock:" + m.Batch + ":" + m.User
	locked, err := h.redis.SetNX(ctx, lock, 1, lockFor).Result()
	if err != nil || !locked {
		return // Another consumer holds the lock.
	}
	defer h.redis.Del(ctx, lock)
	switch err := h.sync(ctx, m, int(sending), trace); {
	case errors.Is(err, errForgotten):
	case err != nil:
		_ = noteFailure(ctx, h.db, m, err)
		h.set(ctx, m, failed)
	default:
		h.set(ctx, m, done)
	}
}

func (h *manual) set(ctx context.Context, m message, status int) {
	_, err := h.db.ExecContext(ctx, `UPDATE usersync_hand_log SET status = ? WHERE batch = ? AND user = ?`, status, m.Batch, m.User)
	if err != nil {
		slog.Warn("manual: status not set", "err", err)
	}
}

func (h *manual) sync(ctx context.Context, m message, sending int, trace string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, h.limit, errTooSlow)
	defer cancel()
	u, err := findUser(ctx, h.db, m)
	if err != nil {
		return err
	}
	f := fateOf(u, h.seed)
	if f.slips(sending) {
		return errForgotten
	}
	if err := f.work(ctx, sending); err != nil {
		return err
	}
	return enter(ctx, h.db, m, trace)
}

func (h *manual) scan(ctx context.Context) {
	for pause(ctx, time.Second) {
		late := make(map[message]string) // traces by message
		err := eachRow(ctx, h.db, findLate, func(scan func(...any) error) error {
			var m message
			var trace string
			err := scan(&m.Batch, &m.User, &trace)
			late[m] = trace
			return err
		}, waits, h.delay.Microseconds())
		if err != nil {
			slog.Warn("manual: scan failed", "err", err)
			continue
		}
		for m, trace := range late {
			h.sendAgain(ctx, m, trace)
		}
	}
}

const findLate = `SELECT l.batch, l.user, b.trace FROM usersync_hand_log l JOIN usersync_batches b ON b.batch = l.batch
	WHERE l.status = ? AND l.created_at < UTC_TIMESTAMP(3) - INTERVAL ? MICROSECOND LIMIT 100`

func (h *manual) sendAgain(ctx context.Context, m message, trace string) {
	if err := h.send(ctx, m, 1, trace); err != nil {
		h.set(ctx, m, failed)
		return
	}
	h.set(ctx, m, done)
}
