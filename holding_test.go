package compensator_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/testservers"
)

// nowMillis is the database's clock, in the unit of the log's columns.
const nowMillis = "TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(3)) DIV 1000"

// withholdOutcomes makes the database take claims, but neither outcomes nor renewals.
func withholdOutcomes(proxy *faultproxy.MySQL) {
	proxy.Arm(faultproxy.Rule{Match: faultproxy.Contains("delivery_count=0, lease_until=0"), Fault: faultproxy.DropRequest})
	proxy.Arm(faultproxy.Rule{Match: faultproxy.Contains("SET lease_until="), Fault: faultproxy.DropRequest})
}

// awaitMoreClaims waits until a process has begun several more claims.
func (w *world) awaitMoreClaims(proxy *faultproxy.MySQL) {
	w.t.Helper()
	claims := proxy.Arm(faultproxy.Rule{Match: faultproxy.Contains("FOR UPDATE SKIP LOCKED")})
	w.eventually(func() bool { return claims.Matched() >= 4 }, "the process claims")
	claims.Disarm()
}

// throughProxy is a DSN that leads through a proxy.
func throughProxy(t *testing.T, dsn string, proxy *faultproxy.MySQL) string {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	config.Addr = proxy.Addr()
	return config.FormatDSN()
}

func (w *world) awaitLeasesEnded(n int) {
	w.t.Helper()
	w.eventually(func() bool {
		return w.count("common_process_log WHERE state IN (0,-1,-3) AND lease_until>0 AND lease_until<"+nowMillis) == n
	}, "%d leases end", n)
}

// The database takes no outcome for longer than the lease. Whoever holds one must not take his own entry for that of
// somebody who died.
func TestOutcomeThatWaitsComesBeforeAClaimOfItsOwnProcess(t *testing.T) {
	for name, withRedis := range map[string]bool{"redis": true, "no redis": false} {
		for _, lost := range []string{"id%2", "2"} { // those of two lost leases run alone
			t.Run(name+", "+lost+" lost leases", func(t *testing.T) {
				w := newWorld(t)
				if withRedis {
					w.withRedis()
				}
				proxy, db := w.proxied(true)
				cfg := w.quick()
				cfg.DB, cfg.Lease = db, time.Second
				cfg.Observer.OutcomeDropped = func(e compensator.SettledEvent) { assert.Fail(t, "dropped", e) }
				c := w.new(cfg)
				_, ran := numbered(t, c, "close_order", compensator.TypeConfig{}, nil)
				n := 3
				if lost == "2" {
					n = 1
				}
				w.backlog("close_order", n)
				w.exec("UPDATE common_process_log SET delivery_count=" + lost)
				withholdOutcomes(proxy)
				w.run(c)
				w.awaitLeasesEnded(n)
				w.awaitMoreClaims(proxy)
				proxy.Heal()
				w.waitAllEnded()
				require.Equal(t, n, ran.total(), "each ran once")
				require.Equal(t, n, w.ended(compensator.Succeeded, 0))
			})
		}
	}
}

// A whole server that stands still for longer than the lease.
func TestDatabaseThatStopsForLongerThanTheLeaseCostsNoOutcome(t *testing.T) {
	server := testservers.NewSQL(t)
	w := worldAt(t, server.Database(t))
	cfg := w.quick()
	cfg.Lease = time.Second
	cfg.Observer.OutcomeDropped = func(e compensator.SettledEvent) { assert.Fail(t, "dropped", e) }
	c := w.new(cfg)
	ran := new(calls)
	g := newGate()
	g.openAtEnd(t)
	_, err := compensator.Handle(c, "close_order", func(_ context.Context, e *compensator.Entry, _ order) error {
		ran.add(e.ID)
		return g.passDeaf(e)
	}, compensator.TypeConfig{Concurrency: 40})
	require.NoError(t, err)
	w.backlog("close_order", 30)
	w.run(c)
	for range 30 {
		g.await(t)
	}
	server.Pause()
	passes(400 * time.Millisecond) // renewals and polls hang now
	g.open()
	passes(2500 * time.Millisecond)
	server.Resume()
	w.waitAllEnded()
	require.Equal(t, 30, ran.total(), "each ran once")
	require.Equal(t, 30, w.ended(compensator.Succeeded, 0))
}

