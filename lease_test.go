package compensator_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/redisqueue"
	"github.com/compensator-go/compensator/processlog"
)

// leaseOf is the stored end of an entry's lease, ms.
func (w *world) leaseOf(id compensator.EntryID) (until int64) {
	w.t.Helper()
	require.NoError(w.t, w.DB.QueryRow("SELECT lease_until FROM common_process_log WHERE id=?", id.Row()).Scan(&until))
	return until
}

// endLease makes the lease of a running attempt end, as a pause of its process longer than the lease does,
// without its process noticing.
func (w *world) endLease(id compensator.EntryID) {
	w.t.Helper()
	w.exec("UPDATE common_process_log SET lease_until=1 WHERE id=?", id.Row())
}

func TestLeaseIsRenewedWhileTheHandlerRuns(t *testing.T) {
	inEveryMode(t, func(t *testing.T, w *world, cfg compensator.Config) {
		cfg.Lease = time.Second
		c, other := w.new(cfg), w.new(cfg)
		orders, g := held(t, c, "close_order", compensator.TypeConfig{}, nil)
		_, ran := numbered(t, other, "close_order", compensator.TypeConfig{}, nil)
		w.run(c)
		id := putThrough(w, cfg.DB, orders, 1, compensator.Options{})
		g.await(t)
		w.run(other) // it would take the entry over
		last, version := w.leaseOf(id), w.entry(c, id).Version
		for range 4 {
			w.eventually(func() bool { return w.leaseOf(id) > last }, "the lease is renewed")
			last = w.leaseOf(id)
		}
		require.Equal(t, version, w.entry(c, id).Version, "a renewal is no step of the entry's")
		g.open()
		w.waitState(id, compensator.Succeeded)
		require.Zero(t, ran.total(), "nobody else ran it")
		require.Equal(t, version+1, w.entry(c, id).Version)
	})
}

// overtaking are two instances. The first's handler waits at a gate, deaf; then its lease ends.
type overtaking struct {
	*world
	first, second *compensator.Compensator
	id            compensator.EntryID
	gate          *gate
	dropped       chan compensator.SettledEvent // of the first
	settled       chan compensator.SettledEvent // of the first
	ran           *calls                        // by the second
}

// overtake lets the second instance take the entry while the first still runs it, until the second has
// recorded an outcome: the error, or success.
func overtake(t *testing.T, w *world, cfg compensator.Config, typ compensator.TypeConfig, stale, fresh error) *overtaking {
	t.Helper()
	cfg.Lease = 30 * time.Second // nothing is renewed meanwhile
	o := &overtaking{world: w, gate: newGate(), dropped: make(chan compensator.SettledEvent, 10), settled: make(chan compensator.SettledEvent, 10)}
	o.gate.openAtEnd(t)
	o.second = w.new(cfg)
	cfg.Observer.OutcomeDropped = func(e compensator.SettledEvent) { o.dropped <- e }
	cfg.Observer.Settled = func(e compensator.SettledEvent) { o.settled <- e }
	o.first = w.new(cfg)
	_, o.ran = numbered(t, o.second, "close_order", typ, func(*compensator.Entry, int) error { return fresh })
	typ.Concurrency = 1 // the first has no slot left
	orders, err := compensator.Handle(o.first, "close_order", func(_ context.Context, e *compensator.Entry, _ order) error {
		_ = o.gate.passDeaf(e)
		return stale
	}, typ)
	require.NoError(t, err)
	w.run(o.first)
	o.id = putThrough(w, cfg.DB, orders, 1, compensator.Options{})
	o.gate.await(t)
	w.run(o.second)
	version := w.entry(o.second, o.id).Version
	w.endLease(o.id)
	w.eventually(func() bool { return w.entry(o.second, o.id).Version >= version+2 }, "the second instance runs it")
	return o
}

