package intake

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
)

func TestEveryMessageBecomesOneEntryWithItsBusinessRow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.New(r.QuickConfig())
	r.add(1, 1000)
	var mu sync.Mutex
	var told []SettledEvent
	cfg := testConfig()
	cfg.Observer.Settled = func(e SettledEvent) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, e)
	}
	in := r.open(c, r.spec(), cfg)
	stop := r.start(in)
	r.add(1001, 500)
	r.waitSettled("shop")
	stop()
	r.requireBooks(1500, 0)

	stats, err := in.Stats(t.Context())
	require.NoError(t, err)
	assert.Equal(t, Stats{Batches: stats.Batches, Messages: 1500, Recorded: 1500}, stats)
	recorded := 0
	for _, e := range told {
		recorded += e.Recorded
		assert.Positive(t, e.Took)
	}
	assert.Equal(t, 1500, recorded)

	one, err := r.rdb.XRangeN(t.Context(), r.stream, "-", "+", 1).Result()
	require.NoError(t, err)
	e, err := c.Get(t.Context(), in.IdempotencyKey(&Message{ID: one[0].ID}))
	require.NoError(t, err)
	assert.Equal(t, "take_order", e.BusinessType)
	assert.JSONEq(t, `{"n":1}`, string(e.Content))
}

// Failure: F100
func TestTwoGroupsOfAStreamHaveEntriesOfTheirOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.New(r.QuickConfig())
	r.add(1, 300)
	shop := r.open(c, r.spec(), testConfig())
	spec, cfg := r.spec(), testConfig()
	spec.Group, cfg.Type, cfg.Work = "billing", "billing_aside", nil
	billing := r.open(c, spec, cfg)
	r.start(shop)
	r.start(billing)
	r.waitSettled("shop")
	r.waitSettled("billing")
	assert.Equal(t, 600, r.Count("common_process_log"))
	assert.Equal(t, 300, r.Count("effects"))
}

// Two databases of one Redis server stand for two servers.
// Failure: F100
func TestStreamsOfOneNameOnTwoServersHaveEntriesOfTheirOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.New(r.QuickConfig())
	options := *r.Redis.Options()
	options.DB++
	other := (&rig{World: r.World, stream: r.stream}).withRedis(redis.NewClient(&options))
	t.Cleanup(func() {
		assert.NoError(t, other.rdb.Del(context.Background(), r.stream).Err())
		assert.NoError(t, other.rdb.Close())
	})
	for i, from := range []*rig{r, other} {
		for n := range 100 {
			from.addAs(fmt.Sprintf("%d-1", n+1), 100*i+n)
		}
	}
	spec := other.spec()
	spec.Server = "second"
	r.start(r.open(c, r.spec(), testConfig()))
	r.start(r.open(c, spec, otherType(testConfig())))
	r.waitSettled("shop")
	other.waitSettled("shop")
	r.requireBooks(200, 0)
}

// Failure: F98
func TestPoisonIsSetAsideAsItCameAndHoldsUpNobody(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.New(r.QuickConfig())
	cfg := testConfig()
	var mu sync.Mutex
	cured := false
	cfg.Work = failing(func(m *Message) error {
		mu.Lock()
		defer mu.Unlock()
		switch m.Value.(order).N {
		case 50:
			if !cured {
				return compensator.Permanent(errTest)
			}
		case 51:
			if !cured {
				panic("a bug")
			}
		}
		return nil
	})
	in := r.open(c, r.spec(), cfg)
	r.add(1, 100)
	raw := "not JSON \x00\xff"
	poison := r.addRaw("order", raw, "b\xfe", "c")
	r.add(101, 100)
	r.start(in)
	r.waitSettled("shop")
	require.Equal(t, 198, r.Count("effects"), "the other messages are processed")
	stats, err := in.Stats(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []int64{198, 2, 1}, []int64{stats.Recorded, stats.SetAside, stats.Failed})

	r.Run(c)
	dead := func() int { return r.Count("common_process_log WHERE business_type='order_aside' AND state=-2") }
	r.Eventually(func() bool { return dead() == 3 }, "they wait for a person")
	e, err := c.Get(t.Context(), in.IdempotencyKey(&Message{ID: poison}))
	require.NoError(t, err)
	assert.Contains(t, e.LastError, "cannot be decoded")
	m, err := MessageOf(e)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"order": raw, "b\xfe": "c"}, m.Fields)
	assert.Equal(t, poison, m.ID)
	assert.Equal(t, 198, r.Count("effects"))

	mu.Lock()
	cured = true
	mu.Unlock()
	page, err := admin.Of(c).List(t.Context(), admin.Filter{States: []compensator.State{compensator.Dead}})
	require.NoError(t, err)
	for i := range page.Entries {
		if !strings.Contains(page.Entries[i].LastError, "cannot be decoded") {
			require.NoError(t, admin.Of(c).Requeue(t.Context(), page.Entries[i].ID, admin.RequeueOptions{AuditInfo: admin.AuditInfo{Actor: "test", Reason: "mended"}}))
		}
	}
	r.Eventually(func() bool { return r.Count("effects WHERE what IN ('order 50','order 51')") == 2 && dead() == 1 }, "the requeued are worked on")
	assert.Equal(t, 200, r.Count("common_process_log WHERE business_type='take_order'"))
}

