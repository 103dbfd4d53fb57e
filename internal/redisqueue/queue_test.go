package redisqueue_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/compensatortest/suite"
	"github.com/compensator-go/compensator/internal/redisqueue"
	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/processlog"
)

func TestRedisQueueKeepsTheQueuesPromises(t *testing.T) {
	t.Parallel()
	server := testservers.SharedRedis(t)
	suite.TestQueue(t, func(t *testing.T) suite.QueueHarness {
		client, prefix := redisClient(t, server), server.Prefix(t)
		return suite.QueueHarness{
			Queue:   openQueue(t, client, prefix),
			Another: func(t *testing.T) processlog.Queue { return openQueue(t, client, prefix) },
			Lose:    func(t *testing.T) { require.NoError(t, deleteKeys(t.Context(), client, prefix)) },
		}
	})
}

func deleteKeys(ctx context.Context, client *redis.Client, prefix string) error {
	keys, err := client.Keys(ctx, "{"+prefix+":*").Result()
	if err != nil || len(keys) == 0 {
		return err
	}
	// Delete each key with a command of its own. A cluster refuses a command whose keys are in several hash slots.
	pipe := client.Pipeline()
	for _, key := range keys {
		pipe.Del(ctx, key)
	}
	_, err = pipe.Exec(ctx)
	return err
}

func redisClient(t *testing.T, server *testservers.RedisServer) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return client
}

func openQueue(t *testing.T, client redis.UniversalClient, prefix string) *redisqueue.Queue {
	q, err := redisqueue.Open(client, prefix)
	require.NoError(t, err)
	return q
}

func ownQueue(t *testing.T, flags ...string) (*redisqueue.Queue, *testservers.RedisServer, *redis.Client) {
	server := testservers.NewRedis(t, flags...)
	client := redisClient(t, server)
	return sameQueue(t, client, "own"), server, client
}

func sameQueue(t *testing.T, client redis.UniversalClient, prefix string) *redisqueue.Queue {
	q := openQueue(t, client, prefix)
	t.Cleanup(func() { assert.NoError(t, q.Close()) })
	return q
}

func due(businessType string, rows ...uint64) []processlog.QueueEntry {
	var items []processlog.QueueEntry
	for _, row := range rows {
		items = append(items, processlog.QueueEntry{BusinessType: businessType, ID: processlog.RowID(row)})
	}
	return items
}

func dueRows(businessType string, n uint64) []processlog.QueueEntry {
	var items []processlog.QueueEntry
	for row := range n {
		items = append(items, due(businessType, row+1)...)
	}
	return items
}

func mustEnqueue(t *testing.T, q processlog.Queue, items []processlog.QueueEntry) {
	t.Helper()
	_, _, err := q.Enqueue(t.Context(), items, processlog.EnqueueRules{MaxLease: time.Hour})
	require.NoError(t, err)
}

func mustClaim(t *testing.T, q processlog.Queue, businessType string, limit int) processlog.Leased {
	t.Helper()
	leased, err := q.Claim(t.Context(), businessType, limit, time.Hour)
	require.NoError(t, err)
	return leased
}

func outcomes(leased processlog.Leased, remove bool) []processlog.QueueOutcome {
	var items []processlog.QueueOutcome
	for _, id := range leased.IDs {
		items = append(items, processlog.QueueOutcome{ID: id, Token: leased.Token, Remove: remove, In: time.Hour})
	}
	return items
}

func makeWhole(t *testing.T, q processlog.Queue, businessTypes ...string) {
	t.Helper()
	_, err := q.Rebuild(t.Context(), businessTypes, processlog.Token{9}, time.Hour)
	require.NoError(t, err)
	completeTypes, err := q.Rebuilt(t.Context(), businessTypes, processlog.Token{9})
	require.NoError(t, err)
	require.Equal(t, businessTypes, completeTypes)
}

func lostOf(t *testing.T, q processlog.Queue, businessTypes ...string) []string {
	t.Helper()
	_, lostTypes, err := q.Peek(t.Context(), businessTypes)
	require.NoError(t, err)
	return lostTypes
}

// Failure: F42
func TestRedisQueueNoticesARestartThatLostEverything(t *testing.T) {
	t.Parallel()
	q, server, client := ownQueue(t)
	other := sameQueue(t, client, "own")
	makeWhole(t, q, "order")
	server.Kill()
	_, _, err := q.Peek(t.Context(), []string{"order"})
	require.Error(t, err)
	server.Restart(t)
	for _, each := range []processlog.Queue{q, other, q} { // The first call must not hide the loss from the other queue.
		assert.Equal(t, []string{"order"}, lostOf(t, each, "order"))
	}
}