func TestStaleFailureIsDropped(t *testing.T) {
	inOppositeModes(t, func(t *testing.T, w *world, cfg compensator.Config) {
		o := overtake(t, w, cfg, compensator.TypeConfig{Retry: compensator.Fixed(time.Hour)}, compensator.Permanent(errors.New("stale")), errors.New("fresh"))
		stored := w.row(o.id)
		o.gate.open()
		require.Equal(t, compensator.Retrying, next(t, o.dropped).State)
		require.Equal(t, stored, w.row(o.id))
		e := w.entry(o.first, o.id)
		require.Equal(t, 1, e.ProcessCount, "one failure was counted, not two")
		require.Equal(t, "fresh", e.LastError)
	})
}

func TestStaleSuccessIsAbsorbedWhileTheEntryIsOnItsWay(t *testing.T) {
	inOppositeModes(t, func(t *testing.T, w *world, cfg compensator.Config) {
		o := overtake(t, w, cfg, compensator.TypeConfig{Retry: compensator.Fixed(time.Hour)}, nil, errors.New("fresh"))
		o.gate.open()
		require.Equal(t, compensator.Succeeded, next(t, o.settled).State, "the work is done, whoever holds the lease")
		require.Equal(t, 1, w.entry(o.first, o.id).ProcessCount)
	})
}

func TestStaleSuccessAfterTheExhaustionDoesNotStopTheCompensation(t *testing.T) {
	var undone calls
	typ := compensator.TypeConfig{MaxProcessCount: 1, Compensate: func(_ context.Context, e *compensator.Entry) error { undone.add(e.ID); return nil }}
	w := newWorld(t).withRedis()
	o := overtake(t, w, w.quick(), typ, nil, errors.New("fresh"))
	w.waitState(o.id, compensator.Compensated)
	stored := w.row(o.id)
	o.gate.open()
	require.Equal(t, compensator.Compensated, next(t, o.dropped).State)
	require.Equal(t, stored, w.row(o.id))
	require.Equal(t, 1, undone.of(o.id))
}

func TestExhaustionLosesAgainstASuccessRecordedMeanwhile(t *testing.T) {
	var undone calls
	typ := compensator.TypeConfig{MaxProcessCount: 1, Compensate: func(_ context.Context, e *compensator.Entry) error { undone.add(e.ID); return nil }}
	w := newWorld(t).withRedis()
	o := overtake(t, w, w.quick(), typ, errors.New("stale, and the last"), nil)
	require.Equal(t, compensator.Succeeded, w.state(o.id))
	o.gate.open()
	require.Equal(t, compensator.Succeeded, next(t, o.dropped).State)
	require.Zero(t, undone.total(), "a success is never undone")
}

func TestStaleTransactionalEffectIsRolledBack(t *testing.T) {
	inEveryMode(t, func(t *testing.T, w *world, cfg compensator.Config) {
		cfg.Lease = 30 * time.Second
		g := newGate()
		g.openAtEnd(t)
		dropped := make(chan compensator.SettledEvent, 10)
		second := w.new(cfg)
		cfg.Observer.OutcomeDropped = func(e compensator.SettledEvent) { dropped <- e }
		first := w.new(cfg)
		orders := transactional(t, first, compensator.TypeConfig{Concurrency: 1}, func(_ context.Context, _ *compensator.ScopedTx, e *compensator.Entry) error {
			return g.passDeaf(e)
		})
		_ = transactional(t, second, compensator.TypeConfig{}, func(context.Context, *compensator.ScopedTx, *compensator.Entry) error { return nil })
		w.run(first)
		id := putThrough(w, cfg.DB, orders, 1, compensator.Options{})
		g.await(t)
		w.run(second)
		w.endLease(id)
		w.waitState(id, compensator.Succeeded)
		g.open()
		next(t, dropped)
		require.Equal(t, 1, w.count("effects"))
	})
}

