package compensator_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
)

// backlog writes n entries that are all due at the same long-gone moment, as an outage leaves them.
func (w *world) backlog(businessType string, n int) {
	w.t.Helper()
	for from := 0; from < n; from += 500 {
		var rows []string
		for i := from; i < min(n, from+500); i++ {
			rows = append(rows, fmt.Sprintf("('%s-late-%d','%s','{}',1,NOW(),NOW())", businessType, i, businessType))
		}
		w.exec("INSERT INTO common_process_log (idempotent_id, business_type, content, next_at, created_at, updated_at) VALUES " + strings.Join(rows, ","))
	}
}

// leased is how many entries of a type are under a lease.
func (w *world) leased(businessType string) int {
	w.t.Helper()
	return w.count("common_process_log WHERE business_type=? AND lease_until>0", businessType)
}

func TestTypeOfAnotherInstanceIsLeftAloneAndReported(t *testing.T) {
	inEveryMode(t, func(t *testing.T, w *world, cfg compensator.Config) {
		unknown := make(chan []string, 1000)
		cfg.Observer.Reconciled = func(e compensator.ReconciledEvent) {
			if len(e.UnknownTypes) > 0 {
				unknown <- e.UnknownTypes
			}
		}
		c := w.new(cfg)
		ours, ran := numbered(t, c, "close_order", compensator.TypeConfig{}, nil)
		theirs, err := compensator.Declare[order](c, "pay_order", compensator.TypeConfig{})
		require.NoError(t, err)
		w.run(c)
		foreign := putThrough(w, cfg.DB, theirs, 1, compensator.Options{})
		own := putThrough(w, cfg.DB, ours, 2, compensator.Options{})
		for range 3 {
			require.Equal(t, []string{"pay_order"}, next(t, unknown))
		}
		w.waitState(own, compensator.Succeeded)
		require.Equal(t, 1, ran.total())
		e := w.entry(c, foreign)
		require.Equal(t, compensator.Pending, e.State)
		require.Zero(t, e.Version, "nobody touched it")
		require.Zero(t, e.DeliveryCount)
		require.Equal(t, []string{"pay_order"}, c.Health(t.Context()).UnknownTypes)
	})
}

func TestNewTypeOfARollingDeployRunsOnceItsInstanceIsThere(t *testing.T) {
	inEveryMode(t, func(t *testing.T, w *world, cfg compensator.Config) {
		rounds := make(chan struct{}, 1000)
		old := cfg
		old.Observer.Reconciled = func(compensator.ReconciledEvent) { rounds <- struct{}{} }
		before := w.new(old)
		orders, _ := numbered(t, before, "close_order", compensator.TypeConfig{}, nil)
		w.run(before)
		after := w.new(cfg)
		bonus, ran := numbered(t, after, "grant_bonus", compensator.TypeConfig{}, nil)
		id := putThrough(w, cfg.DB, bonus, 1, compensator.Options{}) // recorded by the new instance before it runs
		next(t, rounds)
		next(t, rounds)
		require.Equal(t, compensator.Pending, w.state(id))
		w.run(after)
		w.waitState(id, compensator.Succeeded)
		require.Equal(t, 1, ran.of(id))
		putThrough(w, cfg.DB, orders, 1, compensator.Options{})
		putThrough(w, cfg.DB, bonus, 2, compensator.Options{})
		w.waitAllEnded()
		require.Equal(t, 3, w.count("common_process_log WHERE state=1"))
	})
}

func TestSlowTypeDoesNotStarveAFastOne(t *testing.T) {
	inOppositeModes(t, func(t *testing.T, w *world, cfg compensator.Config) {
		c := w.new(cfg)
		_, slow := held(t, c, "slow", compensator.TypeConfig{Concurrency: 2}, nil)
		fast, ran := numbered(t, c, "fast", compensator.TypeConfig{Concurrency: 2}, nil)
		w.backlog("slow", 600)
		w.run(c)
		slow.await(t)
		slow.await(t)
		for i := range 30 {
			id := putThrough(w, cfg.DB, fast, i, compensator.Options{})
			w.waitState(id, compensator.Succeeded)
		}
		require.Equal(t, 30, ran.total())
		require.Equal(t, 600, w.count("common_process_log WHERE business_type='slow' AND state=0"), "the slow ones have not moved")
		slow.open()
		w.waitAllEnded()
	})
}