// Another process cannot know that the first one lives and has a success to report. It leaves the entry alone for a
// lease.
func TestCrashBudgetLeavesALeaseToTheSuccessOfALivingProcess(t *testing.T) {
	for name, withRedis := range map[string]bool{"redis": true, "no redis": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if withRedis {
				w.withRedis()
			}
			proxy, db := w.proxied(true)
			cfg := w.quick()
			cfg.DB, cfg.Lease = db, time.Second
			cfg.Observer.OutcomeDropped = func(e compensator.SettledEvent) { assert.Fail(t, "dropped", e) }
			c := w.new(cfg)
			_, ran := numbered(t, c, "close_order", compensator.TypeConfig{}, nil)
			cfg.DB, cfg.Lease = w.DB, 20*time.Second
			other := w.new(cfg)
			_, ranElsewhere := numbered(t, other, "close_order", compensator.TypeConfig{}, nil)
			w.backlog("close_order", 1)
			w.exec("UPDATE common_process_log SET delivery_count=2")
			withholdOutcomes(proxy)
			w.run(c)
			w.awaitLeasesEnded(1)
			w.run(other)
			w.eventually(func() bool { return w.count("common_process_log WHERE delivery_count=4") == 1 }, "the further lease is counted")
			proxy.Heal()
			w.waitAllEnded()
			require.Equal(t, 1, ran.total())
			require.Zero(t, ranElsewhere.total())
			require.Equal(t, 1, w.ended(compensator.Succeeded, 0))
		})
	}
}

// What is undone is undone, whoever has the entry by the time the database learns of it.
func TestCrashBudgetLeavesALeaseToTheCompensationOfALivingProcess(t *testing.T) {
	w := newWorld(t)
	proxy, db := w.proxied(true)
	cfg := w.quick()
	cfg.DB, cfg.Lease = db, time.Second
	cfg.Observer.OutcomeDropped = func(e compensator.SettledEvent) { assert.Fail(t, "dropped", e) }
	c := w.new(cfg)
	undone := new(calls)
	undo := compensator.TypeConfig{Compensate: func(_ context.Context, e *compensator.Entry) error { undone.add(e.ID); return nil }}
	numbered(t, c, "close_order", undo, nil)
	cfg.DB, cfg.Lease = w.DB, 20*time.Second
	other := w.new(cfg)
	numbered(t, other, "close_order", undo, nil)
	w.backlog("close_order", 1)
	w.exec("UPDATE common_process_log SET state=-3, delivery_count=2")
	withholdOutcomes(proxy)
	w.run(c)
	w.awaitLeasesEnded(1)
	w.run(other)
	w.eventually(func() bool { return w.count("common_process_log WHERE delivery_count=4") == 1 }, "the further lease is counted")
	proxy.Heal()
	w.waitAllEnded()
	require.Equal(t, 1, undone.total())
	require.Equal(t, 1, w.ended(compensator.Compensated, 0))
}

