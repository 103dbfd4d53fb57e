package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"testing"

	"github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/examples/internal/servers"
	"github.com/compensator-go/compensator/examples/internal/shop"
)

// plain is the service without the log: ticket, stock and order in one transaction, and nothing else.
type plain struct{ *sale }

func (p plain) Sell(ctx context.Context, wanted shop.Purchase) (shop.Ticket, error) {
	return p.sellBare(ctx, wanted, func(tx *sql.Tx, t shop.Ticket) error { return p.InsertOrder(ctx, tx, t, p.Window) })
}

// sellBare sells a piece without the log. The parameter more is a function that runs further statements in the
// transaction.
func (s *sale) sellBare(ctx context.Context, wanted shop.Purchase, more func(*sql.Tx, shop.Ticket) error) (shop.Ticket, error) {
	t := shop.NewTicket(wanted)
	if err := s.counter.take(ctx, &t); err != nil {
		return t, err
	}
	tx, err := s.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return t, err
	}
	defer tx.Rollback()
	if err := s.InsertTicket(ctx, tx, t); err != nil {
		return t, err
	}
	if err := more(tx, t); err != nil {
		return t, err
	}
	if err := s.TakeStock(ctx, tx, t); err != nil {
		return t, err
	}
	if err := tx.Commit(); err != nil {
		return t, err
	}
	return t, s.counter.confirm(ctx, t)
}

// unlogged sells as sale does, but without the log. It stores the ticket and then sends a message, and a consumer makes
// the order.
type unlogged struct {
	*sale
	out   *amqp091.Channel
	queue string
}

func (u unlogged) Sell(ctx context.Context, wanted shop.Purchase) (shop.Ticket, error) {
	t, err := u.sellBare(ctx, wanted, func(*sql.Tx, shop.Ticket) error { return nil })
	if err != nil {
		return t, err
	}
	body, err := json.Marshal(t)
	if err != nil {
		return t, err
	}
	confirm, err := u.out.PublishWithDeferredConfirmWithContext(ctx, "", u.queue, true, false,
		amqp091.Publishing{DeliveryMode: amqp091.Persistent, MessageId: t.ID, Body: body})
	if err != nil {
		return t, err
	}
	if taken, err := confirm.WaitContext(ctx); err != nil || !taken {
		return t, shop.ErrBusy
	}
	return t, nil
}

func openUnlogged(b *testing.B, on servers.Servers, ours *sale) unlogged {
	conn, err := amqp091.Dial(on.AMQP)
	require.NoError(b, err)
	b.Cleanup(func() { _ = conn.Close() })
	out, channel := channelOf(b, conn), channelOf(b, conn)
	queue := rand.Text()
	require.NoError(b, servers.Declare(queue)(channel))
	b.Cleanup(func() { _, err := channel.QueueDelete(queue, false, false, false); require.NoError(b, err) })
	require.NoError(b, out.Confirm(false))
	require.NoError(b, channel.Qos(speedWorkers, 0, false))
	messages, err := channel.Consume(queue, "", false, false, false, false, nil)
	require.NoError(b, err)
	for range speedWorkers {
		go func() {
			for m := range messages {
				var t shop.Ticket
				err := json.Unmarshal(m.Body, &t)
				if err == nil {
					err = ours.InsertOrder(context.Background(), ours.DB, t, ours.Window)
				}
				if err == nil {
					_ = m.Ack(false)
				}
			}
		}()
	}
	return unlogged{sale: ours, out: out, queue: queue}
}

func channelOf(b *testing.B, conn *amqp091.Connection) *amqp091.Channel {
	channel, err := conn.Channel()
	require.NoError(b, err)
	return channel
}
