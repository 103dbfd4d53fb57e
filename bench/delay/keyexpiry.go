package delay

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator/internal/testservers"
)

// The server runs with notify-keyspace-events Ex, as Redis's documentation describes. SET … PX takes milliseconds,
// SETEX only whole seconds.
type keyExpiry struct{}

const (
	expiryKey     = "order:"
	expiryChannel = "__keyevent@0__:expired"
)

func (keyExpiry) prepare(tb testing.TB) (place, error) {
	return newRedis(tb, "--notify-keyspace-events", "Ex")
}

func newRedis(tb testing.TB, flags ...string) (place, error) {
	p := place{Redis: testservers.NewRedis(tb, flags...).Addr()}
	client := redis.NewClient(&redis.Options{Addr: p.Redis})
	defer client.Close()
	info, err := client.Info(tb.Context(), "server").Result()
	for line := range strings.Lines(info) {
		if version, found := strings.CutPrefix(line, "redis_version:"); found {
			p.Versions = "redis " + strings.TrimSpace(version)
		}
	}
	return p, err
}

func (keyExpiry) serve(ctx context.Context, p place, fire fire) (record, error) {
	client := redis.NewClient(&redis.Options{Addr: p.Redis})
	events := client.Subscribe(ctx, expiryChannel)
	if _, err := events.Receive(ctx); err != nil { // Wait for the confirmation of the subscription.
		return nil, err
	}
	go func() {
		for event := range events.Channel() {
			n, err := strconv.Atoi(strings.TrimPrefix(event.Payload, expiryKey))
			must(err)
			fire(n, 0)
		}
	}()
	return func(ctx context.Context, n int, delay time.Duration) error {
		return client.Set(ctx, expiryKey+strconv.Itoa(n), "", delay).Err()
	}, nil
}

func (keyExpiry) unfinished(ctx context.Context, p place) (numbers []int, err error) {
	client := redis.NewClient(&redis.Options{Addr: p.Redis})
	defer client.Close()
	keys := client.Scan(ctx, 0, expiryKey+"*", 1000).Iterator()
	for keys.Next(ctx) {
		n, err := strconv.Atoi(strings.TrimPrefix(keys.Val(), expiryKey))
		if err != nil {
			return nil, fmt.Errorf("key %q: %w", keys.Val(), err)
		}
		numbers = append(numbers, n)
	}
	return numbers, keys.Err()
}