func TestPoisonEntriesAtTheHeadDoNotStarveNewOnes(t *testing.T) {
	inEveryMode(t, func(t *testing.T, w *world, cfg compensator.Config) {
		c := w.new(cfg)
		orders, err := compensator.Handle(c, "close_order", func(_ context.Context, e *compensator.Entry, _ order) error {
			if strings.HasPrefix(e.IdempotentID, "close_order-late") {
				return errors.New("never")
			}
			return nil
		}, compensator.TypeConfig{Concurrency: 10, MaxProcessCount: 1 << 20, Retry: compensator.Fixed(time.Second)})
		require.NoError(t, err)
		w.backlog("close_order", 300)
		w.run(c)
		w.eventually(func() bool { return w.count("common_process_log WHERE process_count>0") >= 100 }, "the poison is at work")
		for i := range 10 {
			w.waitState(putThrough(w, cfg.DB, orders, i, compensator.Options{}), compensator.Succeeded)
		}
		require.Equal(t, 300, w.count("common_process_log WHERE state IN (0,-1)"))
	})
}

func TestNoMoreEntriesAreClaimedThanCanRun(t *testing.T) {
	inOppositeModes(t, func(t *testing.T, w *world, cfg compensator.Config) {
		c := w.new(cfg)
		_, g := held(t, c, "close_order", compensator.TypeConfig{Concurrency: 4}, nil)
		w.backlog("close_order", 2000) // the herd of midnight
		w.run(c)
		for range 4 {
			g.await(t)
		}
		require.Equal(t, 4, w.leased("close_order"))
		g.open()
		w.waitAllEnded()
		require.Equal(t, 2000, w.count("common_process_log WHERE state=1"))
		require.Zero(t, w.count("common_process_log WHERE process_count>0"))
	})
}

func TestTenThousandNewEntriesWithSlowHandlersStayBounded(t *testing.T) {
	w := newWorld(t).withRedis()
	c := w.new(w.quick())
	orders, g := held(t, c, "close_order", compensator.TypeConfig{Concurrency: 20, Timeout: patience}, nil)
	w.run(c)
	for range 20 {
		putMany(w, c, orders, 500, compensator.Options{})
	}
	for range 10 {
		g.await(t)
	}
	require.LessOrEqual(t, w.leased("close_order"), 20)
	require.Less(t, runtime.NumGoroutine(), 400, "no goroutine waits for each entry")
	g.open()
	w.waitAllEnded()
	require.Equal(t, 10_000, w.count("common_process_log WHERE state=1 AND process_count=0"))
}

func TestNewEntriesRunWhileABacklogIsWorkedOff(t *testing.T) {
	w := newWorld(t).withRedis()
	cfg := w.quick()
	cfg.Lease = 30 * time.Second // a third of it is how long a new entry's slot is kept for its commit
	c := w.new(cfg)
	late := newGate()
	orders, err := compensator.Handle(c, "close_order", func(ctx context.Context, e *compensator.Entry, _ order) error {
		if strings.HasPrefix(e.IdempotentID, "close_order-late") {
			return late.pass(ctx, e)
		}
		return nil
	}, compensator.TypeConfig{Concurrency: 5, Timeout: patience})
	require.NoError(t, err)
	w.run(c)
	for range 2 { // once the first has run, Run takes new entries as they are born
		w.waitState(put(w, orders, 0, compensator.Options{}), compensator.Succeeded)
	}
	w.backlog("close_order", 300)
	for range 4 {
		late.await(t)
	}
	for i := range 20 {
		w.waitState(put(w, orders, i, compensator.Options{}), compensator.Succeeded)
	}
	require.Equal(t, 300, w.count("common_process_log WHERE state=0"))
	late.open()
	w.waitAllEnded()
}

func TestEntriesOfOneBusinessRunSideBySide(t *testing.T) {
	w := newWorld(t)
	c := w.new(w.quick())
	orders, g := held(t, c, "close_order", compensator.TypeConfig{}, nil)
	w.run(c)
	first := put(w, orders, 1, compensator.Options{BusinessID: "42"})
	second := put(w, orders, 2, compensator.Options{BusinessID: "42"})
	met := []compensator.EntryID{g.await(t), g.await(t)}
	assert.ElementsMatch(t, []compensator.EntryID{first, second}, met, "a business id orders nothing")
	g.open()
	w.waitAllEnded()
}
