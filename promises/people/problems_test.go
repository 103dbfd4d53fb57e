package people

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/redisqueue"
	"github.com/compensator-go/compensator/processlog"
)

type breakable struct {
	*harness.World
	c       *compensator.Compensator
	proxy   *faultproxy.MySQL
	queue   *muteQueue
	held    *harness.Gate
	plain   *compensator.Type[harness.Order]
	holding *compensator.Type[harness.Order]
	inTx    *compensator.Type[harness.Order]
}

// muteQueue sends no notifications while broken is set. It offers no entries while down is set.
type muteQueue struct {
	processlog.Queue
	broken, down atomic.Bool
}

func (q *muteQueue) Claim(ctx context.Context, businessType string, limit int, lease time.Duration) (processlog.Leased, error) {
	if q.down.Load() {
		return processlog.Leased{}, errors.New("the queue is down")
	}
	return q.Queue.Claim(ctx, businessType, limit, lease)
}

func (q *muteQueue) Notify(ctx context.Context, businessTypes []string) error {
	if q.broken.Load() {
		return errors.New("the channel is forbidden")
	}
	return q.Queue.Notify(ctx, businessTypes)
}

func newBreakable(t *testing.T, watched bool) (*breakable, harness.Log) {
	b := &breakable{World: harness.NewWorld(t).WithRedis(), held: harness.NewGate()}
	queue, err := redisqueue.Open(b.Redis, b.Name)
	require.NoError(t, err)
	b.queue = &muteQueue{Queue: queue}
	cfg := b.QuickConfig()
	b.proxy, cfg.DB = b.OpenProxied(watched)
	cfg.Redis, cfg.Queue = nil, b.queue
	lines := harness.CaptureLog(&cfg)
	b.c = b.New(cfg)
	b.plain, _ = harness.HandleCounted(t, b.c, "plain", compensator.HandlerConfig[harness.Order]{}, nil)
	b.holding, err = compensator.Handle(t.Context(), b.c, "holding", func(_ context.Context, e *compensator.Entry, _ harness.Order) error {
		return b.held.PassIgnoringContext(e)
	}, nil)
	require.NoError(t, err)
	b.inTx = harness.HandleTransactional(t, b.c, compensator.HandlerConfig[harness.Order]{}, func(context.Context, *compensator.ScopedTx, *compensator.Entry) error { return nil })
	b.Run(b.c)
	b.held.OpenAtEnd(t)
	return b, lines
}

func (b *breakable) takeQueueDown() { b.queue.down.Store(true) }

func (b *breakable) breakRequests(matches ...faultproxy.Match) {
	for _, match := range matches {
		b.proxy.Arm(faultproxy.Rule{Match: match, Fault: faultproxy.DropRequest})
	}
}

// record uses InTx, so that the commit is seen on every kind of pool.
func (b *breakable) record(businessType string, delay time.Duration) {
	b.T.Helper()
	require.NoError(b.T, b.c.InTx(b.T.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := b.c.Record(ctx, tx, compensator.NewEntry{BusinessType: businessType, Content: []byte("{}"), Options: compensator.Options{Delay: delay}})
		return err
	}))
}

var releases = faultproxy.Contains("delivery_count=delivery_count-1")

// isClaim matches the statement that reads whole rows and locks them.
func isClaim(r faultproxy.Request) bool {
	return readsRows(r) && strings.Contains(r.Text, "FOR UPDATE")
}

// isReadBack matches the statement that reads whole rows without locks.
func isReadBack(r faultproxy.Request) bool {
	return readsRows(r) && !strings.Contains(r.Text, "FOR UPDATE")
}

func readsRows(r faultproxy.Request) bool {
	return r.Runs() && strings.Contains(r.Text, "content") && strings.Contains(r.Text, "WHERE id IN (")
}

var problems = map[string]struct {
	what    string
	breaks  func(b *breakable)
	provoke func(b *breakable, n int) // may be called repeatedly
	watched bool                      // whether the library recognizes the problem only on a pool with the Connector
}{
	"claim": {what: "entries could not be claimed", breaks: func(b *breakable) {
		b.breakRequests(isClaim)
		b.record("plain", 100*time.Millisecond)
	}},
	"claim-polled": {what: "entries could not be claimed", breaks: func(b *breakable) {
		b.takeQueueDown()
		b.breakRequests(isClaim)
		b.record("plain", 100*time.Millisecond)
	}},
	"due": {what: "due entries could not be found in the database", breaks: func(b *breakable) {
		b.takeQueueDown()
		b.breakRequests(faultproxy.Contains("lease_until<="))
		b.record("plain", 100*time.Millisecond)
	}},
	"release": {what: "leases could not be given back", breaks: func(b *breakable) {
		b.breakRequests(isClaim, releases)
		b.record("plain", 100*time.Millisecond)
	}},
	"renew": {what: "leases could not be renewed", breaks: func(b *breakable) {
		b.breakRequests(faultproxy.Contains("SET lease_until="))
		b.Record(b.holding, 1, compensator.Options{})
	}},
	"store": {what: "outcomes could not be stored", breaks: func(b *breakable) {
		b.breakRequests(faultproxy.Contains("delivery_count=0, lease_until=0"))
		b.Record(b.plain, 1, compensator.Options{})
	}},
	"read-back": {what: "new entries could not be read back", breaks: func(b *breakable) { b.breakRequests(isReadBack) },
		provoke: func(b *breakable, _ int) { b.record("plain", 0) }},
	"witness": {what: "what the database has kept so far could not be read back", breaks: func(b *breakable) {
		b.WaitState(b.Record(b.plain, 1, compensator.Options{}), compensator.Succeeded)
		b.breakRequests(faultproxy.Contains("version, epoch, token FROM `", "`common_process_log`"))
	}},
	"notify": {what: "other processes could not be notified", breaks: func(b *breakable) { b.queue.broken.Store(true) },
		provoke: func(b *breakable, n int) { b.record(fmt.Sprint("elsewhere_", n), time.Minute) }}, // Each of these entries is the first of its type.
	"begin": {what: "attempts end with nothing counted: something they need is not available", watched: true, breaks: func(b *breakable) {
		b.breakRequests(faultproxy.Contains("SET TRANSACTION ISOLATION LEVEL"))
		for i := range 3 {
			b.Record(b.inTx, i, compensator.Options{})
		}
	}},
}

