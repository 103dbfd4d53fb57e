package compensator

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// The conformance suite imports this package, so the tests that run it live outside and open queues here.

type RedisQueue = redisQueue

func OpenRedisQueue(client redis.UniversalClient, prefix string) (*RedisQueue, error) {
	return newRedisQueue(client, prefix)
}

func OpenWheel() Queue { return newWheel() }

func (q *redisQueue) DueKey(businessType string) string         { return q.keys.due(businessType) }
func (q *redisQueue) EpochKey() string                          { return q.keys.epoch(0) }
func (q *redisQueue) OwnerKey(tag uint32) string                { return q.keys.owner(tag) }
func (q *redisQueue) EvictionPolicy(ctx context.Context) string { return q.evicts(ctx) }
