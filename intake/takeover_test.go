package intake

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
)

func (r *rig) given(consumer string, n int64) {
	r.T.Helper()
	_ = r.rdb.XGroupCreateMkStream(r.T.Context(), r.stream, "shop", "0").Err() // The group may exist already.
	taken, err := r.rdb.XReadGroup(r.T.Context(), &redis.XReadGroupArgs{
		Group: "shop", Consumer: consumer, Streams: []string{r.stream, ">"}, Count: n, Block: -1}).Result()
	require.NoError(r.T, err)
	require.Len(r.T, taken[0].Messages, int(n))
}

// The message looks as if it was delivered long ago.
func (r *rig) age(consumer, id string, deliveries int) {
	r.T.Helper()
	require.NoError(r.T, r.rdb.Do(r.T.Context(), "XCLAIM", r.stream, "shop", consumer, 0, id,
		"IDLE", time.Hour.Milliseconds(), "RETRYCOUNT", deliveries, "JUSTID").Err())
}

// Failure: F97
func TestMessagesOfADeadConsumerAreTakenOverAndItsNameRemoved(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.New(r.QuickConfig())
	r.add(1, 150)
	r.given("dead", 100)
	r.start(r.openSoon(c, r.spec(), 200*time.Millisecond, testConfig()))
	r.waitSettled("shop")
	r.requireBooks(150, 0)
	r.Eventually(func() bool {
		consumers, err := r.rdb.XInfoConsumers(t.Context(), r.stream, "shop").Result()
		return err == nil && len(consumers) == 1 && consumers[0].Name != "dead"
	}, "the dead consumer's name is removed")
}

// Failure: F97
func TestMessagesOfALivingConsumerAreLeftToIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.New(r.QuickConfig())
	r.add(1, 50)
	r.given("alive", 20)
	r.start(r.open(c, r.spec(), testConfig()))
	r.Eventually(func() bool { return r.Count("effects") == 30 }, "the other messages are processed")
	r.Eventually(func() bool {
		pending, err := r.rdb.XPending(t.Context(), r.stream, "shop").Result()
		return err == nil && maps.Equal(map[string]int64{"alive": 20}, pending.Consumers)
	}, "only the living consumer's messages are left")
}

// Failure: F97
func TestMessageThatAnotherWasFasterWithIsLeftToIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.add(1, 2)
	r.given("dead", 2)
	all, err := r.rdb.XRange(t.Context(), r.stream, "-", "+").Result()
	require.NoError(t, err)
	r.age("dead", all[0].ID, 1)
	r.age("dead", all[1].ID, 1)
	g := &group{Stream: r.spec()}
	g.Redis = &beaten{UniversalClient: r.rdb, first: func() {
		faster := redis.XClaimArgs{Stream: r.stream, Group: "shop", Consumer: "faster", MinIdle: g.Idle, Messages: []string{all[0].ID}}
		require.NoError(t, r.rdb.XClaim(t.Context(), &faster).Err())
	}}
	messages, err := g.leftByOthers(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, messages, 1)
	assert.Equal(t, all[1].ID, messages[0].ID)
}

// The XCLAIM of another consumer arrives first.
type beaten struct {
	redis.UniversalClient
	first func()
}

func (b *beaten) XClaim(ctx context.Context, args *redis.XClaimArgs) *redis.XMessageSliceCmd {
	b.first()
	return b.UniversalClient.XClaim(ctx, args)
}

// Failure: F97
func TestConsumerThatHasMessagesIsNotRemoved(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.add(1, 10)
	r.given("quiet", 10)
	g := &group{Stream: r.spec()}
	require.NoError(t, g.deleteConsumer(t.Context(), "quiet"))
	pending, err := r.rdb.XPending(t.Context(), r.stream, "shop").Result()
	require.NoError(t, err)
	assert.EqualValues(t, 10, pending.Count)
}

// Failure: F97
func TestOwnMessagesComeBeforeNewOnes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.New(r.QuickConfig())
	r.add(1, 30)
	r.given("me", 10)
	var mu sync.Mutex
	var order []string
	cfg := testConfig()
	cfg.Work = func(ctx context.Context, tx *compensator.ScopedTx, batch []*Message) error {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, fmt.Sprint(len(batch), " delivered ", batch[0].Deliveries))
		return effects(ctx, tx, batch)
	}
	spec := r.spec()
	spec.Consumer = "me"
	r.start(r.open(c, spec, cfg))
	r.waitSettled("shop")
	mu.Lock()
	defer mu.Unlock()
	assert.Equal(t, []string{"10 delivered 2", "20 delivered 1"}, order)
}

// If a message kills each process that receives it, all messages of its batch are delivered again.
// Failure: F99
func TestMessageThatKeepsComingIsSetAsideAndItsNeighboursAreNot(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.New(r.QuickConfig())
	r.add(1, 3)
	r.given("dead", 3)
	all, err := r.rdb.XRange(t.Context(), r.stream, "-", "+").Result()
	require.NoError(t, err)
	r.age("dead", all[0].ID, 2)
	r.age("dead", all[1].ID, 5)
	r.age("dead", all[2].ID, 2)
	var mu sync.Mutex
	var sizes []int
	cfg := testConfig()
	cfg.Work = func(ctx context.Context, tx *compensator.ScopedTx, batch []*Message) error {
		mu.Lock()
		defer mu.Unlock()
		sizes = append(sizes, len(batch))
		return effects(ctx, tx, batch)
	}
	in := r.open(c, r.spec(), cfg)
	r.start(in)
	r.waitSettled("shop")
	r.requireBooks(2, 1)
	mu.Lock()
	assert.Equal(t, []int{1, 1}, sizes, "suspects are taken one by one")
	mu.Unlock()
	e, err := c.Get(t.Context(), in.IdempotencyKey(&Message{ID: all[1].ID}))
	require.NoError(t, err)
	m, err := MessageOf(e)
	require.NoError(t, err)
	assert.Equal(t, "delivered 5 times without success: it may have killed the processes that had it", m.SetAside)
}

