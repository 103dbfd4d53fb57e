package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator/processlog"
)

// redisPatience is the longest we wait for Redis to connect, take a command or answer. The queue is a hint:
// polling the database sooner beats waiting longer.
const redisPatience = 2 * time.Second

// ownRedisClient opens a client of ours to the servers the user's client talks to. It never sends a single command
// twice, because a script whose reply got lost would lease a second batch on top of the first, and it obeys
// contexts. A pipeline it may: on a cluster go-redis sends one again whose connection has failed, and what goes through
// one must bear being run twice. Hooks of the user's client are not carried over.
func ownRedisClient(theirs redis.UniversalClient) (redis.UniversalClient, error) {
	switch c := theirs.(type) {
	case *redis.Client: // a failover client is one, too: its dialer asks the sentinels
		if c != nil {
			return ownSingleClient(*c.Options()), nil
		}
	case *redis.ClusterClient:
		if c != nil {
			return ownClusterClient(*c.Options()), nil
		}
	}
	return nil, &processlog.FieldError{
		Field:  "Redis",
		Reason: fmt.Sprintf("need a *redis.Client or a *redis.ClusterClient, not nil; got %T", theirs),
	}
}

func ownSingleClient(opt redis.Options) *redis.Client {
	opt.MaxRetries = -1
	opt.ContextTimeoutEnabled = true
	opt.DialTimeout = patience(opt.DialTimeout)
	opt.ReadTimeout = patience(opt.ReadTimeout)
	opt.WriteTimeout = patience(opt.WriteTimeout)
	opt.PoolTimeout = patience(opt.PoolTimeout)
	opt.MinIdleConns = 0
	opt.Dialer = dialWithin(opt.DialTimeout, opt.Dialer)
	return redis.NewClient(&opt)
}

func ownClusterClient(opt redis.ClusterOptions) *redis.ClusterClient {
	opt.MaxRetries = -1
	opt.ContextTimeoutEnabled = true
	opt.DialTimeout = patience(opt.DialTimeout)
	opt.ReadTimeout = patience(opt.ReadTimeout)
	opt.WriteTimeout = patience(opt.WriteTimeout)
	opt.PoolTimeout = patience(opt.PoolTimeout)
	opt.MinIdleConns = 0
	// A replica may lag behind what we wrote a moment ago.
	opt.ReadOnly, opt.RouteByLatency, opt.RouteRandomly = false, false, false
	cluster := redis.NewClusterClient(&opt)
	cluster.OnNewNode(func(node *redis.Client) { node.AddHook(sendOnce{}) })
	return cluster
}

// patience caps a timeout; go-redis spells "for ever" as zero or less once options are in use.
func patience(theirs time.Duration) time.Duration {
	if theirs > 0 && theirs < redisPatience {
		return theirs
	}
	return redisPatience
}

type redisDialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialWithin bounds a dialer that was built with the user's, perhaps longer, timeout.
func dialWithin(timeout time.Duration, dial redisDialer) redisDialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return dial(ctx, network, addr)
	}
}

// sendOnce keeps a cluster client from sending a single command again after the connection failed, while it still
// follows redirections: it decides by the error's type and text, so both are hidden from it. Of a pipeline it decides
// before any hook hears of the error.
type sendOnce struct{}

func (sendOnce) DialHook(next redis.DialHook) redis.DialHook { return next }

func (sendOnce) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return hideConnError(next(ctx, cmd)) }
}

func (sendOnce) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// hiddenError deliberately has no Unwrap; shownError takes the cause out again.
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
