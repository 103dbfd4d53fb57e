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

// Notify publishes each type on the prefix's channel. In a cluster every node passes it on. The caller's own
// Listen hears it, too.
func (q *Queue) Notify(ctx context.Context, businessTypes []string) error {
	if len(businessTypes) == 0 {
		return nil
	}
	pipe := q.client.Pipeline()
	for _, businessType := range businessTypes {
		pipe.Publish(ctx, q.keys.wake(), businessType)
	}
	_, err := pipe.Exec(ctx)
	return wrapQueueError("notify", q.failed(ctx, err))
}

const (
	listenSilence = 3 * time.Second        // this long without a message, and we ask whether the server lives
	listenPause   = 200 * time.Millisecond // between attempts to connect
	listenLeast   = 5 * time.Second        // how long a subscription lasts at least
)

// errOutlived ends a subscription whose connection is as old as the user lets connections become.
var errOutlived = errors.New("listen: the connection has reached ConnMaxLifetime")

// Listen subscribes anew whenever the connection is lost, or has reached the client's ConnMaxLifetime: the address may lead to
// another server by now, and the former one may be up. It returns once ctx has ended, at the latest after the time a connection
// attempt takes.
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
		if err := q.failed(ctx, err); ctx.Err() == nil {
			report.Send(ctx, report.Listen, err)
		}
		pause.Reset(listenPause)
	}
}

// listenOnce receives until the connection fails, stays silent or has lived its time, or ctx ends. A lost notification costs a
// few seconds at most.
func (q *Queue) listenOnce(ctx context.Context, wake func(businessType string)) error {
	subscription := q.client.Subscribe(ctx, q.keys.wake())
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		_ = subscription.Close() // ends the read below
	})
	// Closed on every way out, and by one of the two only: Listen has left nothing behind when it returns.
	defer func() {
		if stop() {
			_ = subscription.Close()
		} else {
			<-closed
		}
	}()
	began, life := time.Now(), lifetime(q.client)
	for asked := false; ; {
		if life > 0 && time.Since(began) >= max(life, listenLeast) {
			return errOutlived
		}
		message, err := subscription.ReceiveTimeout(ctx, listenSilence)
		var network net.Error
		switch {
		case err == nil:
			asked = false
			report.Send(ctx, report.Listen, nil)
		case ctx.Err() != nil:
			return ctx.Err()
		// Silence may be rest, or a connection that is dead and does not say so. A second one, after the question,
		// ends it.
		case errors.As(err, &network) && network.Timeout() && !asked:
			asked = true
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
