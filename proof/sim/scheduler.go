package sim

import (
	"cmp"
	"runtime"
	"slices"
	"sync"
	"testing/synctest"
	"time"
)

// Requests are sorted by their instance, operation, arguments, claim and origin in the code. The order of their
// arrival and their tokens do not matter, because both depend on the order of goroutines, which the seed does not
// determine.
type request struct {
	from   *instance
	class  class
	op     string
	args   string
	claim  int
	origin [originDepth]uintptr // program counters of the innermost callers
	lost   fault

	// The scheduler sets these fields when it admits the request. world.own guards them.
	turn    *time.Timer
	ready   time.Time
	verdict verdict
}

type verdict struct {
	fault fault
	reply time.Duration
	dead  bool
}

type scheduler struct {
	arrived chan struct{}

	mu       sync.Mutex // guards arrivals and timers
	arrivals []*request
	timers   []*time.Timer

	pending []*request // admitted requests; guarded by world.own
}

// The origin tells apart two claims of one entry, one for an id from the queue and one for an id from the database.
// Other steps have no origin, because reading the stack is slow.
const (
	originSkip  = 2
	originDepth = 12
)

func newScheduler() *scheduler { return &scheduler{arrived: make(chan struct{}, 1)} }

func (t *scheduler) pass(r *request) verdict {
	if r.from.dead.Load() {
		return verdict{dead: true}
	}
	if r.op == "claim" || r.op == "release" {
		runtime.Callers(originSkip, r.origin[:])
	}
	t.arrive(r)
	for {
		<-r.turn.C
		if v, served := r.from.w.serve(r); served {
			t.giveBack(r.turn)
			return v
		}
	}
}

func (t *scheduler) arrive(r *request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.timers); n > 0 {
		r.turn, t.timers = t.timers[n-1], t.timers[:n-1]
	} else {
		r.turn = time.NewTimer(time.Hour)
		r.turn.Stop()
	}
	t.arrivals = append(t.arrivals, r)
	t.poke()
}

func (t *scheduler) giveBack(timer *time.Timer) {
	timer.Stop()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timers = append(t.timers, timer)
}

func (t *scheduler) poke() {
	select {
	case t.arrived <- struct{}{}:
	default:
	}
}

func (t *scheduler) take() []*request {
	t.mu.Lock()
	defer t.mu.Unlock()
	arrivals := t.arrivals
	t.arrivals = nil
	if len(arrivals) > 1 {
		slices.SortFunc(arrivals, compareRequests)
	}
	return arrivals
}

func compareRequests(a, b *request) int {
	return cmp.Or(cmp.Compare(a.from.number, b.from.number), cmp.Compare(a.op, b.op), cmp.Compare(a.args, b.args),
		cmp.Compare(a.claim, b.claim), slices.Compare(a.origin[:], b.origin[:]))
}

const roundsPerSlice = 16

func (w *world) loop() {
	timer := time.AfterFunc(time.Hour, w.gate.poke)
	defer timer.Stop()
	var alarm time.Time
	for round := 0; !w.over.Load(); round++ {
		synctest.Wait()
		if round%roundsPerSlice == 0 {
			runtime.Gosched() // Begin a new time slice. After 10 ms the runtime would interrupt a goroutine at a random place.
		}
		next, fired := w.visitGate()
		if fired {
			continue
		}
		if !next.Equal(alarm) {
			timer.Reset(time.Until(next))
			alarm = next
		}
		<-w.gate.arrived
	}
}

// yieldToAll calls runtime.Gosched twice, because at every 61st choice the runtime looks first into the global queue
// and may return to the caller at once.
func yieldToAll() {
	runtime.Gosched()
	runtime.Gosched()
}

// visitGate does the pending work of the world's goroutine and fires at most one event. next is when the next event is
// due.
func (w *world) visitGate() (next time.Time, fired bool) {
	w.own.Lock()
	defer w.own.Unlock()
	w.admit(w.gate.take())
	w.bury()
	w.runErrands()
	if len(w.events) == 0 {
		return w.began.Add(longWait), false
	}
	e := w.events[0]
	if time.Now().Before(e.at) {
		return e.at, false
	}
	w.events = w.events[1:]
	w.fire(e)
	return time.Time{}, true
}

// Two requests that compare as equal get the same moment and fault, because the seed cannot tell them apart.
func (w *world) admit(arrivals []*request) {
	for i, r := range arrivals {
		if i > 0 && compareRequests(arrivals[i-1], r) == 0 && !r.from.dead.Load() {
			r.verdict = arrivals[i-1].verdict
			w.gate.pending = append(w.gate.pending, r)
			r.readyAt(arrivals[i-1].ready)
			continue
		}
		w.admitOne(r)
	}
}

func (w *world) admitOne(r *request) {
	if r.from.dead.Load() {
		r.refuse(0)
		return
	}
	ready := time.Now().Add(w.latency())
	r.verdict = verdict{reply: w.latency()}
	if r.class != classOwn && !w.healed.Load() {
		ready = ready.Add(w.drawFault(r))
	}
	if until := r.from.paused(); ready.Before(until) {
		ready = until.Add(w.latency())
	}
	for slices.ContainsFunc(w.gate.pending, func(other *request) bool { return other.ready.Equal(ready) }) {
		ready = ready.Add(1) // For two steps at the same time, the Go runtime and not the seed would choose the order.
	}
	w.gate.pending = append(w.gate.pending, r)
	r.readyAt(ready)
	w.awaitAnswer(r)
}

func (r *request) readyAt(at time.Time) {
	r.ready = at
	r.turn.Reset(time.Until(at))
}

// refuse ends a request of a dead instance. The requests of the instance end a nanosecond apart. Otherwise their timers
// would fire at the same instant, and the runtime, not the seed, would choose their order.
func (r *request) refuse(place int) {
	r.verdict = verdict{dead: true}
	r.readyAt(time.Now().Add(time.Duration(place)))
}

func (w *world) awaitAnswer(r *request) {
	if answered := r.ready.Add(r.verdict.reply); answered.After(w.answered) {
		w.answered = answered
	}
}

// serve is called when the timer of the request has fired. If the simulation has moved the step to a later time, served
// is false.
func (w *world) serve(r *request) (v verdict, served bool) {
	w.own.Lock()
	defer w.own.Unlock()
	if r.verdict.dead {
		return r.verdict, true
	}
	if time.Now().Before(r.ready) {
		return verdict{}, false
	}
	place := slices.Index(w.gate.pending, r)
	w.gate.pending = slices.Delete(w.gate.pending, place, place+1)
	if r.from.dead.Load() {
		return verdict{dead: true}, true
	}
	if f := w.outage(r.class, r.op); f != none {
		r.verdict.fault = f
	}
	w.counts[r.verdict.fault]++
	w.walk.add(time.Since(w.began), r.from.number, r.op, r.args, r.verdict.fault)
	if r.op == "q.rebuild" {
		w.rebuilds(r.args)
	}
	if r.verdict.fault == crashBefore {
		r.from.die()
	}
	if w.steps++; w.steps > maxSteps {
		w.oracle.fail("livelock: %d steps, and the seed has not ended", w.steps)
	}
	return r.verdict, true
}

// A seed with more than maxSteps steps fails as a livelock. A good seed needs far fewer steps.
const maxSteps = 60_000

// latency returns a random number of nanoseconds, so that two steps hardly ever end at the same instant. At the same
// instant, the runtime, not the seed, would choose their order.
func (w *world) latency() time.Duration {
	return 50*time.Microsecond + time.Duration(w.rng.Int64N(int64(2*time.Millisecond)))
}
