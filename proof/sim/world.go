package sim

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest/memory"
	"github.com/compensator-go/compensator/internal/groupcommit"
	"github.com/compensator-go/compensator/internal/jitter"
)

type world struct {
	seed   uint64
	rng    *rand.Rand // used only by the world's goroutine
	plan   plan
	apart  apart
	began  time.Time
	logger *slog.Logger // log of the engine (nil: discarded)

	store  *memory.Store
	queue  *memory.Queue
	gate   *scheduler
	oracle *oracle

	own    sync.Mutex // guards the fields below it, up to the field answered
	walk   walk
	counts [faults]int
	steps  int

	events                 []event // sorted by time
	snapshots              []memory.QueueState
	lagging                memory.StoreState
	storeDown, queueDown   time.Time
	storeReads             bool
	loseAgain              string
	loseAfter              time.Duration
	taken                  string
	outcomesDown           time.Time
	questionsDown          time.Time
	storeShift, queueShift time.Duration
	answered               time.Time

	mu        sync.Mutex // guards the fields below it, up to the field launched, and instance.retired
	instances []*instance
	deaths    []*instance
	errands   []func()
	launched  int

	healed   atomic.Bool
	problem  context.Context
	calmed   context.CancelFunc
	outages  atomic.Int64
	stuck    atomic.Int64
	meddling atomic.Int64 // number of calls of meddle that still run, also of dead instances
	barrier  *barrier
	wg       sync.WaitGroup
	actors   sync.WaitGroup
	over     atomic.Bool
}

type plan struct {
	config            compensator.Config
	types             compensator.BatchConfig[content]
	chaos             time.Duration
	rate              float64 // share of steps that may get a fault
	failing           float64
	meddling          float64 // share of attempts during which an action on the entry runs
	active            [faults]bool
	sharedQueue       bool
	bulkIDsHidden     bool
	compensateCrashed bool
	calm              bool
	hog               string // in a calm seed, the type whose handlers hang
	// ordered counts all orders for an idempotency key. untold counts the orders whose commit is not reported to the
	// library.
	ordered, untold map[string]int
	thinking        map[string]time.Duration // longest time from the insert to the commit of an unwatched order; the key of the map is its idempotency key
	holds           time.Duration
	killer          compensator.IdempotencyKey
	runners         int
	recorders       int
	orders          []order
	deeds           []deed
}

func newWorld(seed uint64) *world {
	w := &world{
		seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), began: time.Now(), gate: newScheduler(),
		store: memory.NewStore(), queue: memory.NewQueue(),
	}
	w.outages.Store(1)
	w.problem, w.calmed = context.WithCancel(context.Background())
	w.oracle = newOracle(w)
	w.store.Watch(w.oracle.checkTransition)
	jitter.Seed(seed)
	groupcommit.Yield = yieldToAll
	w.drawPlan()
	w.drawApart()
	w.drawLosses()
	w.drawLoss()
	w.drawMidway()
	w.drawConnections()
	w.drawKeys()
	w.drawServerFaults()
	w.drawTriggers()
	w.drawPeriodic()
	w.drawKeep()
	w.drawBatches()
	w.drawOrdering()
	w.drawBreakers()
	w.drawAdmin()
	w.drawStatistics()
	w.drawInstances()
	w.drawMaxWait()
	w.drawMessages()
	w.drawPauses()
	w.drawLimits()
	w.drawLimitChange()
	w.drawResults()
	return w
}

func (w *world) randomDuration(minimum, maximum time.Duration) time.Duration {
	return minimum + time.Duration(w.rng.Int64N(int64(maximum-minimum)+1))
}

