package chaos

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

const redisClockMoved = "redis clock moved"

var (
	wholeQueue = []string{history.TouchesQueue}
	queueLost  = []string{history.TouchesQueue, history.TouchesQueueData}
)

var redisFaults = []fault{
	{kind: "redis killed", takes: time.Second, holds: 0.5, touches: queueLost, needs: redisPair, strike: func(k *strike) error {
		k.begin("redis")
		k.redis[k.main].Kill()
		k.hold(0.5)
		k.redis[k.main].Restart(k.tb)
		return nil
	}},
	{kind: "redis paused", holds: 1, touches: wholeQueue, needs: redisPair, strike: func(k *strike) error {
		k.begin("redis")
		k.redis[k.main].Pause()
		k.hold(1)
		k.redis[k.main].Resume()
		return nil
	}},
	{kind: "redis failover, lossy", takes: 2 * time.Second, holds: 0.5, touches: queueLost, needs: redisPair, strike: (*strike).failOver},
	{kind: "redis flushed", touches: queueLost, shares: redisPair, strike: func(k *strike) error {
		return k.tellRedis(func(ctx context.Context, c *redis.Client) error { return c.FlushAll(ctx).Err() })
	}},
	{kind: "redis type lost", touches: queueLost, shares: redisPair, strike: func(k *strike) error {
		return k.tellRedis(func(ctx context.Context, c *redis.Client) error {
			keys, err := k.dueKeys(ctx)
			if err != nil || len(keys) == 0 {
				return cmp.Or(err, errNothingHit)
			}
			names := slices.Sorted(maps.Keys(keys))
			return c.Del(ctx, names[k.rand.IntN(len(names))]).Err()
		})
	}},
	{kind: "redis scripts flushed", touches: nil, shares: redisPair, strike: func(k *strike) error {
		return k.tellRedis(func(ctx context.Context, c *redis.Client) error { return c.ScriptFlush(ctx).Err() })
	}},
	{kind: "redis clients paused", holds: 1, touches: wholeQueue, shares: redisPair, strike: func(k *strike) error {
		d := k.lasting(1)
		return k.tellRedis(func(ctx context.Context, c *redis.Client) error {
			if err := c.ClientPause(ctx, d).Err(); err != nil {
				return err
			}
			wait(k.ctx, d)
			return nil
		})
	}},
	{kind: "redis full", holds: 1, touches: wholeQueue, needs: "redis memory", shares: redisPair, strike: func(k *strike) error {
		return k.tellRedis(func(ctx context.Context, c *redis.Client) error {
			if err := c.ConfigSet(ctx, "maxmemory", "1mb").Err(); err != nil {
				return err
			}
			k.hold(1)
			return c.ConfigSet(ctx, "maxmemory", "0").Err()
		})
	}},
	{kind: redisClockMoved, holds: 1, touches: []string{history.TouchesQueueClock}, needs: redisClockMoved, strike: func(k *strike) error {
		return k.moveClock(redisClock)
	}},
}

func (k *strike) tellRedis(say func(ctx context.Context, c *redis.Client) error) error {
	client := k.mainRedis()
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(k.ctx), time.Minute)
	defer cancel()
	k.begin("redis")
	return say(ctx, client)
}

func (k *strike) failOver() error {
	k.begin("redis")
	old, newMain := k.main, 1-k.main
	k.lines[old].Refuse()
	k.hold(0.5)
	client := k.redisClient(newMain)
	defer client.Close()
	if err := client.SlaveOf(context.WithoutCancel(k.ctx), "NO", "ONE").Err(); err != nil {
		return err
	}
	k.main = newMain
	for _, p := range k.proxies {
		p.redis.Retarget(k.redis[newMain].Addr())
		p.redis.Cut()
	}
	k.redis[old].Kill()
	k.lines[old].Heal()
	k.redis[old].Restart(k.tb)
	k.follow(old, newMain)
	return nil
}
