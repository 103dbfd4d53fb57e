package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/compensator-go/compensator"
)

// breakerStream is the stream of what handlers call that is down. It leaves all seeds kept until then the lives they were.
const breakerStream = 7755

// outage is when what the handlers of some types call is down.
type outage struct {
	from, to time.Time
	types    map[string]bool
}

// drawBreakers draws whether the types have breakers, and what makes those open.
func (w *world) drawBreakers() {
	rng := rand.New(rand.NewPCG(w.seed, breakerStream))
	if w.plan.calm || rng.IntN(8) > 0 {
		return
	}
	w.plan.types.Breaker = compensator.Breaker{Of: 1 + rng.IntN(4), Share: 0.3 + 0.7*rng.Float64(), Pause: 300*time.Millisecond + time.Duration(rng.Int64N(int64(3*time.Second)))}
	from := time.Duration(rng.Int64N(int64(w.plan.chaos / 2)))
	o := outage{from: w.began.Add(from), to: w.began.Add(from + time.Duration(rng.Int64N(int64(w.plan.chaos)))), types: map[string]bool{}}
	for _, t := range handledTypes {
		o.types[t] = rng.IntN(2) == 0
	}
	w.apart.outage = o
	w.plan.orders = append(w.plan.orders, duringOutage(rng, from, w.plan.chaos)...)
	w.plan.countOrders()
}

// duringOutage are orders that come by themselves: by itself no type has many entries at once.
func duringOutage(rng *rand.Rand, from, chaos time.Duration) (orders []order) {
	for i := range 4 + rng.IntN(8) {
		key, kind := fmt.Sprint("o", i), handledTypes[rng.IntN(len(handledTypes))]
		orders = append(orders, order{at: from + time.Duration(rng.Int64N(int64(chaos/2))), whom: rng.IntN(8), way: way(rng.IntN(int(ways))),
			entries: []compensator.NewEntry{{BusinessType: kind, Content: strconv.AppendQuote(nil, key), Options: compensator.Options{IdempotencyKey: compensator.IdempotencyKey(key)}}}})
	}
	return orders
}

// cut is what an attempt does while what it calls is down.
func (w *world) cut(e *compensator.Entry, rng *rand.Rand) (b behaviour, down bool) {
	o, now := w.apart.outage, time.Now()
	if !o.types[e.BusinessType] || now.Before(o.from) || now.After(o.to) {
		return behaviour{}, false
	}
	b = behaviour{manner: unavailable, took: time.Duration(rng.Int64N(int64(300 * time.Millisecond)))}
	if rng.IntN(4) == 0 { // or it does not answer
		b.took, b.deaf = w.plan.types.Timeout+time.Duration(rng.Int64N(int64(w.plan.types.Timeout))), rng.IntN(2) == 0
	}
	return b, true
}

// breakerOn is a type on an instance.
type breakerOn struct {
	n    *instance
	kind string
}

// opening is what an instance has said of a breaker, and what was let in since.
type opening struct {
	compensator.OpenBreaker
	said   time.Time
	probes int
}

// openedLocked takes an instance's word.
func (o *oracle) openedLocked(n *instance, open compensator.OpenBreaker) {
	o.sights[sawBreakerOpen]++
	o.sights[sawProbe] += min(1, open.Probes)
	if o.opened == nil {
		o.opened = make(map[breakerOn]*opening)
	}
	o.opened[breakerOn{n, open.BusinessType}] = &opening{OpenBreaker: open, said: time.Now()}
}

func (o *oracle) closedLocked(n *instance, open compensator.OpenBreaker) {
	o.sights[sawBreakerClosed]++
	if was := o.opened[breakerOn{n, open.BusinessType}]; was == nil || was.probes == 0 {
		o.failLocked("G25: the breaker of %s on instance %d closes untried", open.BusinessType, n.number)
	}
	delete(o.opened, breakerOn{n, open.BusinessType})
}

// lookedAt is an attempt of an entry that comes after a batch, which asks first whether that has ended.
type lookedAt struct {
	n  *instance
	id compensator.EntryID
}

// letInLocked: G25, while a type's breaker is open one call begins after each pause, and no other. An entry that comes after a
// batch makes none where that has not ended, and gives way to the next.
func (o *oracle) letInLocked(n *instance, e compensator.AttemptEvent) {
	open := o.opened[breakerOn{n, e.BusinessType}]
	if open != nil && open.said.Equal(time.Now()) { // let in before, at this very moment
		open = nil
	}
	if e.BusinessType == txType && e.BusinessID != "" && !e.Compensation {
		if o.looks == nil {
			o.looks = make(map[lookedAt]*opening)
		}
		o.looks[lookedAt{n, e.ID}] = open
		if open == nil || !time.Now().Before(open.ProbeAt) {
			return // until its handler is called
		}
	}
	o.probesLocked(n, e.ID, open)
}

// calledAfterLocked is a call for an entry whose batch has ended.
func (o *oracle) calledAfterLocked(n *instance, e *compensator.Entry) {
	open := o.opened[breakerOn{n, e.BusinessType}]
	if let := o.looks[lookedAt{n, e.ID}]; let == open { // or it was let in before that one opened
		o.probesLocked(n, e.ID, open)
	}
}

func (o *oracle) probesLocked(n *instance, id compensator.EntryID, open *opening) {
	if open == nil {
		return
	}
	open.probes++
	if open.probes > 1 || time.Now().Before(open.ProbeAt) {
		o.failLocked("G25: entry %s runs on instance %d, %v before its breaker may probe, as number %d", id, n.number, time.Until(open.ProbeAt), open.probes)
	}
}

// paused is how long open breakers keep those entries from running that no other instance takes, of one probe or two.
func (o *oracle) paused() (longest time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for on, open := range o.opened {
		if !on.n.dead.Load() {
			longest = max(longest, time.Until(open.ProbeAt)+open.ProbeAt.Sub(open.said))
		}
	}
	return longest
}

// openOn returns what an instance has last said of a type's breaker; nil: it is closed.
func (o *oracle) openOn(n *instance, kind string) *opening {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.opened[breakerOn{n, kind}]
}

// resume asserts the rest of G25: nothing is down any more, so each breaker closes with the first entry that comes after its
// pause.
func (w *world) resume(last *instance) {
	for _, t := range handledTypes {
		open := w.oracle.openOn(last, t)
		if open == nil {
			continue
		}
		w.oracle.note(func(o *oracle) { o.sights[sawResumed]++ })
		key := fmt.Sprint("resume-", t)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		err := last.plainTransaction(ctx, order{way: enqueued, entries: []compensator.NewEntry{{BusinessType: t, Content: []byte(`0`),
			Options: compensator.Options{IdempotencyKey: compensator.IdempotencyKey(key)}}}})
		cancel()
		if err != nil {
			w.oracle.fail("record after healing: %v", err)
			return
		}
		most := max(0, time.Until(open.ProbeAt)) + w.plan.types.Timeout + inFlight
		if !w.await(most, func() bool { return w.oracle.openOn(last, t) == nil }) {
			w.oracle.fail("G25: the breaker of %s is open still, %v after all was healed and an entry came", t, most)
		}
	}
}

// patient ends a handler that waits for others before its time is up, which would open its breaker.
func (w *world) patient(ctx context.Context) context.Context {
	if w.plan.types.Breaker == (compensator.Breaker{}) {
		return ctx
	}
	ctx, cancel := context.WithTimeout(ctx, w.plan.types.Timeout*3/4)
	context.AfterFunc(ctx, cancel)
	return ctx
}
