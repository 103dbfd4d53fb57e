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
	answer chan verdict
	lost   fault // what the plan has in store for it; none: spoil draws

	ready   time.Time // when its turn comes; set once it was admitted
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

	mu       sync.Mutex // guards arrivals
	arrivals []*request

	pending []*request // admitted; the world's own goroutine only
}

// The innermost callers, without Callers and pass itself, tell two claims of one entry apart: the queue has named the entry to
// one, and the database to the other. The same holds for their releases, which are ten calls deep. Other steps do without,
// because a look at the stack costs a tenth of a step.
const (
	originSkip  = 2
	originDepth = 12
)

func newScheduler() *scheduler { return &scheduler{arrived: make(chan struct{}, 1)} }

// pass waits for the turn of a step.
func (t *scheduler) pass(r *request) verdict {
	if r.from.dead.Load() {
		return verdict{dead: true}
	}
	r.answer = make(chan verdict, 1)
	if r.op == "claim" || r.op == "release" {
		runtime.Callers(originSkip, r.origin[:])
	}
	t.mu.Lock()
	t.arrivals = append(t.arrivals, r)
	t.mu.Unlock()
	t.poke()
	return <-r.answer
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

// first is the pending request whose turn comes next, and its place.
func (t *scheduler) first() (*request, int) {
	var first *request
	place := -1
	for i, r := range t.pending {
		if first == nil || r.ready.Before(first.ready) {
			first, place = r, i
		}
	}
	return first, place
}

// loop lets steps and events take their turns until the script has ended.
func (w *world) loop() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		synctest.Wait()
		runtime.Gosched() // a new time slice: the runtime takes the processor from one that has lasted 10 ms
		w.admit(w.gate.take())
		w.bury()
		w.runErrands()
		wait := w.turn()
		if wait == 0 {
			continue
		}
		timer.Reset(wait)
		select {
		case <-w.gate.arrived:
		case <-timer.C:
		case <-w.done:
			return
		}
	}
}

// turn serves the request or fires the event whose moment has come, or says how long there is none.
func (w *world) turn() time.Duration {
	now := time.Now()
	wait := time.Hour
	r, place := w.gate.first()
	if r != nil {
		wait = r.ready.Sub(now)
	}
	if len(w.events) > 0 {
		if in := w.events[0].at.Sub(now); in < wait {
			if in > 0 {
				return in
			}
			next := w.events[0]
			w.events = w.events[1:]
			w.fire(next)
			return 0
		}
	}
	if r != nil && wait <= 0 {
		w.gate.pending = slices.Delete(w.gate.pending, place, place+1)
		w.serve(r)
		return 0
	}
	return wait
}

// admit draws when requests have their turns, and what goes wrong with them. Of two that cannot be told apart nobody
// knows which is whose: they have the same fate, so that it does not matter.
func (w *world) admit(arrivals []*request) {
	for i, r := range arrivals {
		if i > 0 && compareRequests(arrivals[i-1], r) == 0 && !r.from.dead.Load() {
			r.ready, r.verdict = arrivals[i-1].ready, arrivals[i-1].verdict
			w.gate.pending = append(w.gate.pending, r)
			continue
		}
		w.admitOne(r)
	}
}

func (w *world) admitOne(r *request) {
	if r.from.dead.Load() {
		r.answer <- verdict{dead: true}
		return
	}
	r.ready = time.Now().Add(w.latency())
	r.verdict = verdict{reply: w.latency()}
	if r.class != classOwn && !w.healed.Load() {
		w.spoil(r)
	}
	if until := r.from.paused(); r.ready.Before(until) {
		r.ready = until.Add(w.latency())
	}
	w.gate.pending = append(w.gate.pending, r)
	w.awaitAnswer(r)
}

// awaitAnswer takes note of when the answer to a request will be there.
func (w *world) awaitAnswer(r *request) {
	if answered := r.ready.Add(r.verdict.reply); answered.After(w.answered) {
		w.answered = answered
	}
}

// serve lets a request through.
func (w *world) serve(r *request) {
	if r.from.dead.Load() {
		r.answer <- verdict{dead: true}
		return
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
	r.answer <- r.verdict
}

// maxSteps is far beyond what a seed needs.
const maxSteps = 60_000

// latency is how long a step is on its way, drawn to the nanosecond: so that steps hardly ever
// coincide: the order of timers that end at the same instant is the runtime's own choice.
func (w *world) latency() time.Duration {
	return 50*time.Microsecond + time.Duration(w.rng.Int64N(int64(2*time.Millisecond)))
}