func (w *world) drawPlan() {
	p := &w.plan
	p.config = compensator.Config{
		// The durations are random to the nanosecond, so that no two timers fire at the same instant. Otherwise the
		// runtime, not the seed, would choose their order.
		Lease: w.randomDuration(time.Second, 4*time.Second), Grace: w.randomDuration(500*time.Millisecond, 2*time.Second),
		ReconcileInterval: w.randomDuration(time.Second, 6*time.Second), PollInterval: w.randomDuration(500*time.Millisecond, 2*time.Second),
		Horizon: w.randomDuration(20*time.Second, 3*time.Minute), StopTimeout: w.randomDuration(3*time.Second, 9*time.Second),
	}
	p.types = compensator.BatchConfig[content]{
		MaxAttempts: 1 + w.rng.IntN(4), MaxCompensateAttempts: 1 + w.rng.IntN(3), Timeout: w.randomDuration(2*time.Second, 5*time.Second),
		Concurrency: 1 + w.rng.IntN(4), BatchSize: 1 + w.rng.IntN(4), Retry: compensator.Exponential(500*time.Millisecond, 4*time.Second),
	}
	p.sharedQueue = w.rng.IntN(5) > 0
	p.bulkIDsHidden = w.rng.IntN(2) == 0
	p.compensateCrashed = w.rng.IntN(2) == 0
	p.runners, p.recorders = 1+w.rng.IntN(3), w.rng.IntN(3)/2
	p.chaos = w.randomDuration(12*time.Second, 35*time.Second)
	if w.rng.IntN(25) == 0 {
		p.chaos += purgeAge + 10*time.Second
	}
	p.rate = []float64{0, 0.03, 0.1, 0.3}[w.rng.IntN(4)]
	p.meddling = []float64{0, 0, 0.1, 0.3}[w.rng.IntN(4)]
	p.failing = []float64{0, 0.2, 0.5, 0.9}[w.rng.IntN(4)]
	for f := range p.active[:typeLost] {
		p.active[f] = w.rng.IntN(5) < 2
	}
	if w.rng.IntN(5) == 0 {
		p.killer = compensator.IdempotencyKey("e" + strconv.Itoa(1+w.rng.IntN(4)))
	}
	p.holds = time.Second
	if w.rng.IntN(5) == 0 {
		w.drawCalm()
	}
	p.orders, p.deeds = w.drawOrders(), w.drawDeeds()
	p.countOrders()
	w.drawEvents()
	w.drawRefusals()
}

func (w *world) drawCalm() {
	p := &w.plan
	p.calm, p.rate, p.meddling, p.killer, p.holds = true, 0, 0, "", time.Millisecond
	clear(p.active[:])
	p.types.Concurrency = 2 * spareSlots
	if w.rng.IntN(2) == 0 {
		p.hog = handledTypes[w.rng.IntN(len(handledTypes))]
	}
}

func (p *plan) countOrders() {
	p.ordered, p.untold, p.thinking = make(map[string]int), make(map[string]int), make(map[string]time.Duration)
	for _, o := range p.orders {
		for _, e := range o.entries {
			key := string(e.IdempotencyKey)
			p.ordered[key]++
			if o.way == unwatched {
				p.untold[key]++
				p.thinking[key] = max(p.thinking[key], o.thinking)
			}
		}
	}
}

func (w *world) drawEvents() {
	for f := crash; f < typeLost; f++ {
		if !w.plan.active[f] || !w.plan.sharedQueue && (f == queueLost || f == queueBack || f == queueJump || f == queueDown) {
			continue
		}
		for range 1 + w.rng.IntN(3) {
			e := event{at: w.began.Add(w.randomDuration(time.Second, w.plan.chaos)), fault: f, whom: w.rng.IntN(64)}
			switch f {
			case pause:
				e.span = time.Duration(w.rng.Float64() * 3 * float64(w.plan.config.Lease))
			case queueJump, storeJump:
				e.span = w.randomDuration(-20*time.Second, 20*time.Second)
				if w.rng.IntN(3) == 0 {
					e.span *= 6
				}
			case storeDown, queueDown:
				e.span = w.randomDuration(100*time.Millisecond, 8*time.Second)
			case lockStorm:
				e.whom = 1 + w.rng.IntN(1<<12)
				e.span = w.randomDuration(100*time.Millisecond, 5*time.Second)
			case queueBack:
				w.schedule(event{at: e.at.Add(-w.randomDuration(100*time.Millisecond, 10*time.Second)), after: func() {
					w.snapshots = append(w.snapshots, w.queue.Snapshot())
				}})
			}
			w.schedule(e)
		}
	}
}

// refusalStream is separate, because draws from one stream are not independent.
const refusalStream = 156202

func (w *world) drawRefusals() {
	rng := rand.New(rand.NewPCG(w.seed, refusalStream))
	if w.plan.calm || rng.IntN(4) > 0 {
		return
	}
	for range 1 + rng.IntN(3) {
		at := time.Second + time.Duration(rng.Int64N(int64(w.plan.chaos-time.Second)))
		w.schedule(event{at: w.began.Add(at), fault: outcomesDown, span: time.Duration(rng.Int64N(4 * int64(w.plan.config.Lease)))})
	}
}