// A database that can be read and takes no writes proves nothing to those who wait for somebody else's word, however long
// it lasts.
func TestTimeInWhichNothingCanBeWrittenCountsAgainstNobody(t *testing.T) {
	w := newWorld(t)
	cfg := w.quick()
	cfg.Lease = time.Second
	cfg.Observer.OutcomeDropped = func(e compensator.SettledEvent) { assert.Fail(t, "dropped", e) }
	var proxies []*faultproxy.MySQL
	var instances []*compensator.Compensator
	ran := new(calls)
	for range 2 {
		proxy, db := w.proxied(true)
		cfg.DB = db
		c := w.new(cfg)
		_, err := compensator.Handle(c, "close_order", func(_ context.Context, e *compensator.Entry, _ order) error {
			ran.add(e.ID)
			return nil
		}, compensator.TypeConfig{})
		require.NoError(t, err)
		proxies, instances = append(proxies, proxy), append(instances, c)
	}
	w.backlog("close_order", 1)
	w.exec("UPDATE common_process_log SET delivery_count=2")
	holder, other := proxies[0], proxies[1]
	withholdOutcomes(holder)
	w.run(instances[0])
	w.awaitLeasesEnded(1)
	for _, p := range proxies {
		p.Arm(faultproxy.Rule{Match: faultproxy.Contains("UPDATE"), Fault: faultproxy.DropRequest, Nth: 0})
	}
	reads := other.Arm(faultproxy.Rule{Match: faultproxy.Contains("common_process_log")})
	w.run(instances[1])
	passes(3 * time.Second) // what a clock could count
	w.eventually(func() bool { return reads.Matched() >= 4 }, "it looks")
	other.Heal()
	w.eventually(func() bool { return w.count("common_process_log WHERE delivery_count>3 OR state<>0") == 1 }, "the other one writes")
	holder.Heal()
	w.waitAllEnded()
	require.Equal(t, 1, ran.total())
	require.Equal(t, 1, w.ended(compensator.Succeeded, 0))
}

// A suspect whose outcome is not stored is as much at risk as one that runs: the next one has to wait.
func TestSuspectHoldsItsLaneUntilItsOutcomeIsStored(t *testing.T) {
	w := newWorld(t).withRedis()
	proxy, _ := w.proxied(true)
	c, types := w.lifeInstance(w.DB)
	putMany(w, c, types.ship, 10, compensator.Options{})
	w.exec("UPDATE common_process_log SET delivery_count=2")
	withholdOutcomes(proxy)
	child := w.startChild(program{DSN: throughProxy(t, w.DSN, proxy)})
	w.eventually(func() bool { return w.count("common_process_log WHERE delivery_count=3") > 0 }, "a suspect runs")
	w.awaitMoreClaims(proxy)
	child.kill()
	require.Equal(t, 1, w.count("common_process_log WHERE delivery_count>2"), "the kill counts against one")
	w.run(c)
	w.waitAllEnded()
	require.LessOrEqual(t, w.count("common_process_log WHERE state=-2"), 1)
	require.GreaterOrEqual(t, w.ended(compensator.Succeeded, 0), 9)
}

func TestNoHandlerStartsOnceRunsContextHasEnded(t *testing.T) {
	inOppositeModes(t, func(t *testing.T, w *world, cfg compensator.Config) {
		proxy, db := w.proxied(true)
		cfg.DB = db
		c := w.new(cfg)
		_, ran := numbered(t, c, "close_order", compensator.TypeConfig{}, nil)
		w.backlog("close_order", 30)
		late := proxy.Arm(faultproxy.Rule{Match: faultproxy.Contains("delivery_count=delivery_count+1"), Fault: faultproxy.DelayReply, Delay: 300 * time.Millisecond})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		require.NoError(t, late.Await(t.Context()))
		cancel()
		require.NoError(t, next(t, ended))
		require.Zero(t, ran.total(), "what a late claim brings is not run")
		require.Equal(t, 30, w.count("common_process_log WHERE state=0 AND lease_until=0 AND delivery_count=0"), "it is free for others at once")
	})
}

