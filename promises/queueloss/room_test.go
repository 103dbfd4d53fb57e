package queueloss

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/testservers"
)

// twoTypes is a process with a separate Redis. Its reconciler and its poll do not run again, so the process must use
// the queue.
type twoTypes struct {
	*harness.World
	c     *compensator.Compensator
	users *compensator.Type[harness.Order]
	ran   map[string]*harness.Calls // handler calls by business type

	mu     sync.Mutex // guards missed
	missed []error    // reasons why the queue was not used
}

func newTwoTypes(t *testing.T) *twoTypes {
	w := &twoTypes{World: harness.NewWorld(t), ran: make(map[string]*harness.Calls)}
	w.Redis, w.Name = harness.RedisClient(t, testservers.NewRedis(t)), "room"
	cfg := rarely(w.World)
	cfg.Observer.QueueDown = func(err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.missed = append(w.missed, err)
	}
	w.c = w.New(cfg)
	_, w.ran["close_order"] = harness.HandleCounted(t, w.c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	w.users, w.ran["sync_user"] = harness.HandleCounted(t, w.c, "sync_user", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(w.c)
	w.WaitComplete("close_order")
	w.WaitComplete("sync_user")
	t.Cleanup(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		assert.Empty(t, w.missed, "the queue answers")
	})
	return w
}

func (w *twoTypes) recordUser(delay time.Duration) compensator.EntryID {
	return w.Record(w.users, 1, compensator.Options{Delay: delay})
}

func (w *twoTypes) waitUser(id compensator.EntryID) {
	w.T.Helper()
	w.Eventually(func() bool { return w.Redis.ZScore(w.T.Context(), w.DueKey("sync_user"), id.String()).Err() == nil }, "entry %s waits in Redis", id)
}

func (w *twoTypes) lacking() (types []string) {
	h := w.c.Health(w.T.Context())
	assert.NoError(w.T, h.Queue)
	for _, problem := range h.Problems {
		assert.Contains(w.T, problem.What, "no room")
		types = append(types, problem.BusinessType)
	}
	slices.Sort(types)
	return types
}

func (w *twoTypes) waitLacking(types ...string) {
	w.T.Helper()
	w.Eventually(func() bool { return slices.Equal(types, w.lacking()) }, "the queue lacks entries of %q", types)
}

// Failure: F43
func TestQueueWithoutRoomIsReliedOnForWhatItHas(t *testing.T) {
	t.Parallel()
	w := newTwoTypes(t)
	waiting, far := w.RecordDelayed(w.c, 4*time.Second), w.RecordDelayed(w.c, time.Hour)
	w.WaitInQueue(waiting)
	w.WaitInQueue(far)
	require.NoError(t, w.Redis.ConfigSet(t.Context(), "maxmemory", "1").Err())
	left := []compensator.EntryID{w.RecordDelayed(w.c, time.Second), w.RecordDelayed(w.c, 2*time.Second)}
	w.waitLacking("close_order")
	for _, id := range append(left, waiting) {
		w.WaitState(id, compensator.Succeeded)
		assert.Equal(t, 1, w.ran["close_order"].Of(id))
	}
	w.Eventually(func() bool { return !w.InQueue(waiting) }, "a full Redis drains")
	late := w.RecordDelayed(w.c, time.Hour)
	require.NoError(t, w.Redis.ConfigSet(t.Context(), "maxmemory", "0").Err())
	w.WaitInQueue(late)
	w.WaitComplete("close_order")
	w.waitLacking()
}

// Failure: F46
func TestForeignKeyOfOneTypeConcernsThatTypeAlone(t *testing.T) {
	t.Parallel()
	w := newTwoTypes(t)
	// A process may add to the set between two commands, so send them as one transaction.
	_, err := w.Redis.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
		p.Del(t.Context(), w.DueKey("close_order"))
		p.RPush(t.Context(), w.DueKey("close_order"), "somebody else's")
		return nil
	})
	require.NoError(t, err)
	id := w.RecordDelayed(w.c, time.Second)
	w.waitUser(w.recordUser(time.Hour))
	w.waitLacking("close_order")
	soon := w.recordUser(2 * time.Second)
	w.WaitState(id, compensator.Succeeded)
	w.WaitState(soon, compensator.Succeeded)
	assert.Equal(t, 1, w.ran["close_order"].Of(id))
	assert.Equal(t, 1, w.ran["sync_user"].Of(soon))
	assert.Equal(t, []string{"somebody else's"}, w.Redis.LRange(t.Context(), w.DueKey("close_order"), 0, -1).Val())
	require.NoError(t, w.Redis.Del(t.Context(), w.DueKey("close_order")).Err())
	w.WaitComplete("close_order")
	w.waitLacking()
}

// The sorted set has a member that says that the set holds all entries of sync_user. The test renames the set, so it
// lies under the key of close_order.
// Failure: F46
func TestSortedSetUnderAnotherTypesKeyIsBelievedOfNeither(t *testing.T) {
	t.Parallel()
	w := newTwoTypes(t)
	id, user := w.RecordDelayed(w.c, time.Hour), w.recordUser(time.Hour)
	soon := []compensator.EntryID{w.RecordDelayed(w.c, 3*time.Second), w.recordUser(3 * time.Second)}
	w.WaitInQueue(id)
	w.waitUser(user)
	require.NoError(t, w.Redis.Rename(t.Context(), w.DueKey("sync_user"), w.DueKey("close_order")).Err())
	w.WaitComplete("close_order")
	w.WaitComplete("sync_user")
	w.WaitInQueue(id)
	w.waitUser(user)
	for i, name := range []string{"close_order", "sync_user"} {
		w.WaitState(soon[i], compensator.Succeeded)
		assert.Equal(t, 1, w.ran[name].Of(soon[i]))
	}
}
