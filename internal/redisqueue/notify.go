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

// Notify publishes each type on the channel of the prefix. The caller's own Listen receives it, too.
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

var errOutlived = errors.New("listen: the connection has reached ConnMaxLifetime")

// Listen subscribes again when the connection is lost or has reached ConnMaxLifetime, because the address may lead to
// another server by then. When ctx has ended, it returns after at most one more connection attempt.
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

func (q *Queue) listenOnce(ctx context.Context, wake func(businessType string)) error {
	subscription := q.client.Subscribe(ctx, q.keys.wake())
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		_ = subscription.Close() // This unblocks ReceiveTimeout.
	})
	// Close the subscription exactly once on every path, so that nothing remains when Listen returns.
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
		// The connection may be dead. If the server is still silent after a ping, the subscription ends.
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