func TestNoTransactionalHandlerStartsOnceRunsContextHasEnded(t *testing.T) {
	w := newWorld(t)
	proxy, db := w.proxied(true)
	cfg := w.quick()
	cfg.DB = db
	c := w.new(cfg)
	var ran atomic.Int64
	_, err := compensator.HandleTx(c, "close_order", func(context.Context, *compensator.ScopedTx, *compensator.Entry, order) error {
		ran.Add(1)
		return nil
	}, compensator.TypeConfig{})
	require.NoError(t, err)
	w.backlog("close_order", 3)
	late := proxy.Arm(faultproxy.Rule{Match: faultproxy.Contains("SET TRANSACTION ISOLATION LEVEL"), Fault: faultproxy.DelayReply, Delay: 300 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	require.NoError(t, late.Await(t.Context()), "its transaction begins")
	cancel()
	require.NoError(t, next(t, ended))
	require.Zero(t, ran.Load())
	require.Equal(t, 3, w.count("common_process_log WHERE state=0 AND lease_until=0 AND delivery_count=0"), "nothing is spent")
}

// A batch that timed out, and breaks only when Run's context has ended, is not run again entry by entry.
func TestBatchThatBreaksAfterTheEndOfRunsContextIsNotRunAgain(t *testing.T) {
	w := newWorld(t)
	c := w.new(w.quick())
	g := newGate()
	var called atomic.Int64
	_, err := compensator.HandleBatch(c, "close_order", func(ctx context.Context, items []compensator.Item[order]) []error {
		called.Add(1)
		assert.NoError(t, g.passDeaf(items[0].Entry))
		<-ctx.Done() // timed out
		return make([]error, len(items)+1)
	}, compensator.TypeConfig{Timeout: 50 * time.Millisecond})
	require.NoError(t, err)
	w.backlog("close_order", 5)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	g.await(t)
	cancel()
	g.open()
	require.NoError(t, next(t, ended))
	require.Equal(t, int64(1), called.Load())
	require.Equal(t, 5, w.count("common_process_log WHERE state=0 AND lease_until=0 AND delivery_count=0 AND process_count=0"), "nothing is spent")
}

func TestNoHandlerStartsWhenAStoppedDatabaseComesBackAfterTheSignal(t *testing.T) {
	server := testservers.NewSQL(t)
	w := worldAt(t, server.Database(t))
	c := w.new(w.quick())
	var ended atomic.Bool
	var late, ran atomic.Int64
	_, err := compensator.Handle(c, "close_order", func(context.Context, *compensator.Entry, order) error {
		if ended.Load() {
			late.Add(1)
		}
		ran.Add(1)
		return nil
	}, compensator.TypeConfig{Concurrency: 50})
	require.NoError(t, err)
	w.backlog("close_order", 20_000)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	w.eventually(func() bool { return ran.Load() > 500 }, "it works")
	server.Pause()
	passes(200 * time.Millisecond) // what has been claimed is on its way
	cancel()
	passes(50 * time.Millisecond)
	ended.Store(true)
	server.Resume()
	require.NoError(t, next(t, done))
	require.Zero(t, late.Load(), "handlers that started after the signal")
	require.Zero(t, w.count("common_process_log WHERE lease_until>0"))
}

// lateAnswer has the first claim's answer come long after the lease that it tells of.
func lateAnswer(proxy *faultproxy.MySQL) {
	commit := func(r faultproxy.Request) bool { return r.Text == "COMMIT" }
	proxy.Arm(faultproxy.Rule{Match: following(faultproxy.Contains("delivery_count=delivery_count+1"), commit), Fault: faultproxy.DelayReply, Delay: 3 * time.Second, Nth: 1})
}

func TestClaimAnsweredAfterItsLeaseStartsNothing(t *testing.T) {
	for name, watched := range map[string]bool{"connector": true, "plain pool": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			proxy, db := w.proxied(watched)
			cfg := w.quick()
			cfg.DB, cfg.Lease = db, time.Second
			c := w.new(cfg)
			_, ran := numbered(t, c, "close_order", compensator.TypeConfig{}, nil)
			cfg.DB = w.DB
			other := w.new(cfg)
			_, ranElsewhere := numbered(t, other, "close_order", compensator.TypeConfig{}, nil)
			w.backlog("close_order", 1)
			lateAnswer(proxy)
			givenBack := proxy.Arm(faultproxy.Rule{Match: faultproxy.Contains("delivery_count=delivery_count-1")})
			w.run(c)
			w.eventually(func() bool { return w.count("common_process_log WHERE lease_until>0") == 1 }, "it is claimed")
			w.run(other)
			w.waitAllEnded()
			w.eventually(func() bool { return givenBack.Matched() > 0 || ran.total() > 0 }, "the answer comes")
			require.Zero(t, ran.total(), "another process has had it")
			require.Equal(t, 1, ranElsewhere.total())
			require.Equal(t, 1, w.ended(compensator.Succeeded, 0))
		})
	}
}