// Failure: F44
func TestRedisQueueNoticesFlushAndSweptKeys(t *testing.T) {
	t.Parallel()
	q, _, client := ownQueue(t)
	makeWhole(t, q, "order", "stock")
	require.NoError(t, client.FlushAll(t.Context()).Err())
	assert.Equal(t, []string{"order", "stock"}, lostOf(t, q, "order", "stock"))
	makeWhole(t, q, "order", "stock")
	require.NoError(t, client.Del(t.Context(), q.DueKey("order")).Err())
	assert.Equal(t, []string{"order"}, lostOf(t, q, "order", "stock"))
}

// Entries that were enqueued before the loss are gone, so the type must still count as lost.
// Failure: F44
func TestRedisQueueKnowsThatATypeWasLostWhileItWasRebuilt(t *testing.T) {
	t.Parallel()
	q, _, client := ownQueue(t)
	first, second, third := processlog.Token{1}, processlog.Token{2}, processlog.Token{3}
	rebuild := func(token processlog.Token, period time.Duration) bool {
		rebuildTypes, err := q.Rebuild(t.Context(), []string{"order"}, token, period)
		require.NoError(t, err)
		return len(rebuildTypes) == 1
	}
	rebuilt := func(token processlog.Token) bool {
		completeTypes, err := q.Rebuilt(t.Context(), []string{"order"}, token)
		require.NoError(t, err)
		return len(completeTypes) == 1
	}
	require.True(t, rebuild(first, time.Hour))
	mustEnqueue(t, q, due("order", 1))
	require.NoError(t, client.Del(t.Context(), q.DueKey("order")).Err())
	mustEnqueue(t, q, due("order", 2))
	require.False(t, rebuilt(first))
	require.True(t, rebuild(second, time.Millisecond), "a rebuild that began before the loss does not prevent another")
	require.Eventually(t, func() bool { return rebuild(third, time.Hour) }, eventually, time.Millisecond, "the process that began may have died")
	require.True(t, rebuilt(second), "the process may be slow, and nothing was lost since it began")
	require.True(t, rebuilt(third))
	assert.Equal(t, []string{"2", q.Whole("order")}, client.ZRange(t.Context(), q.DueKey("order"), 0, -1).Val())

	require.NoError(t, client.Del(t.Context(), q.DueKey("order")).Err())
	assert.True(t, mustClaim(t, q, "order", 1).Lost)
}

// Failure: F42
func TestRedisQueueSurvivesARestartWithAppendOnlyFile(t *testing.T) {
	t.Parallel()
	q, server, _ := ownQueue(t, "--appendonly", "yes", "--appendfsync", "always")
	makeWhole(t, q, "order")
	mustEnqueue(t, q, due("order", 1, 2))
	server.Kill()
	server.Restart(t)
	assert.Empty(t, lostOf(t, q, "order"))
	assert.Len(t, mustClaim(t, q, "order", 10).IDs, 2)
}

