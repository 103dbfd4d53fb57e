package redisqueue_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/processlog"
)

// Failure: F44
func TestNotificationReachesOtherProcessesAlsoAfterALostConnection(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	server := testservers.NewRedis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	sender, receiver := openQueue(t, client, "own"), openQueue(t, client, "own")
	stop, woken := listen(t, receiver)
	awaitNotification(t, sender, "order", woken)
	require.NoError(t, client.Do(t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Err())
	awaitNotification(t, sender, "订单 2", woken)
	server.Kill()
	server.Restart(t)
	awaitNotification(t, sender, "stock", woken)
	stop()
	for _, c := range []interface{ Close() error }{sender, receiver, client} {
		assert.NoError(t, c.Close())
	}
	goleak.VerifyNone(t, ignore)
}

// woken holds the types with which Listen has called wake.
func listen(t *testing.T, q processlog.Queue) (stop func(), woken *sync.Map) {
	ctx, cancel := context.WithCancel(t.Context())
	woken = new(sync.Map)
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		q.Listen(ctx, func(businessType string) { woken.Store(businessType, true) })
	}()
	return func() { cancel(); <-returned }, woken
}

func awaitNotification(t *testing.T, sender processlog.Queue, businessType string, woken *sync.Map) {
	t.Helper()
	assert.Eventually(t, func() bool {
		_ = sender.Notify(t.Context(), []string{"other", businessType}) // A notification is lost without a subscription.
		_, got := woken.Load(businessType)
		return got
	}, eventually, 5*time.Millisecond)
}