// Failure: F97
func TestMessageThatIsInTheLogIsOnlyAcknowledged(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.New(r.QuickConfig())
	r.add(1, 100)
	in := r.open(c, r.spec(), testConfig())
	stop := r.start(in)
	r.waitSettled("shop")
	stop()
	require.NoError(t, r.rdb.XGroupDestroy(t.Context(), r.stream, "shop").Err())
	r.given("dead", 60)
	all, err := r.rdb.XRange(t.Context(), r.stream, "-", "+").Result()
	require.NoError(t, err)
	for i := range 60 {
		r.age("dead", all[i].ID, 1+8*(i/30))
	}
	r.start(in)
	r.waitSettled("shop")
	r.requireBooks(100, 0)
	stats, err := in.Stats(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 100, stats.Duplicates)
}

// Failure: F101
func TestDeletedMessageIsToldByAnEntryThatWaitsForAPerson(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.New(r.QuickConfig())
	r.add(1, 3)
	r.given("dead", 3)
	all, err := r.rdb.XRange(t.Context(), r.stream, "-", "+").Result()
	require.NoError(t, err)
	for _, m := range all {
		r.age("dead", m.ID, 1)
	}
	require.NoError(t, r.rdb.XDel(t.Context(), r.stream, all[1].ID).Err())
	in := r.open(c, r.spec(), testConfig())
	r.start(in)
	r.waitSettled("shop")
	r.requireBooks(2, 1)
	e, err := c.Get(t.Context(), in.IdempotencyKey(&Message{ID: all[1].ID}))
	require.NoError(t, err)
	m, err := MessageOf(e)
	require.NoError(t, err)
	assert.True(t, m.Lost)
}

// Failure: F101
func TestTrimDeletesOnlyWhatEveryGroupHasAcknowledged(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.New(r.QuickConfig())
	require.NoError(t, r.rdb.XGroupCreateMkStream(t.Context(), r.stream, "slow", "0").Err())
	slow := func(n int64) []string {
		taken, err := r.rdb.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: "slow", Consumer: "it", Streams: []string{r.stream, ">"}, Count: n, Block: -1}).Result()
		require.NoError(t, err)
		var list []string
		for _, m := range taken[0].Messages {
			list = append(list, m.ID)
		}
		return list
	}
	r.add(1, 100)
	spec, cfg := r.spec(), testConfig()
	spec.Trim = true
	rounds := make(chan Stats, 1000)
	cfg.StatsEvery, cfg.Observer.Measured = 10*time.Millisecond, func(s Stats) {
		select {
		case rounds <- s:
		default:
		}
	}
	in := r.openSoon(c, spec, 40*time.Millisecond, cfg)
	r.start(in)
	r.waitSettled("shop")
	length := func() int64 { return r.rdb.XLen(t.Context(), r.stream).Val() }
	awaitRounds := func() { // A round takes place every Idle/4.
		for len(rounds) > 0 {
			<-rounds
		}
		for range 20 {
			<-rounds
		}
	}
	awaitRounds()
	assert.EqualValues(t, 100, length(), "the other group has been given none")
	taken := slow(60)
	awaitRounds()
	assert.EqualValues(t, 100, length(), "the other group has acknowledged none")
	require.NoError(t, r.rdb.XAck(t.Context(), r.stream, "slow", append(taken[:20:20], taken[40:]...)...).Err())
	r.Eventually(func() bool { return length() == 80 }, "messages that both groups have acknowledged are deleted")
	awaitRounds()
	assert.EqualValues(t, 80, length())
	require.NoError(t, r.rdb.XAck(t.Context(), r.stream, "slow", taken...).Err())
	r.Eventually(func() bool { return length() == 40 }, "only messages that the other group has received are deleted")
	require.NoError(t, r.rdb.XAck(t.Context(), r.stream, "slow", slow(40)...).Err())
	r.Eventually(func() bool { return length() == 0 }, "no message is left when everything is idle")
	r.requireBooks(100, 0)
}

func TestStatsTellHowFarBehindTheGroupIs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.New(r.QuickConfig())
	in := r.open(c, r.spec(), testConfig())
	_, err := in.Stats(t.Context())
	require.Error(t, err, "there is no stream")
	require.ErrorIs(t, in.Err(), errNotRunning)
	r.add(1, 100)
	r.given("dead", 30)
	stats, err := in.Stats(t.Context())
	require.NoError(t, err)
	assert.Positive(t, stats.OldestPending)
	stats.OldestPending = 0
	assert.Equal(t, Stats{Backlog: Backlog{Lag: 70, Pending: 30}}, stats)
	r.start(in)
	r.Eventually(func() bool { return in.Err() == nil && r.Count("effects") == 70 }, "it runs")
	stats, err = in.Stats(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []int64{0, 30, 70}, []int64{stats.Lag, stats.Pending, stats.Recorded})
}
