package faultproxy

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/testservers"
)

func proxiedRedis(t *testing.T) (proxy *TCP, through, past *redis.Client, key string) {
	server := testservers.SharedRedis(t)
	proxy, err := NewTCP(server.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, proxy.Close()) })
	through = redis.NewClient(&redis.Options{Addr: proxy.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true, DisableIdentity: true})
	t.Cleanup(func() { through.Close() })
	past = redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { past.Close() })
	return proxy, through, past, server.Prefix(t)
}

func TestSwallowedReplyWasDone(t *testing.T) {
	proxy, through, past, key := proxiedRedis(t)
	require.NoError(t, through.Set(t.Context(), key, "before", 0).Err())
	proxy.SwallowReplies()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.Error(t, through.Set(ctx, key, "after", 0).Err())
	require.Eventually(t, func() bool { return past.Get(t.Context(), key).Val() == "after" && proxy.Swallowed() > 0 }, waitTimeout, time.Millisecond)

	proxy.Heal()
	require.NoError(t, through.Set(t.Context(), key, "healed", 0).Err())
}

func TestLatencyDelaysReplies(t *testing.T) {
	proxy, through, _, key := proxiedRedis(t)
	require.NoError(t, through.Ping(t.Context()).Err())
	proxy.Latency(100 * time.Millisecond)
	start := time.Now()
	require.NoError(t, through.Set(t.Context(), key, "late", 0).Err())
	assert.GreaterOrEqual(t, time.Since(start), 100*time.Millisecond)
}

func TestCutConnectionsAreReplaced(t *testing.T) {
	proxy, through, _, key := proxiedRedis(t)
	require.NoError(t, through.Set(t.Context(), key, "1", 0).Err())
	require.Equal(t, 1, proxy.Connections())
	proxy.Cut()
	require.Eventually(t, func() bool { return proxy.Connections() == 0 }, waitTimeout, time.Millisecond)
	require.Eventually(t, func() bool { return through.Set(t.Context(), key, "2", 0).Err() == nil }, waitTimeout, time.Millisecond)
}

func TestRefusedConnectionsFailUntilHealed(t *testing.T) {
	proxy, through, _, key := proxiedRedis(t)
	proxy.Refuse()
	require.Error(t, through.Set(t.Context(), key, "1", 0).Err())
	proxy.Heal()
	require.NoError(t, through.Set(t.Context(), key, "2", 0).Err())
}

func TestRetargetedProxyLeadsNewConnectionsElsewhere(t *testing.T) {
	proxy, through, past, key := proxiedRedis(t)
	require.NoError(t, through.Set(t.Context(), key, "first", 0).Err())
	other := testservers.NewRedis(t)
	proxy.Retarget(other.Addr())
	require.Equal(t, "first", through.Get(t.Context(), key).Val(), "a connection there was moved")

	proxy.Cut()
	require.Eventually(t, func() bool { return through.Get(t.Context(), key).Err() == redis.Nil }, waitTimeout, time.Millisecond)
	require.NoError(t, through.Set(t.Context(), key, "second", 0).Err())
	require.Equal(t, "first", past.Get(t.Context(), key).Val())
	require.Equal(t, 1, proxy.Connections())
}