// Failure: F98
func TestMessageThatFailsForAWhileIsDoneByTheLog(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.New(r.QuickConfig())
	cfg := testConfig()
	var mu sync.Mutex
	var sizes []int
	cfg.Work = func(ctx context.Context, tx *compensator.ScopedTx, batch []*Message) error {
		mu.Lock()
		defer mu.Unlock()
		if batch[0].Entry == nil {
			sizes = append(sizes, len(batch))
		}
		for _, m := range batch {
			if m.Value.(order).N == 7 && m.Entry == nil {
				return Fault(m, errTest)
			}
		}
		return effects(ctx, tx, batch)
	}
	in := r.open(c, r.spec(), cfg)
	r.add(1, 64)
	r.start(in)
	r.waitSettled("shop")
	assert.Equal(t, []int{64, 63, 1}, sizes, "if the error names its message, the batch is not halved")
	r.Run(c)
	r.Eventually(func() bool { return r.Count("effects") == 64 }, "the log has processed the message")
	r.Eventually(func() bool { return r.Count("common_process_log WHERE business_type='order_aside' AND state=1") == 1 }, "its entry has succeeded")
	r.requireBooks(64, 1)
}

// Failure: F96
func TestStoppedIntakeEndsItsBatchAndAcknowledgesIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.New(r.QuickConfig())
	cfg := testConfig()
	cfg.Batch = 10
	began, goOn := make(chan struct{}, 10), make(chan struct{})
	cfg.Work = func(ctx context.Context, tx *compensator.ScopedTx, batch []*Message) error {
		began <- struct{}{}
		<-goOn
		return effects(ctx, tx, batch)
	}
	in := r.open(c, r.spec(), cfg)
	r.add(1, 25)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- in.Run(ctx) }()
	r.Wait(began, "the first batch begins")
	cancel()
	assert.ErrorIs(t, in.Run(t.Context()), compensator.ErrRunning)
	close(goOn)
	require.NoError(t, <-ended)
	r.requireBooks(10, 0)
	backlog, err := in.Stats(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 0, backlog.Pending, "the batch was acknowledged")
	assert.EqualValues(t, 15, backlog.Lag, "nothing more was taken")
	consumers, err := r.rdb.XInfoConsumers(t.Context(), r.stream, "shop").Result()
	require.NoError(t, err)
	assert.Empty(t, consumers, "its name has left the group")
}

func TestConfigErrorsNameTheField(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.New(r.QuickConfig())
	named := func(err error, fields ...string) {
		t.Helper()
		for _, field := range fields {
			found := false
			var walk func(error)
			walk = func(err error) {
				var f *compensator.FieldError
				if many, ok := err.(interface{ Unwrap() []error }); ok {
					for _, inner := range many.Unwrap() {
						walk(inner)
					}
				} else if errors.As(err, &f) {
					found = found || f.Field == field
				}
			}
			walk(err)
			assert.Truef(t, found, "%s is named in: %v", field, err)
		}
	}
	_, err := Stream{Block: time.Hour, Idle: 5 * time.Second}.Open(t.Context(), c, Config{Batch: 2000, MaxDeliveries: 1, Timeout: time.Minute, StopTimeout: -1, StatsEvery: 1,
		Aside: compensator.HandlerConfig[Message]{TypeConfig: compensator.TypeConfig{RefuseOtherContent: true}}})
	named(err, "Redis", "Stream", "Group", "Block", "Idle", "Type", "Entry", "Batch", "MaxDeliveries", "StopTimeout", "StatsEvery", "Aside.RefuseOtherContent")
	_, err = Open(t.Context(), c, nil, testConfig())
	named(err, "source")
	cfg := testConfig()
	cfg.Aside.MaxAttempts = -1
	_, err = r.spec().Open(t.Context(), c, cfg)
	named(err, "MaxAttempts")
	one, two := r.spec().withDefaults(), r.spec().withDefaults()
	assert.NotEqual(t, one.Consumer, two.Consumer)
}

// Type.Entry stores the error, and Record refuses the batch because of it.
func TestMessageWhoseValueCannotBeEncodedIsSetAsideAndHoldsUpNobody(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.New(r.QuickConfig())
	floats, err := compensator.Declare[float64](t.Context(), c, "take_order", nil)
	require.NoError(t, err)
	cfg := testConfig()
	cfg.Entry = func(m *Message) (compensator.NewEntry, error) {
		entry, err := decode(m)
		if n := m.Value.(order).N; n == 5 {
			entry = floats.Entry(math.Inf(n), entry.Options)
		}
		return entry, err
	}
	in := r.open(c, r.spec(), cfg)
	r.add(1, 9)
	r.start(in)
	r.waitSettled("shop")
	require.Equal(t, 8, r.Count("effects"))
	require.Equal(t, 8, r.Count("common_process_log WHERE business_type='take_order'"))
	r.Run(c)
	r.Eventually(func() bool {
		return r.Count("common_process_log WHERE state=-2 AND last_error LIKE '%encode float64%'") == 1
	}, "it waits for a person")
}