// Failure: F43
func TestFullRedisStillClaimsAndSettles(t *testing.T) {
	t.Parallel()
	q, _, client := ownQueue(t, "--maxmemory-policy", "noeviction")
	require.NoError(t, q.Check(t.Context(), "database"))
	rebuildTypes, err := q.Rebuild(t.Context(), []string{"order"}, processlog.Token{1}, time.Hour)
	require.NoError(t, err)
	require.Len(t, rebuildTypes, 1)
	mustEnqueue(t, q, dueRows("order", 300))
	_, err = q.Lead(t.Context(), time.Hour)
	require.NoError(t, err)
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "1").Err())

	_, lostTypes, err := q.Enqueue(t.Context(), append(due("order", 7, 1000), due("stock", 1)...), processlog.EnqueueRules{MaxLease: time.Hour})
	assert.ErrorContains(t, err, "OOM")
	assert.Equal(t, []string{"order", "stock"}, lostTypes, "the loss of the left-out entry is reported")
	require.NoError(t, q.Settle(t.Context(), "order", outcomes(mustClaim(t, q, "order", 200), true)))
	left := mustClaim(t, q, "order", 200)
	require.NoError(t, q.Settle(t.Context(), "order", outcomes(left, false)))
	waits, _, err := q.Peek(t.Context(), []string{"order"})
	require.NoError(t, err)
	assert.Greater(t, waits[0], 50*time.Minute)
	pulledIn := []processlog.QueueOutcome{{ID: left.IDs[0], Token: left.Token, In: 30 * time.Minute}} // the token of an old claim
	require.NoError(t, q.Settle(t.Context(), "order", pulledIn))
	waits, _, err = q.Peek(t.Context(), []string{"order"})
	require.NoError(t, err)
	assert.LessOrEqual(t, waits[0], 31*time.Minute)
	assert.EqualValues(t, 100, client.ZCount(t.Context(), q.DueKey("order"), "-inf", "4e15").Val())
	rebuild := func(token processlog.Token) []string {
		rebuildTypes, err := q.Rebuild(t.Context(), []string{"order", "user"}, token, time.Hour)
		require.NoError(t, err)
		return rebuildTypes
	}
	rebuilt := func(token processlog.Token) []string {
		completeTypes, err := q.Rebuilt(t.Context(), []string{"order", "user"}, token)
		require.NoError(t, err)
		return completeTypes
	}
	assert.Empty(t, rebuilt(processlog.Token{1}), "a rebuild that began before an entry was left out cannot mark the type as whole")
	assert.Equal(t, []string{"user"}, rebuild(processlog.Token{2}), "no new rebuild begins for a while")
	assert.Equal(t, []string{"user"}, rebuilt(processlog.Token{2}), "a type without entries needs no memory")

	assert.NoError(t, q.Check(t.Context(), "database"))
	leads, err := q.Lead(t.Context(), time.Hour)
	require.NoError(t, err)
	assert.True(t, leads)
	require.NoError(t, client.Del(t.Context(), q.OwnerKey(0)).Err())
	assert.NoError(t, q.Check(t.Context(), "database"), "small required keys still fit")

	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	require.Eventually(t, func() bool { return len(rebuild(processlog.Token{3})) > 0 }, eventually, time.Millisecond, "a new rebuild begins")
	mustEnqueue(t, q, due("order", 1000))
	assert.Equal(t, []string{"order", "user"}, rebuilt(processlog.Token{3}))
}

// Failure: F46
func TestRenamedZsetSaysNothingOfTheTypeWhoseKeyItHas(t *testing.T) {
	t.Parallel()
	q, _, client := ownQueue(t)
	both := []string{"order", "stock"}
	for i, name := range both {
		_, err := q.Rebuild(t.Context(), both[i:i+1], processlog.Token{1}, time.Hour)
		require.NoError(t, err)
		mustEnqueue(t, q, due(name, uint64(i+1)))
		_, err = q.Rebuilt(t.Context(), both[i:i+1], processlog.Token{1})
		require.NoError(t, err)
	}
	lostTypes := func() []string {
		_, lostTypes, err := q.Peek(t.Context(), both)
		require.NoError(t, err)
		return lostTypes
	}
	require.Empty(t, lostTypes())
	require.NoError(t, client.Rename(t.Context(), q.DueKey("stock"), q.DueKey("order")).Err())
	assert.Equal(t, both, lostTypes())
	_, enqueued, err := q.Enqueue(t.Context(), due("order", 3), processlog.EnqueueRules{MaxLease: time.Hour})
	require.NoError(t, err)
	assert.Equal(t, both[:1], enqueued)
	assert.True(t, mustClaim(t, q, "order", 1).Lost)

	rebuildTypes, err := q.Rebuild(t.Context(), both, processlog.Token{2}, time.Hour)
	require.NoError(t, err)
	assert.Equal(t, both, rebuildTypes)
	require.NoError(t, client.Rename(t.Context(), q.DueKey("stock"), q.DueKey("order")).Err())
	completeTypes, err := q.Rebuilt(t.Context(), both, processlog.Token{2})
	require.NoError(t, err)
	assert.Empty(t, completeTypes, "another type's mark says as little")
}

// Failure: F43
func TestRedisQueueKnowsAnEvictingPolicy(t *testing.T) {
	t.Parallel()
	q, _, client := ownQueue(t)
	for policy, want := range map[string]string{"noeviction": "", "volatile-lru": "", "allkeys-lru": "allkeys-lru"} {
		require.NoError(t, client.ConfigSet(t.Context(), "maxmemory-policy", policy).Err())
		assert.Equal(t, want, q.EvictionPolicy(t.Context()))
	}
}

