package harness

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/testservers"
)

func (w *World) Queued() (n int64) {
	w.T.Helper()
	keys, err := w.Redis.Keys(w.T.Context(), "{"+w.Name+":*:due").Result()
	require.NoError(w.T, err)
	for _, key := range keys {
		members, err := w.Redis.ZCount(w.T.Context(), key, "-inf", "4e15").Result()
		require.NoError(w.T, err)
		n += members
	}
	return n
}

func RedisClient(t *testing.T, server *testservers.RedisServer) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return client
}

func (w *World) DueKey(businessType string) string {
	return "{" + w.Name + ":v1:0}:" + businessType + ":0:due"
}

// CompleteMark returns a special member of DueKey. While DueKey has it, the queue holds all entries of the type.
func (w *World) CompleteMark(businessType string) string { return "whole " + w.DueKey(businessType) }

func (w *World) WithRedis() *World {
	server := testservers.SharedRedis(w.T)
	w.Redis = redis.NewClient(&redis.Options{Addr: server.Addr()})
	w.Name = server.Prefix(w.T)
	w.T.Cleanup(func() { _ = w.Redis.Close() })
	return w
}

func (w *World) ThroughProxy(cfg *compensator.Config) *faultproxy.TCP {
	w.T.Helper()
	proxy, err := faultproxy.NewTCP(w.Redis.Options().Addr)
	require.NoError(w.T, err)
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), DialTimeout: 200 * time.Millisecond, MaxRetries: -1})
	w.T.Cleanup(func() {
		assert.NoError(w.T, client.Close())
		assert.NoError(w.T, proxy.Close())
	})
	cfg.Redis = client
	return proxy
}

func (w *World) InQueue(id compensator.EntryID) bool {
	return w.Redis.ZScore(w.T.Context(), w.DueKey("close_order"), id.String()).Err() == nil
}

func (w *World) WaitInQueue(id compensator.EntryID) {
	w.T.Helper()
	w.Eventually(func() bool { return w.InQueue(id) }, "the queue knows entry %s", id)
}

func (w *World) WaitComplete(businessType string) {
	w.T.Helper()
	key := w.DueKey(businessType)
	w.Eventually(func() bool { return w.Redis.ZScore(w.T.Context(), key, w.CompleteMark(businessType)).Err() == nil }, "the queue of %s is whole", businessType)
}