func TestHandlerIsToldThatItsLeaseIsLost(t *testing.T) {
	w := newWorld(t).withRedis()
	cfg := w.quick()
	cfg.Lease = time.Second
	c := w.new(cfg)
	causes := make(chan error, 10)
	orders, err := compensator.Handle(c, "close_order", func(ctx context.Context, _ *compensator.Entry, _ order) error {
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return ctx.Err()
	}, compensator.TypeConfig{})
	require.NoError(t, err)
	w.run(c)
	id := put(w, orders, 1, compensator.Options{})
	w.eventually(func() bool { return w.leaseOf(id) > 0 }, "it runs")
	w.exec("UPDATE common_process_log SET version=version+1, state=3, ended_by='person', lease_until=0, delivery_count=0 WHERE id=?", id.Row()) // elsewhere
	require.ErrorIs(t, next(t, causes), compensator.ErrLeaseLost)
}

func TestStuckHandlerDoesNotHoldItsEntryForEver(t *testing.T) {
	inOppositeModes(t, func(t *testing.T, w *world, cfg compensator.Config) {
		cfg.Lease = time.Second
		other := w.new(cfg)
		stuck := make(chan compensator.AttemptEvent, 10)
		cfg.Observer.Stuck = func(e compensator.AttemptEvent) { stuck <- e }
		cfg.Observer.OutcomeDropped = func(compensator.SettledEvent) {}
		c := w.new(cfg)
		g := newGate()
		g.openAtEnd(t)
		orders, err := compensator.Handle(c, "close_order", func(_ context.Context, e *compensator.Entry, _ order) error {
			return g.passDeaf(e)
		}, compensator.TypeConfig{Timeout: 50 * time.Millisecond, Concurrency: 1})
		require.NoError(t, err)
		_, ran := numbered(t, other, "close_order", compensator.TypeConfig{}, nil)
		w.run(c)
		id := putThrough(w, cfg.DB, orders, 1, compensator.Options{})
		g.await(t)
		require.Equal(t, id, next(t, stuck).ID)
		health := c.Health(t.Context())
		if assert.Len(t, health.Stuck, 1) {
			require.Equal(t, id, health.Stuck[0].ID)
			require.Equal(t, "close_order", health.Stuck[0].BusinessType)
		}
		w.run(other)
		w.waitState(id, compensator.Succeeded)
		require.Equal(t, 1, ran.of(id))
		require.Empty(t, stuck, "it is told once")
		g.open()
	})
}

// A slow database costs time. It must not cost the lease of an entry that has been run, or another process runs
// it, too, and the first outcome is lost.
func TestEntryWhoseOutcomeWaitsToBeStoredIsNotRunElsewhere(t *testing.T) {
	for name, verdict := range map[string]error{"success": nil, "failure": compensator.Permanent(errors.New("no"))} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			proxy, db := w.proxied(true)
			cfg := w.quick()
			cfg.Lease = time.Second
			other := w.new(cfg)
			cfg.DB = db
			cfg.Observer.OutcomeDropped = func(compensator.SettledEvent) { t.Error("the outcome was dropped") }
			c := w.new(cfg)
			orders, ran := numbered(t, c, "close_order", compensator.TypeConfig{}, func(*compensator.Entry, int) error { return verdict })
			_, ranElsewhere := numbered(t, other, "close_order", compensator.TypeConfig{}, nil)
			held := proxy.Arm(faultproxy.Rule{Match: faultproxy.Contains("delivery_count=0"), Fault: faultproxy.DropRequest, Hang: true})
			w.run(c)
			id := put(w, orders, 1, compensator.Options{})
			require.NoError(t, held.Await(t.Context()))
			w.run(other)
			for range 3 {
				end := w.leaseOf(id)
				w.eventually(func() bool { return w.leaseOf(id) > end }, "the lease is renewed")
			}
			proxy.Heal()
			proxy.Cut() // the tries that hang fail, and the next one passes
			w.waitAllEnded()
			require.Equal(t, 1, ran.of(id))
			require.Zero(t, ranElsewhere.total())
		})
	}
}