// Failure: F44
func TestRedisQueueGoesOnWhenTheServerForgetsItsScripts(t *testing.T) {
	t.Parallel()
	q, _, client := ownQueue(t)
	flush := func() { require.NoError(t, client.ScriptFlush(t.Context()).Err()) }
	var items []processlog.QueueEntry
	var types []string
	for i := range 250 { // more types than fit into one pipeline, and into one Peek
		types = append(types, fmt.Sprintf("type %d", i))
		items = append(items, due(types[i], 1)...)
	}
	flush()
	newHeads, _, err := q.Enqueue(t.Context(), items, processlog.EnqueueRules{MaxLease: time.Hour})
	require.NoError(t, err)
	assert.Equal(t, types, newHeads)
	flush()
	waits, _, err := q.Peek(t.Context(), types)
	require.NoError(t, err)
	assert.Equal(t, make([]time.Duration, len(types)), waits)
	flush()
	leased := mustClaim(t, q, "type 1", 1)
	flush()
	require.NoError(t, q.Settle(t.Context(), "type 1", outcomes(leased, true)))
	assert.EqualValues(t, len(types)-1, client.DBSize(t.Context()).Val())
}

// Failure: F49
func TestRedisQueueSendsAtMostAThousandEntriesAScript(t *testing.T) {
	t.Parallel()
	q, _, client := ownQueue(t)
	mustEnqueue(t, q, due("warm", 1)) // The server now knows the script.
	require.NoError(t, client.ConfigResetStat(t.Context()).Err())
	mustEnqueue(t, q, dueRows("order", 2500))
	stats := client.Info(t.Context(), "commandstats").Val()
	assert.Contains(t, stats, "cmdstat_evalsha:calls=3,")

	leased := mustClaim(t, q, "order", 2500)
	assert.Len(t, leased.IDs, 1000)
	assert.LessOrEqual(t, leased.Next, time.Duration(0), "the others are still due")
}

// Failure: F42, F50
func TestRedisQueueComparesTokensToTheLastDigit(t *testing.T) {
	t.Parallel()
	server := testservers.SharedRedis(t)
	client := redisClient(t, server)
	q := sameQueue(t, client, server.Prefix(t))
	const token = 1700000030123457 // 16 digits, like a time in microseconds
	require.NoError(t, client.ZAdd(t.Context(), q.DueKey("order"), redis.Z{Score: token, Member: "7"}).Err())
	for _, step := range []struct{ token, left int64 }{{token - 1, 1}, {token + 1, 1}, {token, 0}} {
		require.NoError(t, q.Settle(t.Context(), "order",
			[]processlog.QueueOutcome{{ID: processlog.RowID(7), Token: step.token, Remove: true}}))
		assert.Equal(t, step.left, client.ZCard(t.Context(), q.DueKey("order")).Val())
	}
}

// Failure: F46
func TestRedisQueueReportsForeignKeysAndLeavesThemAlone(t *testing.T) {
	t.Parallel()
	server := testservers.SharedRedis(t)
	client := redisClient(t, server)
	q := sameQueue(t, client, server.Prefix(t))
	for _, key := range []string{q.DueKey("order"), q.OwnerKey(0)} {
		require.NoError(t, client.RPush(t.Context(), key, "somebody else's").Err())
	}
	_, lostTypes, errs := q.Enqueue(t.Context(), due("order", 1), processlog.EnqueueRules{MaxLease: time.Hour})
	assert.ErrorContains(t, errs, "WRONGTYPE")
	assert.Equal(t, []string{"order"}, lostTypes)
	assert.True(t, mustClaim(t, q, "order", 1).Lost)
	assert.ErrorContains(t, q.Check(t.Context(), "database"), "WRONGTYPE")
	err := q.Settle(t.Context(), "order", []processlog.QueueOutcome{{ID: processlog.RowID(1), Token: 1, Remove: true}})
	assert.NoError(t, err, "no entry has this token")
	for _, token := range []processlog.Token{{1}, {2}} {
		rebuildTypes, err := q.Rebuild(t.Context(), []string{"order", "stock"}, token, time.Millisecond)
		assert.NoError(t, err)
		assert.NotContains(t, rebuildTypes, "order", "a key with another type of value is not rebuilt")
		completeTypes, err := q.Rebuilt(t.Context(), []string{"order"}, token)
		assert.NoError(t, err)
		assert.Empty(t, completeTypes)
	}
	for _, key := range []string{q.DueKey("order"), q.OwnerKey(0)} {
		assert.Equal(t, []string{"somebody else's"}, client.LRange(t.Context(), key, 0, -1).Val())
	}
}