// Each call of run needs a separate bubble of testing/synctest.
func (w *world) run() {
	w.launch(true)
	// Launch each other instance after a random time. Otherwise the timers of several instances would fire at the same
	// instant.
	for i := 1; i < w.plan.runners+w.plan.recorders; i++ {
		w.later(w.randomDuration(1, time.Second), func() { w.launch(i < w.plan.runners) })
	}
	for _, o := range w.plan.orders {
		w.act(func() { w.produce(o) })
	}
	for _, d := range w.plan.deeds {
		w.act(func() { w.do(d) })
	}
	for _, v := range w.apart.visits {
		w.act(func() { w.visit(v) })
	}
	for _, c := range w.apart.waits {
		w.act(func() { w.wait(c) })
	}
	if p := w.apart.pausing; p.kind != "" {
		w.act(func() { w.pause(p) })
	}
	if w.apart.changesLimit {
		w.act(w.changeLimit)
	}
	if len(w.apart.limits) > 0 {
		w.act(w.purgeLimitKeys)
	}
	go w.script()
	w.loop()
}

func (w *world) act(do func()) {
	w.actors.Add(1)
	w.wg.Go(func() {
		defer w.actors.Done()
		do()
	})
}

func (w *world) script() {
	defer w.gate.poke()
	defer w.over.Store(true)
	select {
	case <-time.After(w.plan.chaos):
	case <-w.oracle.ended:
	}
	w.heal()
	w.actors.Wait()
	w.await(2*time.Minute, w.unhindered)
	w.accept()
	w.checkSlots()
	w.rest()
	w.acceptLate()
	// Some handlers ignore their context and still run, although other instances have ended their entries. The method
	// rest waits only for entries, so wait for these handlers here.
	w.await(3*w.plan.types.Timeout, w.oracle.isIdle)
	if !w.oracle.failed.Load() {
		w.fillEverySlot()
	}
	w.checkCases()
	w.checkAttempts()
	w.checkResults()
	w.outlive()
	w.end()
	w.checkCounts()
	w.everyProcess()
	if !w.oracle.failed.Load() {
		w.oracle.checkAtRest()
	}
}

// tick is not a round number, so that no other timer fires at the same instant.
const tick = 97_003_019 * time.Nanosecond

const looksPerVisit = 8

// await also returns after a violation.
func (w *world) await(timeout time.Duration, condition func() bool) bool {
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); {
		if condition() {
			return true
		}
		if w.oracle.failed.Load() {
			return false
		}
		time.Sleep(min(tick, time.Until(deadline)))
	}
	return condition()
}

func (w *world) awaitRest(timeout time.Duration) bool {
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); {
		w.wake()
		w.letPass()
		if w.lookForRest(min(looksPerVisit*tick, time.Until(deadline))) {
			return true
		}
		if w.oracle.failed.Load() {
			return false
		}
	}
	return w.oracle.countNotAtRest() == 0
}

// lookForRest checks at once, and then at the first tick after each change that may have brought the last entry to
// rest. If it checked at every tick, the checks would take as long as all steps of a seed with few events.
func (w *world) lookForRest(span time.Duration) bool {
	began := time.Now()
	end := time.NewTimer(span)
	defer end.Stop()
	for time.Since(began) < span {
		if w.oracle.countNotAtRest() == 0 {
			return true
		}
		select {
		case <-w.oracle.resting:
			next := (time.Since(began)/tick + 1) * tick
			time.Sleep(min(next, span) - time.Since(began))
		case <-w.oracle.ended:
			return false
		case <-end.C:
		}
	}
	return false
}

// heal returns when every step that waits has run or hangs.
func (w *world) heal() {
	w.healed.Store(true)
	var answered time.Time
	ready := make(chan struct{})
	w.asWorld(func() {
		now := time.Now()
		w.storeDown, w.queueDown, w.outcomesDown, w.questionsDown = now, now, now, now
		w.queue.Fill(false)
		w.allowRows()
		w.giveKeyBack()
		w.calmed()
		w.hangUpTheDead()
		answered = w.answered
		for _, n := range w.living() {
			if until := n.paused().Add(time.Millisecond); until.After(answered) {
				answered = until
			}
			n.pausedUntil.Store(now.UnixNano())
		}
		if w.ensureWorker() && answered.Before(now) {
			// Make the wait below last until now, so that the new instances have started when heal returns. The script
			// may stop some of them next.
			answered = now
		}
		close(ready)
	})
	<-ready
	// Wait one nanosecond longer than the answers take. Otherwise this timer and others would fire at the same instant,
	// and the runtime would choose their order.
	time.Sleep(time.Until(answered) + 1)
	w.oracle.readCounts(func(o *oracle) { o.calmSince = time.Now() })
}

func (w *world) unhindered() bool { return w.stuck.Load() == 0 && w.meddling.Load() == 0 }

func (w *world) hangUpTheDead() {
	w.mu.Lock()
	instances := slices.Clone(w.instances)
	w.mu.Unlock()
	for _, n := range instances {
		if n.dead.Load() {
			n.hangUp()
		}
	}
}