func TestNoHandlerStartsUnderALeaseThatHasEnded(t *testing.T) {
	w := newWorld(t)
	proxy, db := w.proxied(true)
	cfg := w.quick()
	cfg.DB, cfg.Lease = db, time.Second
	c := w.new(cfg)
	var leased atomic.Int64
	_, ran := numbered(t, c, "close_order", compensator.TypeConfig{}, func(*compensator.Entry, int) error {
		leased.Add(int64(w.count("common_process_log WHERE lease_until>" + nowMillis)))
		return nil
	})
	w.backlog("close_order", 1)
	lateAnswer(proxy)
	w.run(c)
	w.waitAllEnded()
	require.Equal(t, 1, ran.total(), "nobody else is there")
	require.EqualValues(t, 1, leased.Load())
}

// stuckOn registers a type whose handler never returns in time, and runs an instance with one entry of it.
func stuckOn(t *testing.T, w *world, cfg compensator.Config) (c *compensator.Compensator, id compensator.EntryID, ran *calls, g *gate) {
	t.Helper()
	cfg.Lease, cfg.StopTimeout = time.Second, 300*time.Millisecond
	c = w.new(cfg)
	g, ran = newGate(), new(calls)
	g.openAtEnd(t)
	orders, err := compensator.Handle(c, "close_order", func(_ context.Context, e *compensator.Entry, _ order) error {
		if ran.add(e.ID); e.Epoch > 0 {
			return nil
		}
		return g.passDeaf(e)
	}, compensator.TypeConfig{Timeout: 50 * time.Millisecond})
	require.NoError(t, err)
	w.run(c)
	id = putThrough(w, cfg.DB, orders, 1, compensator.Options{})
	g.await(t)
	return c, id, ran, g
}

func TestEntryWhoseHandlerNeverReturnsIsNotRunBesideIt(t *testing.T) {
	inOppositeModes(t, func(t *testing.T, w *world, cfg compensator.Config) {
		c, id, ran, _ := stuckOn(t, w, cfg)
		w.waitState(id, compensator.Dead) // nobody else is there to run it
		require.Equal(t, 1, ran.of(id), "no second goroutine hangs")
		e := w.entry(c, id)
		require.Equal(t, compensator.EndedByCrash, e.EndedBy)
		require.Contains(t, e.LastError, "has not returned since")
		require.Zero(t, e.ProcessCount)
		if stuck := c.Health(t.Context()).Stuck; assert.Len(t, stuck, 1) {
			require.Equal(t, id, stuck[0].ID)
		}
		by := compensator.ByHand{Actor: "ops", Reason: "the downstream is back"}
		require.NoError(t, c.Requeue(t.Context(), id, compensator.RequeueOptions{ByHand: by}))
		w.waitState(id, compensator.Succeeded)
		require.Equal(t, 2, ran.of(id), "a person's word is enough to run it beside the one that hangs")
	})
}

// A claim needs a slot, and the one that there is hangs.
func TestEntryIsTakenOutAlsoWhereItsStuckHandlerHasTheOnlySlot(t *testing.T) {
	inOppositeModes(t, func(t *testing.T, w *world, cfg compensator.Config) {
		cfg.Lease = time.Second
		c := w.new(cfg)
		g := newGate()
		g.openAtEnd(t)
		_, ran := numbered(t, c, "close_order", compensator.TypeConfig{Timeout: 50 * time.Millisecond, Concurrency: 1}, func(e *compensator.Entry, _ int) error {
			return g.passDeaf(e)
		})
		w.backlog("close_order", 1)
		w.run(c)
		id := g.await(t)
		w.waitState(id, compensator.Dead)
		require.Equal(t, 1, ran.of(id))
		require.Contains(t, w.entry(c, id).LastError, "has not returned since")
		g.open() // Run would wait for it
	})
}

