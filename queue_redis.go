package compensator

import (
	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator/internal/redisqueue"
	"github.com/compensator-go/compensator/processlog"
)

// openRedisQueue opens the queue on Redis. It does not connect yet. Only this file knows the package redisqueue.
func openRedisQueue(client redis.UniversalClient, prefix string) (processlog.Queue, error) {
	queue, err := redisqueue.Open(client, prefix)
	if err != nil {
		return nil, err
	}
	return queue, nil
}

// prefixProblem returns what is wrong with Config.Prefix, or "".
func prefixProblem(prefix string) string { return redisqueue.PrefixProblem(prefix) }