// ensureWorker reports whether it has started one.
func (w *world) ensureWorker() bool {
	if w.worker() != nil {
		return false
	}
	for !w.launch(true).handlesAll() {
	}
	return true
}

func (w *world) worker() (last *instance) {
	for _, n := range w.living() {
		if n.runs && n.handlesAll() {
			last = n
		}
	}
	return last
}

func (w *world) asWorld(do func()) {
	w.mu.Lock()
	w.errands = append(w.errands, do)
	w.mu.Unlock()
	w.gate.poke()
}

func (w *world) runErrands() {
	w.mu.Lock()
	errands := w.errands
	w.errands = nil
	w.mu.Unlock()
	for _, do := range errands {
		do()
	}
}

// waitTimeout covers delays that are still running, the leases of dead instances, the reconciler's rounds, and
// retries of attempts that failed just before.
func (w *world) waitTimeout() time.Duration {
	cfg, types := w.plan.config, w.plan.types
	var due time.Duration
	for _, row := range w.store.Rows() {
		if !row.State.Terminal() && row.DueIn < longWait {
			due = max(due, row.DueIn, row.LeaseLeft)
		}
	}
	attempt := cfg.Lease + 2*types.Timeout + 5*time.Second
	return due + w.oracle.maxBreakerPause() + cfg.StopTimeout + 3*attempt + cfg.Grace + 6*cfg.ReconcileInterval + 10*time.Second + w.orderingTimeout() + w.limitTimeout()
}

const inFlight = 15 * time.Second

func (w *world) rest() {
	waitTimeout := w.waitTimeout()
	if !w.awaitRest(waitTimeout) {
		w.oracle.fail("G1: entry %[2]s is not at rest %[1]v after all faults ended", waitTimeout, w.oracle.describeNotAtRest())
		return
	}
	if !w.plan.sharedQueue {
		return
	}
	var left string
	clean := func() bool {
		left = ""
		for _, m := range w.queue.Members() {
			if m.BusinessType != strayType {
				left = fmt.Sprintf("entry %s of %s, due in %v", m.ID, m.BusinessType, m.In)
			}
		}
		return left == ""
	}
	// A call of the queue may still be on its way when the last row comes to rest.
	if w.await(inFlight, clean) {
		return
	}
	waitTimeout = 2*w.plan.config.Lease + 30*time.Second
	for _, m := range w.queue.Members() {
		waitTimeout = max(waitTimeout, m.In+30*time.Second)
	}
	if waitTimeout < 10*time.Minute && !w.await(waitTimeout, clean) {
		w.oracle.fail("G10: %v after all entries came to rest, the queue still holds %s", waitTimeout, left)
	}
}

func (w *world) end() {
	for _, n := range w.living() {
		if w.oracle.failed.Load() {
			n.die()
			continue
		}
		n.mustEndWell.Store(true)
		w.retire(n)
	}
	if w.oracle.failed.Load() {
		for _, n := range w.instances {
			n.die()
		}
	}
	w.wg.Wait()
}

func (w *world) endAllBut(last *instance) {
	for _, n := range w.living() {
		if n != last {
			n.mustEndWell.Store(true)
			w.retire(n)
			<-n.ended
		}
	}
}

// On the last instance, every type must be able to run as many entries at the same time as its Concurrency allows.
func (w *world) fillEverySlot() {
	var last *instance
	// A handler may have just killed its process, and another instance starts after that.
	w.await(time.Minute, func() bool { last = w.worker(); return last != nil })
	w.endAllBut(last)
	w.resume(last)
	w.barrier = newBarrier(func(t string) int {
		if w.apart.limits[t].Concurrent > 0 {
			return 0
		}
		return w.calls(t)
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, t := range handledTypes {
		o := order{way: enqueued}
		if w.barrier.slots[t] == 0 {
			continue
		}
		for i := range w.atOnce(t) {
			o.entries = append(o.entries, compensator.NewEntry{BusinessType: t, Options: compensator.Options{
				IdempotencyKey: compensator.IdempotencyKey(fmt.Sprint(barrierPrefix, t, i))}, Content: []byte(`0`)})
		}
		if err := last.plainTransaction(ctx, o); err != nil {
			w.oracle.fail("Record fails after all faults ended: %v", err)
			return
		}
	}
	if !w.await(2*time.Minute, func() bool { return w.oracle.countNotAtRest() == 0 && w.barrier.full() }) {
		w.oracle.fail("slots leaked: each type may run %v calls at once, but the types ran only %v", w.barrier.slots, w.barrier.highestCounts())
	}
}
