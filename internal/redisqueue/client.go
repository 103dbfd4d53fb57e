package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator/processlog"
)

// redisTimeout is the longest we wait for Redis to connect, take a command or answer. The queue is a hint:
// polling the database sooner beats waiting longer.
const redisTimeout = 2 * time.Second

// leastConns is how many connections to a server the queue needs: one for commands, and one on which it listens.
const leastConns = 2

// ownRedisClient opens a client of ours to the servers the user's client talks to. The client sends no single command twice,
// because a script whose reply got lost would lease a second batch on top of the first, and it obeys contexts. It may send a
// pipeline twice: on a cluster go-redis repeats one whose connection has failed, and what goes through a pipeline must bear
// that. Hooks of the user's client are not carried over. The client opens no more connections to a server than the user's
// MaxActiveConns; a cap below leastConns is refused.
func ownRedisClient(theirs redis.UniversalClient) (redis.UniversalClient, error) {
	switch c := theirs.(type) {
	case *redis.Client: // a failover client is one, too: its dialer asks the sentinels
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
		Reason: fmt.Sprintf("need a *redis.Client or a *redis.ClusterClient, not nil; got %T", theirs),
	}
}

// refuseCap returns an error for a MaxActiveConns that the queue cannot work with.
func refuseCap(most int) error {
	if most <= 0 || most >= leastConns {
		return nil
	}
	return &processlog.FieldError{
		Field: "Redis",
		Reason: fmt.Sprintf("its MaxActiveConns is %d, and the library needs %d in a client of its own: one for commands, and one on which it listens",
			most, leastConns),
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
	// A replica may lag behind what we wrote a moment ago.
	opt.ReadOnly, opt.RouteByLatency, opt.RouteRandomly = false, false, false
	cluster := redis.NewClusterClient(&opt)
	cluster.OnNewNode(func(node *redis.Client) { node.AddHook(sendOnce{}) })
	return cluster
}

// poolWithin returns the size of a pool that opens at most most connections together with the one on which we listen.
// Commands wait for a connection of a full pool, for redisTimeout. Where go-redis meets MaxActiveConns, it fails a command
// at once, and refuses a subscription even where no command is under way.
func poolWithin(size, most int) int {
	if most > 0 && (size <= 0 || size > most-1) {
		return most - 1
	}
	return size
}

// lifetime is how long the user lets a connection live; 0: for ever.
func lifetime(client redis.UniversalClient) time.Duration {
	switch c := client.(type) {
	case *redis.Client:
		return c.Options().ConnMaxLifetime
	case *redis.ClusterClient:
		return c.Options().ConnMaxLifetime
	}
	return 0
}

// withTimeout caps a timeout; go-redis spells "for ever" as zero or less once options are in use.
func withTimeout(theirs time.Duration) time.Duration {
	if theirs > 0 && theirs < redisTimeout {
		return theirs
	}
	return redisTimeout
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