// TestClaimsOfUnknownEndCostNoDelivery: claims reach the database and their answers do not come back, nor does word get
// through that nothing runs under them. The process lives, and has killed nobody.
func TestClaimsOfUnknownEndCostNoDelivery(t *testing.T) {
	for name, watched := range map[string]bool{"connector": true, "plain": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			proxy, db := w.proxied(watched)
			cfg := w.quick()
			cfg.DB, cfg.Lease = db, time.Second
			c := w.new(cfg)
			_, ran := numbered(t, c, "close_order", compensator.TypeConfig{}, nil)
			w.backlog("close_order", 1)
			commit := func(r faultproxy.Request) bool { return r.Text == "COMMIT" }
			proxy.Arm(faultproxy.Rule{Match: following(faultproxy.Contains("delivery_count=delivery_count+1"), commit), Fault: faultproxy.DropReply})
			unheard := proxy.Arm(faultproxy.Rule{Match: faultproxy.Contains("delivery_count=delivery_count-1"), Fault: faultproxy.DropRequest})
			w.run(c)
			w.eventually(func() bool { return unheard.Fired() >= 12 || w.count("common_process_log WHERE state=-2") == 1 }, "several leases have passed")
			proxy.Heal()
			w.waitAllEnded()
			require.Equal(t, 1, ran.total())
			require.Equal(t, 1, w.count("common_process_log WHERE state=1"))
		})
	}
}

func TestStuckHandlersSuccessCountsAlthoughItsLeasesAreLost(t *testing.T) {
	inOppositeModes(t, func(t *testing.T, w *world, cfg compensator.Config) {
		_, id, ran, g := stuckOn(t, w, cfg)
		w.eventually(func() bool { return w.count("common_process_log WHERE delivery_count=2") == 1 }, "a lease is lost")
		g.open()
		w.waitState(id, compensator.Succeeded)
		require.Equal(t, 1, ran.of(id))
	})
}

func TestStuckCompensationsSuccessCountsAlthoughItsLeasesAreLost(t *testing.T) {
	inOppositeModes(t, func(t *testing.T, w *world, cfg compensator.Config) {
		cfg.Lease = time.Second
		cfg.Observer.OutcomeDropped = func(e compensator.SettledEvent) { assert.Fail(t, "dropped", e) }
		c := w.new(cfg)
		g, undone := newGate(), new(calls)
		g.openAtEnd(t)
		numbered(t, c, "close_order", compensator.TypeConfig{Timeout: 50 * time.Millisecond, Compensate: func(_ context.Context, e *compensator.Entry) error {
			undone.add(e.ID)
			return g.passDeaf(e)
		}}, nil)
		w.backlog("close_order", 1)
		w.exec("UPDATE common_process_log SET state=-3")
		w.run(c)
		g.await(t)
		w.eventually(func() bool { return w.count("common_process_log WHERE delivery_count=2") == 1 }, "a lease is lost")
		g.open()
		w.waitAllEnded()
		require.Equal(t, 1, w.ended(compensator.Compensated, 0))
		require.Equal(t, 1, undone.total())
	})
}

func TestEntryAProcessIsStuckOnRunsElsewhere(t *testing.T) {
	inOppositeModes(t, func(t *testing.T, w *world, cfg compensator.Config) {
		other := w.new(cfg)
		_, ranElsewhere := numbered(t, other, "close_order", compensator.TypeConfig{}, nil)
		_, id, ran, _ := stuckOn(t, w, cfg)
		w.run(other)
		w.waitState(id, compensator.Succeeded)
		require.Equal(t, 1, ran.of(id))
		require.Equal(t, 1, ranElsewhere.of(id))
	})
}