func TestStuckSuspectLetsTheNextOneIn(t *testing.T) {
	w := newWorld(t)
	cfg := w.quick()
	stuck := make(chan compensator.AttemptEvent, 10)
	cfg.Observer.Stuck = func(e compensator.AttemptEvent) { stuck <- e }
	c := w.new(cfg)
	g := newGate()
	g.openAtEnd(t)
	var ran calls
	orders, err := compensator.Handle(c, "close_order", func(_ context.Context, e *compensator.Entry, o order) error {
		ran.add(e.ID)
		if o.Number == 0 {
			return g.passDeaf(e) // returns only when the test is over
		}
		return nil
	}, compensator.TypeConfig{Timeout: 50 * time.Millisecond})
	require.NoError(t, err)
	deaf := put(w, orders, 0, compensator.Options{})
	w.exec("UPDATE common_process_log SET delivery_count=2, next_at=next_at-1000")
	next := put(w, orders, 1, compensator.Options{Delay: time.Second})
	w.exec("UPDATE common_process_log SET delivery_count=2 WHERE id=?", next.Row())
	w.run(c)
	g.await(t)
	require.Equal(t, deaf, (<-stuck).ID)
	w.waitState(next, compensator.Succeeded)
	require.Equal(t, 1, ran.of(next))
}

func TestEntryTwiceOnItsWayRunsOnce(t *testing.T) {
	w := newWorld(t).withRedis()
	cfg := w.quick()
	c, other := w.new(cfg), w.new(cfg)
	orders, g := held(t, c, "close_order", compensator.TypeConfig{}, nil)
	_, ran := numbered(t, other, "close_order", compensator.TypeConfig{}, nil)
	w.run(c)
	var ids []compensator.EntryID
	for i := range 10 {
		ids = append(ids, put(w, orders, i, compensator.Options{}))
	}
	queue, err := redisqueue.Open(w.Redis, w.Name)
	require.NoError(t, err)
	t.Cleanup(func() { _ = queue.Close() })
	for range 10 {
		g.await(t)
	}
	w.run(other)
	for _, id := range ids {
		_, _, err := queue.Announce(t.Context(), []processlog.Announcement{{BusinessType: "close_order", ID: id}}, processlog.AnnounceRules{MaxLease: time.Minute})
		require.NoError(t, err)
	}
	w.eventually(func() bool {
		waits, _, err := queue.Peek(t.Context(), []string{"close_order"})
		return err == nil && waits[0] > 0
	}, "the queue has offered all of them")
	g.open()
	w.waitAllEnded()
	require.Zero(t, ran.total())
	require.Empty(t, g.entered, "each ran once")
}

func TestEntryTheQueueKeepsAfterItsEndDoesNotRunAgain(t *testing.T) {
	w := newWorld(t).withRedis()
	c := w.new(w.quick())
	orders, ran := numbered(t, c, "close_order", compensator.TypeConfig{}, nil)
	w.run(c)
	id := put(w, orders, 1, compensator.Options{})
	w.waitState(id, compensator.Succeeded)
	queue, err := redisqueue.Open(w.Redis, w.Name)
	require.NoError(t, err)
	t.Cleanup(func() { _ = queue.Close() })
	for _, row := range []compensator.EntryID{id, processlog.RowID(1 << 40)} { // read by a reconciler just before its end; never there
		_, _, err = queue.Announce(t.Context(), []processlog.Announcement{{BusinessType: "close_order", ID: row}}, processlog.AnnounceRules{MaxLease: time.Minute})
		require.NoError(t, err)
	}
	require.NoError(t, queue.Notify(t.Context(), []string{"close_order"}))
	w.eventually(func() bool { return w.queued() == 0 }, "the queue is told that it has ended")
	require.Equal(t, 1, ran.of(id))
}
