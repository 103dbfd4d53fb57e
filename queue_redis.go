package compensator

import (
	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator/internal/redisqueue"
	"github.com/compensator-go/compensator/processlog"
)

func openRedisQueue(client redis.UniversalClient, prefix string) (processlog.Queue, error) {
	queue, err := redisqueue.Open(client, prefix)
	if err != nil {
		return nil, err
	}
	return queue, nil
}

func prefixProblem(prefix string) string { return redisqueue.PrefixProblem(prefix) }