// A take-out that waits for the database gives way to the handler that has returned meanwhile.
func TestTakeOutThatWaitsGivesWayToTheStuckHandlersSuccess(t *testing.T) {
	w := newWorld(t)
	proxy, db := w.proxied(true)
	cfg := w.quick()
	cfg.DB, cfg.Lease = db, time.Second
	cfg.Observer.OutcomeDropped = func(e compensator.SettledEvent) { assert.Fail(t, "dropped", e) }
	c := w.new(cfg)
	g := newGate()
	g.openAtEnd(t)
	_, err := compensator.Handle(c, "close_order", func(_ context.Context, e *compensator.Entry, _ order) error {
		return g.passDeaf(e)
	}, compensator.TypeConfig{Timeout: 100 * time.Millisecond})
	require.NoError(t, err)
	w.backlog("close_order", 1)
	takeOut := proxy.Arm(faultproxy.Rule{Match: faultproxy.Contains("ended_by='crash'"), Fault: faultproxy.DropRequest})
	success := proxy.Arm(faultproxy.Rule{Match: faultproxy.Contains("ended_by='handler'"), Fault: faultproxy.DropRequest})
	w.run(c)
	id := g.await(t)
	w.eventually(func() bool { return takeOut.Fired() > 0 }, "the take-out waits")
	g.open()
	w.eventually(func() bool { return success.Fired() > 0 }, "the success waits")
	tries := takeOut.Matched()
	takeOut.Disarm()
	w.eventually(func() bool { return takeOut.Matched() > tries+2 || success.Fired() > 3 }, "both are tried again")
	success.Disarm()
	w.waitState(id, compensator.Succeeded)
}

// The leases ended with the batch's timeout, and others have done the work.
func TestBatchThatBreaksAfterItsLeasesIsNotRunAgainHere(t *testing.T) {
	inOppositeModes(t, func(t *testing.T, w *world, cfg compensator.Config) {
		cfg.Lease = time.Second
		var dropped, alone atomic.Int64
		cfg.Observer.OutcomeDropped = func(compensator.SettledEvent) { dropped.Add(1) }
		c := w.new(cfg)
		cfg.Observer = compensator.Observer{}
		g := newGate()
		g.openAtEnd(t)
		_, err := compensator.HandleBatch(c, "close_order", func(ctx context.Context, items []compensator.Item[order]) []error {
			if len(items) == 1 {
				alone.Add(1)
				return nil
			}
			_ = g.passDeaf(items[0].Entry)
			return []error{nil, ctx.Err()}
		}, compensator.TypeConfig{Timeout: 100 * time.Millisecond})
		require.NoError(t, err)
		w.backlog("close_order", 2)
		w.run(c)
		g.await(t)
		other := w.new(cfg)
		_, ranElsewhere := numbered(t, other, "close_order", compensator.TypeConfig{}, nil)
		w.run(other)
		w.waitAllEnded()
		require.Equal(t, 2, ranElsewhere.total())
		g.open()
		w.eventually(func() bool { return dropped.Load() == 2 }, "what the batch said is dropped")
		require.Zero(t, alone.Load(), "what others have done is not done again")
	})
}

// What hung was the batch. Its entries, run again alone, have a whole timeout of their own.
func TestEntryOfABrokenBatchThatWasStuckStartsAfresh(t *testing.T) {
	w := newWorld(t)
	cfg := w.quick()
	cfg.Lease = 30 * time.Second
	reported := make(chan struct{}, 10)
	cfg.Observer.Stuck = func(compensator.AttemptEvent) { reported <- struct{}{} }
	c := w.new(cfg)
	g := newGate()
	g.openAtEnd(t)
	_, err := compensator.HandleBatch(c, "close_order", func(ctx context.Context, items []compensator.Item[order]) []error {
		if len(items) == 1 {
			return []error{g.passDeaf(items[0].Entry)}
		}
		next(t, reported)
		next(t, reported)
		return []error{nil, ctx.Err()}
	}, compensator.TypeConfig{Timeout: time.Second})
	require.NoError(t, err)
	w.backlog("close_order", 2)
	w.run(c)
	g.await(t)
	g.await(t)
	assert.Empty(t, c.Health(t.Context()).Stuck, "they have just begun")
	next(t, reported)
	next(t, reported)
	assert.Len(t, c.Health(t.Context()).Stuck, 2)
	g.open()
	w.waitAllEnded()
}