// Failure: F46
func TestRedisQueueFailsForOneTypeWithoutFailingTheOthers(t *testing.T) {
	t.Parallel()
	server := testservers.SharedRedis(t)
	client := redisClient(t, server)
	q := sameQueue(t, client, server.Prefix(t))
	require.NoError(t, client.RPush(t.Context(), q.DueKey("order"), "somebody else's").Err())
	_, err := q.Rebuild(t.Context(), []string{"stock"}, processlog.Token{1}, time.Hour)
	require.NoError(t, err)
	newHeads, _, err := q.Enqueue(t.Context(), append(due("order", 1), due("stock", 2)...), processlog.EnqueueRules{MaxLease: time.Hour})
	var left *processlog.LeftOutError
	require.ErrorAs(t, err, &left)
	assert.Equal(t, []string{"order"}, left.BusinessTypes)
	assert.Contains(t, left.Reason, "WRONGTYPE")
	assert.Equal(t, []string{"stock"}, newHeads)
	completeTypes, err := q.Rebuilt(t.Context(), []string{"order", "stock"}, processlog.Token{1})
	require.NoError(t, err)
	assert.Equal(t, []string{"stock"}, completeTypes)
	waits, lostTypes, err := q.Peek(t.Context(), []string{"order", "stock"})
	require.NoError(t, err)
	assert.Equal(t, []string{"order"}, lostTypes)
	assert.Equal(t, []time.Duration{processlog.Never, 0}, waits)
}

// Failure: F25
func TestSecondDatabaseBehindOnePrefixIsRefused(t *testing.T) {
	t.Parallel()
	server := testservers.SharedRedis(t)
	client, prefix := redisClient(t, server), server.Prefix(t)
	first, second := sameQueue(t, client, prefix), sameQueue(t, client, prefix)
	require.NoError(t, first.Check(t.Context(), "database one"))
	assert.ErrorContains(t, second.Check(t.Context(), "database two"), `"`+prefix+`"`)
	assert.NoError(t, first.Check(t.Context(), "database one"))
	assert.NoError(t, sameQueue(t, client, server.Prefix(t)).Check(t.Context(), "database two"))
}

// leastRights are the rights that docs/how-to/tables.md lists, for the prefix shop.
var leastRights = []any{"~{shop:*", "&shop:*", "-@all", "+eval", "+evalsha", "+publish", "+subscribe", "+unsubscribe", "+ping", "+time",
	"+get", "+set", "+pexpire", "+zadd", "+zcount", "+zrange", "+zrangebyscore", "+zrem", "+zremrangebyscore", "+zscore"}

func TestRedisQueueDoesWithTheLeastRights(t *testing.T) {
	t.Parallel()
	_, server, admin := ownQueue(t)
	require.NoError(t, admin.Do(t.Context(), append([]any{"ACL", "SETUSER", "app", "on", ">secret"}, leastRights...)...).Err())
	restricted := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "app", Password: "secret"})
	t.Cleanup(func() { assert.NoError(t, restricted.Close()) })
	require.ErrorContains(t, restricted.Info(t.Context()).Err(), "NOPERM")

	q := sameQueue(t, restricted, "shop")
	assert.NoError(t, q.Check(t.Context(), "database"))
	assert.Empty(t, q.EvictionPolicy(t.Context()))
	mustEnqueue(t, q, due("order", 1))
	require.NoError(t, q.Settle(t.Context(), "order", outcomes(mustClaim(t, q, "order", 1), true)))
	woken := make(chan string, 1)
	ctx, stop := context.WithCancel(t.Context())
	var listening sync.WaitGroup
	listening.Go(func() {
		q.Listen(ctx, func(businessType string) {
			select {
			case woken <- businessType:
			default:
			}
		})
	})
	assert.Eventually(t, func() bool {
		return assert.NoError(t, q.Notify(t.Context(), []string{"order"})) && len(woken) > 0
	}, eventually, 10*time.Millisecond)
	stop()
	listening.Wait()
	_, _, err := q.Peek(t.Context(), []string{"order"})
	assert.NoError(t, err)
	assert.NoError(t, q.Check(t.Context(), "database"))
	_, err = q.Lead(t.Context(), time.Second)
	assert.NoError(t, err)
	rebuildTypes, err := q.Rebuild(t.Context(), []string{"order"}, processlog.Token{1}, time.Second)
	assert.NoError(t, err)
	_, err = q.Rebuilt(t.Context(), rebuildTypes, processlog.Token{1})
	assert.NoError(t, err)
	assert.ErrorContains(t, sameQueue(t, restricted, "forbidden").Check(t.Context(), "database"), "NOPERM")
}

