package sim

import (
	"cmp"
	"runtime"
	"slices"
	"sync"
	"testing/synctest"
	"time"
)

// request is a step that waits for its turn. What orders requests is what they are about, under which claim, and where in
// the code they come from, never who came first or a token: the scheduler of goroutines is not seeded.
type request struct {
	from   *instance
	class  class
	op     string
	args   string
	claim  int                  // under the how manieth claim that was done; 0: under none
	origin [originDepth]uintptr // the innermost callers
	lost   fault                // what the plan has in store for it; none: spoil draws

	// Set once it was admitted, and guarded by world.own.
	turn    *time.Timer // fires at ready
	ready   time.Time   // when its turn comes
	verdict verdict
}

// verdict is what becomes of a step.
type verdict struct {
	fault fault
	reply time.Duration // how long the answer takes
	dead  bool          // the instance is gone: nothing is done
}

// scheduler lets one step through at a time, each at the moment the seed drew for it.
type scheduler struct {
	arrived chan struct{} // holds one when arrivals may not be empty

	mu       sync.Mutex // guards arrivals and timers
	arrivals []*request
	timers   []*time.Timer // stopped, to be used again

	pending []*request // admitted; guarded by world.own
}

// The innermost callers, without Callers and pass itself, tell two claims of one entry apart: the queue has named the entry to
// one, and the database to the other. The same holds for their releases, which are ten calls deep. Other steps do without,
// because a look at the stack costs a tenth of a step.
const (
	originSkip  = 2
	originDepth = 12
)

func newScheduler() *scheduler { return &scheduler{arrived: make(chan struct{}, 1)} }

// pass waits for the turn of a step. The world sets the request's timer once it knows when that is.
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

// arrive hands a request to the world's own goroutine.
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

// take empties the arrivals, in an order that does not depend on the scheduler.
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

// roundsPerSlice is how many rounds of the loop share a time slice.
const roundsPerSlice = 16

// loop admits steps and fires events until the script has ended.
func (w *world) loop() {
	timer := time.AfterFunc(time.Hour, w.gate.poke)
	defer timer.Stop()
	var alarm time.Time // when the timer fires
	for round := 0; !w.over.Load(); round++ {
		synctest.Wait()
		if round%roundsPerSlice == 0 {
			runtime.Gosched() // a new time slice: the runtime takes the processor from one that has lasted 10 ms
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

// visitGate does what is to be done now in the world's own goroutine: it fires at most one event. It returns when the next one is due.
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

// admit draws when requests have their turns, and what goes wrong with them. Of two that cannot be told apart nobody
// knows which is whose: they have the same fate, so that it does not matter.
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
		ready = ready.Add(w.spoil(r))
	}
	if until := r.from.paused(); ready.Before(until) {
		ready = until.Add(w.latency())
	}
	w.gate.pending = append(w.gate.pending, r)
	r.readyAt(ready)
	w.awaitAnswer(r)
}

// readyAt sets when the turn of a request comes.
func (r *request) readyAt(at time.Time) {
	r.ready = at
	r.turn.Reset(time.Until(at))
}

// refuse ends the wait of a request whose instance is dead. Several end a nanosecond apart, because the runtime chooses among
// timers that end at the same instant.
func (r *request) refuse(place int) {
	r.verdict = verdict{dead: true}
	r.readyAt(time.Now().Add(time.Duration(place)))
}

// awaitAnswer takes note of when the answer to a request will be there.
func (w *world) awaitAnswer(r *request) {
	if answered := r.ready.Add(r.verdict.reply); answered.After(w.answered) {
		w.answered = answered
	}
}

// serve lets a request through, unless its turn was put off. The goroutine of the step calls it when its timer has fired.
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
		w.oracle.fail("livelock: %d steps and no end", w.steps)
	}
	return r.verdict, true
}

// maxSteps is far beyond what a seed needs.
const maxSteps = 60_000

// latency is how long a step is on its way, drawn to the nanosecond: so that steps hardly ever
// coincide: the order of timers that end at the same instant is the runtime's own choice.
func (w *world) latency() time.Duration {
	return 50*time.Microsecond + time.Duration(w.rng.Int64N(int64(2*time.Millisecond)))
}