// Another process has run it, and it is to be tried again: no lease says how long it has been free.
func TestStuckProcessLeavesARetryToOthers(t *testing.T) {
	w := newWorld(t)
	proxy, db := w.proxied(true)
	cfg := w.quick()
	cfg.DB, cfg.Lease = db, 30*time.Second
	reported := make(chan struct{}, 1)
	cfg.Observer.Stuck = func(compensator.AttemptEvent) { reported <- struct{}{} }
	_, id, ran, _ := stuckOn(t, w, cfg)
	next(t, reported)
	cfg.DB, cfg.Observer = w.DB, compensator.Observer{}
	other := w.new(cfg)
	_, _ = numbered(t, other, "close_order", compensator.TypeConfig{}, func(_ *compensator.Entry, call int) error {
		if call == 1 {
			return compensator.RetryAfter(time.Second, errSoldOut)
		}
		return nil
	})
	w.exec("UPDATE common_process_log SET lease_until=" + nowMillis)
	stop := w.run(other)
	w.waitState(id, compensator.Retrying)
	require.NoError(t, stop())
	w.awaitMoreClaims(proxy)
	require.Zero(t, w.count("common_process_log WHERE delivery_count>0"), "it is left to others for a lease")
	w.run(other)
	w.waitState(id, compensator.Succeeded)
	require.Equal(t, 1, ran.of(id))
}

// An observer, or whatever else uses the processors, may hold up what has been let in.
func TestNoHandlerStartsOnceRunsContextHasEndedWhileItsStartWasHeldUp(t *testing.T) {
	for _, batch := range []bool{false, true} {
		t.Run(map[bool]string{true: "batch", false: "plain"}[batch], func(t *testing.T) {
			w := newWorld(t)
			cfg := w.quick()
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			var runs atomic.Int64
			cfg.Observer.AttemptStarted = func(compensator.AttemptEvent) { cancel() }
			c := w.new(cfg)
			var err error
			if batch {
				_, err = compensator.HandleBatch(c, "close_order", func(context.Context, []compensator.Item[order]) []error { runs.Add(1); return nil }, compensator.TypeConfig{})
			} else {
				_, err = compensator.Handle(c, "close_order", func(context.Context, *compensator.Entry, order) error { runs.Add(1); return nil }, compensator.TypeConfig{})
			}
			require.NoError(t, err)
			w.backlog("close_order", 5)
			go func() { ended <- c.Run(ctx) }()
			require.NoError(t, next(t, ended))
			require.Zero(t, runs.Load())
			require.Equal(t, 5, w.count("common_process_log WHERE state=0 AND lease_until=0 AND delivery_count=0"))
		})
	}
}

// With no Observer to tell, the log does: the work is done, and the entry says otherwise.
func TestSuccessThatComesTooLateIsLoggedAsAWarning(t *testing.T) {
	w := newWorld(t)
	proxy, db := w.proxied(true)
	cfg := w.quick()
	cfg.DB = db
	lines := logInto(&cfg)
	c, person := w.new(cfg), w.new(w.quick())
	g := newGate()
	g.openAtEnd(t)
	_, err := compensator.Handle(c, "close_order", func(_ context.Context, e *compensator.Entry, _ order) error {
		return g.passDeaf(e)
	}, compensator.TypeConfig{})
	require.NoError(t, err)
	w.backlog("close_order", 1)
	withholdOutcomes(proxy)
	w.run(c)
	id := g.await(t)
	g.open()
	_, err = person.Cancel(t.Context(), id)
	require.NoError(t, err)
	proxy.Heal()
	line := next(t, lines)
	for !strings.Contains(line, "outcome dropped") {
		line = next(t, lines) // of what could not be stored before
	}
	require.Contains(t, line, "level=WARN")
	require.Contains(t, line, "entry="+id.String())
	require.Contains(t, line, "state=cancelled")
}
