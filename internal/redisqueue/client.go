package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator/processlog"
)

// redisTimeout limits the connect, the write and the read of a command. The queue is only a hint, so do not wait longer.
const redisTimeout = 2 * time.Second

// leastConns is one connection for commands and one for the subscription.
const leastConns = 2

// ownRedisClient opens a separate client to the servers of the user's client, without its hooks. It obeys contexts, and
// opens at most the user's MaxActiveConns connections to a server. A limit below leastConns is an error.
//
// It never sends a single command twice, because a claim whose reply got lost would lease a second batch. Scripts in a
// pipeline must be safe to repeat, because on a cluster go-redis repeats a pipeline whose connection has failed.
func ownRedisClient(userClient redis.UniversalClient) (redis.UniversalClient, error) {
	switch c := userClient.(type) {
	case *redis.Client: // also a failover client, whose dialer asks the sentinels
		if c != nil {
			opt := *c.Options()
			if err := refuseCap(opt.MaxActiveConns); err != nil {
				return nil, err
			}
			return ownSingleClient(opt), nil
		}
	case *redis.ClusterClient:
		if c != nil {
			opt := *c.Options()
			if err := refuseCap(opt.MaxActiveConns); err != nil {
				return nil, err
			}
			return ownClusterClient(opt), nil
		}
	}
	return nil, &processlog.FieldError{
		Field:  "Redis",
		Reason: fmt.Sprintf("need a *redis.Client or a *redis.ClusterClient, not nil; got %T", userClient),
	}
}

func refuseCap(maximum int) error {
	if maximum <= 0 || maximum >= leastConns {
		return nil
	}
	return &processlog.FieldError{
		Field: "Redis",
		Reason: fmt.Sprintf("its MaxActiveConns is %d, but the library needs at least %d for its own client: one for commands, and one to listen",
			maximum, leastConns),
	}
}

func ownSingleClient(opt redis.Options) *redis.Client {
	opt.MaxRetries = -1
	opt.ContextTimeoutEnabled = true
	opt.DialTimeout = withTimeout(opt.DialTimeout)
	opt.ReadTimeout = withTimeout(opt.ReadTimeout)
	opt.WriteTimeout = withTimeout(opt.WriteTimeout)
	opt.PoolTimeout = redisTimeout
	opt.PoolSize, opt.MaxActiveConns = poolWithin(opt.PoolSize, opt.MaxActiveConns), 0
	opt.MinIdleConns = 0
	opt.Dialer = new(era).watch(dialWithin(opt.DialTimeout, opt.Dialer))
	return redis.NewClient(&opt)
}

func ownClusterClient(opt redis.ClusterOptions) *redis.ClusterClient {
	opt.MaxRetries = -1
	opt.ContextTimeoutEnabled = true
	opt.DialTimeout = withTimeout(opt.DialTimeout)
	opt.ReadTimeout = withTimeout(opt.ReadTimeout)
	opt.WriteTimeout = withTimeout(opt.WriteTimeout)
	opt.PoolTimeout = redisTimeout
	opt.PoolSize, opt.MaxActiveConns = poolWithin(opt.PoolSize, opt.MaxActiveConns), 0
	opt.MinIdleConns = 0
	// A replica may lag behind recent writes.
	opt.ReadOnly, opt.RouteByLatency, opt.RouteRandomly = false, false, false
	cluster := redis.NewClusterClient(&opt)
	cluster.OnNewNode(func(node *redis.Client) { node.AddHook(sendOnce{}) })
	return cluster
}

// poolWithin returns the size of the connection pool. One connection below the user's limit stays free for the
// subscription. The pool size takes the place of MaxActiveConns. With MaxActiveConns, go-redis would fail a command at
// the limit, and with the pool size, the command waits for a connection.
func poolWithin(size, limit int) int {
	if limit > 0 && (size <= 0 || size > limit-1) {
		return limit - 1
	}
	return size
}

func lifetime(client redis.UniversalClient) time.Duration {
	switch c := client.(type) {
	case *redis.Client:
		return c.Options().ConnMaxLifetime
	case *redis.ClusterClient:
		return c.Options().ConnMaxLifetime
	}
	return 0
}

// In the options of an open client, zero or less means "no timeout".
func withTimeout(userTimeout time.Duration) time.Duration {
	if userTimeout > 0 && userTimeout < redisTimeout {
		return userTimeout
	}
	return redisTimeout
}

// sendOnce keeps a cluster client from sending a command a second time. A cluster client does this after a connection
// failure, so sendOnce hides the failure from the client. sendOnce cannot do this for pipelines, because the client decides
// before it calls hooks.
type sendOnce struct{}

func (sendOnce) DialHook(next redis.DialHook) redis.DialHook { return next }

func (sendOnce) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return hideConnError(next(ctx, cmd)) }
}

func (sendOnce) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// hiddenError has no Unwrap, so that a cluster client does not recognise a connection failure.
type hiddenError struct{ cause error }

func (e *hiddenError) Error() string { return "connection to a cluster node: " + e.cause.Error() }

func hideConnError(err error) error {
	var answered redis.Error
	if err == nil || errors.As(err, &answered) {
		return err
	}
	return &hiddenError{err}
}

func shownError(err error) error {
	var hidden *hiddenError
	if errors.As(err, &hidden) {
		return hidden.cause
	}
	return err
}