// No caller gets the error of background work.
// Failure: F85
func TestEveryProblemIsToldOnceAndStandsInHealthUntilItIsOver(t *testing.T) {
	t.Parallel()
	for name, problem := range problems {
		for pool, watched := range map[string]bool{"connector": true, "plain": false} {
			if problem.watched && !watched {
				continue
			}
			t.Run(name+"/"+pool, func(t *testing.T) {
				t.Parallel()
				b, lines := newBreakable(t, watched)
				n, healed := 0, false
				since := map[string]time.Time{} // by business type
				until := func(check func(times int) bool, what string) {
					t.Helper()
					for deadline := time.Now().Add(harness.Timeout); ; n++ {
						if problem.provoke != nil {
							problem.provoke(b, n)
						}
						times := 0
						for _, open := range b.c.Health(t.Context()).Problems {
							if open.What == problem.what {
								times = open.Times
								assert.NotEmpty(t, open.Error)
								began, known := since[open.BusinessType]
								assert.True(t, healed || !known || began.Equal(open.Since), "it lasts since %v, and not since %v", began, open.Since)
								since[open.BusinessType] = open.Since
							}
						}
						if check(times) {
							return
						}
						require.True(t, time.Now().Before(deadline), what)
						harness.Elapse(20 * time.Millisecond)
					}
				}
				problem.breaks(b)
				until(func(times int) bool { return times >= 3 }, "Health has it, and that it goes on")
				line := lines.Contains(b.World, problem.what)
				assert.Contains(t, line, "level=WARN")
				healed = true
				b.proxy.Heal()
				b.queue.broken.Store(false)
				b.queue.down.Store(false)
				until(func(times int) bool { return times == 0 }, "it is over")
				for len(lines) > 0 {
					assert.NotContains(t, <-lines, problem.what, "one log line a minute")
				}
			})
		}
	}
}

func TestOutcomeWhoseRowIsLockedIsNotTakenForStored(t *testing.T) {
	t.Parallel()
	b, _ := newBreakable(t, false) // On a plain pool the library first asks which rows are free.
	var asked atomic.Int64
	b.proxy.Arm(faultproxy.Rule{Match: func(r faultproxy.Request) bool {
		if r.Runs() && strings.Contains(r.Text, " id FROM `") && strings.Contains(r.Text, "`common_process_log`") && strings.Contains(r.Text, "SKIP LOCKED") {
			asked.Add(1)
		}
		return false
	}})
	problem := problems["store"]
	problem.breaks(b)
	open := func() (since time.Time) {
		for _, open := range b.c.Health(t.Context()).Problems {
			if open.What == problem.what {
				since = open.Since
			}
		}
		return since
	}
	b.Eventually(func() bool { return !open().IsZero() }, "it cannot be stored")
	held := b.Begin(b.DB)
	_, err := held.Exec("UPDATE common_process_log SET updated_at=updated_at")
	require.NoError(t, err)
	since, before := open(), asked.Load()
	b.Eventually(func() bool { return asked.Load() >= before+8 }, "it is offered again")
	require.False(t, since.IsZero())
	require.Equal(t, since, open())
	require.NoError(t, held.Rollback())
	b.proxy.Heal()
	b.Eventually(func() bool { return open().IsZero() }, "it is stored")
}

// The ended lease needs no renewal, and no other lease exists whose renewal would clear the problem.
func TestRenewalsAreNoProblemOnceNothingIsLeftToRenew(t *testing.T) {
	t.Parallel()
	b, lines := newBreakable(t, true)
	problem := problems["renew"]
	problem.breaks(b)
	lines.Contains(b.World, problem.what)
	b.AwaitLeasesEnded(1)
	b.Eventually(func() bool { return len(b.c.Health(t.Context()).Problems) == 0 }, "nothing is renewed any more, and nothing fails")
}
