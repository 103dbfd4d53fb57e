package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator/internal/report"
)

// Notify publishes each type on the channel of the prefix. In a cluster every node forwards the messages. The caller's
// own Listen receives them, too.
func (q *Queue) Notify(ctx context.Context, businessTypes []string) error {
	if len(businessTypes) == 0 {
		return nil
	}
	pipe := q.client.Pipeline()
	for _, businessType := range businessTypes {
		pipe.Publish(ctx, q.keys.wake(), businessType)
	}
	_, err := pipe.Exec(ctx)
	return wrapQueueError("notify", q.wrapError(ctx, err))
}

const (
	listenSilence = 3 * time.Second        // Listen pings the server after this time without a message
	listenPause   = 200 * time.Millisecond // pause before a new connection attempt
	listenLeast   = 5 * time.Second        // minimum duration of a subscription
)

// errOutlived ends a subscription whose connection has reached the user's ConnMaxLifetime.
var errOutlived = errors.New("listen: the connection has reached ConnMaxLifetime")

// Listen subscribes again when the connection is lost or has reached the client's ConnMaxLifetime. By then the address
// may lead to another server, although the old server still answers. When ctx has ended, Listen returns after at most
// one more connection attempt.
func (q *Queue) Listen(ctx context.Context, wake func(businessType string)) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		err := q.listenOnce(ctx, wake)
		if errors.Is(err, errOutlived) {
			pause.Reset(0)
			continue
		}
		if err := q.wrapError(ctx, err); ctx.Err() == nil {
			report.Send(ctx, report.Listen, err)
		}
		pause.Reset(listenPause)
	}
}

// listenOnce receives messages until ctx ends, the connection fails or stays silent, or the connection has reached its
// lifetime. A lost notification delays an entry by a few seconds at most.
func (q *Queue) listenOnce(ctx context.Context, wake func(businessType string)) error {
	subscription := q.client.Subscribe(ctx, q.keys.wake())
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		_ = subscription.Close() // This unblocks ReceiveTimeout below.
	})
	// Close the subscription on every path, exactly once, so that nothing remains when Listen returns.
	defer func() {
		if stop() {
			_ = subscription.Close()
		} else {
			<-closed
		}
	}()
	startedAt, life := time.Now(), lifetime(q.client)
	for pinged := false; ; {
		if life > 0 && time.Since(startedAt) >= max(life, listenLeast) {
			return errOutlived
		}
		message, err := subscription.ReceiveTimeout(ctx, listenSilence)
		var network net.Error
		switch {
		case err == nil:
			pinged = false
			report.Send(ctx, report.Listen, nil)
		case ctx.Err() != nil:
			return ctx.Err()
		// Silence may mean that there is nothing to send, or that the connection is dead. Ping once. If the server is
		// still silent after the ping, the subscription ends.
		case errors.As(err, &network) && network.Timeout() && !pinged:
			pinged = true
			if err := subscription.Ping(ctx); err != nil {
				return fmt.Errorf("listen: %w", err)
			}
		default:
			return fmt.Errorf("listen: %w", err)
		}
		if m, ok := message.(*redis.Message); ok && err == nil {
			wake(m.Payload)
		}
	}
}