// Failure: F44
func TestRedisQueueKeysNeverExpire(t *testing.T) {
	t.Parallel()
	q, _, client := ownQueue(t)
	require.NoError(t, q.Check(t.Context(), "database"))
	mustEnqueue(t, q, due("order", 1))
	mustClaim(t, q, "order", 1)
	keys := client.Keys(t.Context(), "*").Val()
	assert.Len(t, keys, 2)
	for _, key := range keys {
		assert.Equal(t, time.Duration(-1), client.TTL(t.Context(), key).Val(), key)
	}
}

// Failure: F44
func TestRedisQueueRecoversFromARevokedPassword(t *testing.T) {
	t.Parallel()
	q, _, client := ownQueue(t)
	mustEnqueue(t, q, due("order", 1))
	admin := client.Conn() // A single connection stays logged in.
	defer func() { assert.NoError(t, admin.Close()) }()
	require.NoError(t, admin.ConfigSet(t.Context(), "requirepass", "changed").Err())
	require.NoError(t, admin.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err())
	assert.Eventually(t, func() bool { // The first call may use the killed connection.
		_, _, err := q.Peek(t.Context(), []string{"order"})
		return err != nil && strings.Contains(err.Error(), "NOAUTH") && strings.Contains(err.Error(), "check its user, password and rights")
	}, eventually, time.Millisecond)
	require.NoError(t, admin.ConfigSet(t.Context(), "requirepass", "").Err())
	assert.Eventually(t, func() bool {
		leased, err := q.Claim(t.Context(), "order", 1, time.Hour)
		return err == nil && len(leased.IDs) == 1
	}, eventually, time.Millisecond)
}

const eventually = 30 * time.Second

func TestOneProcessLeadsUntilItStopsAsking(t *testing.T) {
	t.Parallel()
	server := testservers.SharedRedis(t)
	client, prefix := redisClient(t, server), server.Prefix(t)
	first, second := sameQueue(t, client, prefix), sameQueue(t, client, prefix)
	leads := func(q processlog.Queue, period time.Duration) bool {
		leads, err := q.Lead(t.Context(), period)
		require.NoError(t, err)
		return leads
	}
	assert.True(t, leads(first, time.Hour))
	assert.False(t, leads(second, time.Millisecond))
	assert.True(t, leads(first, 20*time.Millisecond))
	assert.Eventually(t, func() bool { return leads(second, 20*time.Millisecond) }, eventually, time.Millisecond)
	assert.Eventually(t, func() bool { return leads(first, time.Hour) }, eventually, time.Millisecond)
	assert.False(t, leads(second, time.Hour))
}

func TestRedisClientsThatCannotCarryAQueueAreRefused(t *testing.T) {
	t.Parallel()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}, HeartbeatFrequency: time.Hour})
	t.Cleanup(func() { assert.NoError(t, ring.Close()) })
	for _, client := range []redis.UniversalClient{nil, (*redis.Client)(nil), (*redis.ClusterClient)(nil), ring} {
		_, err := redisqueue.Open(client, "own")
		var refused *processlog.FieldError
		if assert.ErrorAs(t, err, &refused, "%T", client) {
			assert.Equal(t, "Redis", refused.Field)
		}
	}
}

func TestClosingTheQueueLeavesTheUsersClientAsItWas(t *testing.T) {
	t.Parallel()
	server := testservers.SharedRedis(t)
	client := redisClient(t, server)
	before := *client.Options()
	q := openQueue(t, client, server.Prefix(t))
	mustEnqueue(t, q, due("order", 1))
	require.NoError(t, q.Close())
	assert.NoError(t, client.Ping(t.Context()).Err())
	assert.Equal(t, before.MaxRetries, client.Options().MaxRetries)
	assert.Equal(t, before.ContextTimeoutEnabled, client.Options().ContextTimeoutEnabled)
	_, _, err := q.Enqueue(t.Context(), due("order", 1), processlog.EnqueueRules{MaxLease: time.Hour})
	assert.ErrorIs(t, err, redis.ErrClosed)
}
