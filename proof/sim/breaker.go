package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/observe"
)

const breakerStream = 7755

type outage struct {
	from, to time.Time
	types    map[string]bool
}

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

// Without orders during the outage, no type would have many entries at the same time.
func duringOutage(rng *rand.Rand, from, chaos time.Duration) (orders []order) {
	for i := range 4 + rng.IntN(8) {
		key, kind := fmt.Sprint("o", i), handledTypes[rng.IntN(len(handledTypes))]
		orders = append(orders, order{at: from + time.Duration(rng.Int64N(int64(chaos/2))), whom: rng.IntN(8), way: way(rng.IntN(int(ways))),
			entries: []compensator.NewEntry{{BusinessType: kind, Content: strconv.AppendQuote(nil, key), Options: compensator.Options{IdempotencyKey: compensator.IdempotencyKey(key)}}}})
	}
	return orders
}

func (w *world) applyOutage(e *compensator.Entry, rng *rand.Rand) (b behaviour, down bool) {
	o, now := w.apart.outage, time.Now()
	if !o.types[e.BusinessType] || now.Before(o.from) || now.After(o.to) {
		return behaviour{}, false
	}
	b = behaviour{manner: unavailable, took: time.Duration(rng.Int64N(int64(300 * time.Millisecond)))}
	if rng.IntN(4) == 0 {
		b.took, b.deaf = w.plan.types.Timeout+time.Duration(rng.Int64N(int64(w.plan.types.Timeout))), rng.IntN(2) == 0
	}
	return b, true
}

type breakerOn struct {
	n    *instance
	kind string
}

// probes counts the calls since the instance reported the open breaker.
type opening struct {
	observe.OpenBreaker
	said   time.Time
	probes int
}

func (o *oracle) noteBreakerOpenedLocked(n *instance, open observe.OpenBreaker) {
	o.sights[sawBreakerOpen]++
	o.sights[sawProbe] += min(1, open.Probes)
	if o.opened == nil {
		o.opened = make(map[breakerOn]*opening)
	}
	o.opened[breakerOn{n, open.BusinessType}] = &opening{OpenBreaker: open, said: time.Now()}
}

func (o *oracle) noteBreakerClosedLocked(n *instance, open observe.OpenBreaker) {
	o.sights[sawBreakerClosed]++
	if was := o.opened[breakerOn{n, open.BusinessType}]; was == nil || was.probes == 0 {
		o.failLocked("G25: the breaker of type %s on instance %d closes without a successful probe", open.BusinessType, n.number)
	}
	delete(o.opened, breakerOn{n, open.BusinessType})
}

type lookedAt struct {
	n  *instance
	id compensator.EntryID
}

// noteCallAdmittedLocked counts an admitted entry as the one call, the probe, that an open breaker allows. An entry
// that runs after a batch is counted later, by checkBreakerCallLocked. If its batch has not ended, this entry makes no
// call, and the next entry may make the probe.
func (o *oracle) noteCallAdmittedLocked(n *instance, e observe.AttemptEvent) {
	open := o.opened[breakerOn{n, e.BusinessType}]
	if open != nil && open.said.Equal(time.Now()) {
		open = nil
	}
	if e.BusinessType == txType && e.BusinessID != "" && !e.Compensation {
		if o.looks == nil {
			o.looks = make(map[lookedAt]*opening)
		}
		o.looks[lookedAt{n, e.ID}] = open
		if open == nil || !time.Now().Before(open.ProbeAt) {
			return
		}
	}
	o.checkProbeLocked(n, e.ID, open)
}

// checkBreakerCallLocked counts the call of an entry that runs after a batch. It is called just before the handler
// runs, when the engine has seen that the batch has ended. If the breaker has opened or closed since the entry was
// admitted, the call is not counted.
func (o *oracle) checkBreakerCallLocked(n *instance, e *compensator.Entry) {
	open := o.opened[breakerOn{n, e.BusinessType}]
	if let := o.looks[lookedAt{n, e.ID}]; let == open {
		o.checkProbeLocked(n, e.ID, open)
	}
}

func (o *oracle) checkProbeLocked(n *instance, id compensator.EntryID, open *opening) {
	if open == nil {
		return
	}
	open.probes++
	if open.probes > 1 || time.Now().Before(open.ProbeAt) {
		o.failLocked("G25: entry %s runs on instance %d %v before the breaker may probe, as call %d", id, n.number, time.Until(open.ProbeAt), open.probes)
	}
}

// maxBreakerPause allows for a second pause, because the first probe may fail.
func (o *oracle) maxBreakerPause() (longest time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for on, open := range o.opened {
		if !on.n.dead.Load() {
			longest = max(longest, time.Until(open.ProbeAt)+open.ProbeAt.Sub(open.said))
		}
	}
	return longest
}

func (o *oracle) openBreakerOf(n *instance, kind string) *opening {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.opened[breakerOn{n, kind}]
}

// When all services are up again, each breaker closes with the first entry after its pause.
func (w *world) resume(last *instance) {
	for _, t := range handledTypes {
		open := w.oracle.openBreakerOf(last, t)
		if open == nil {
			continue
		}
		w.oracle.readCounts(func(o *oracle) { o.sights[sawResumed]++ })
		key := fmt.Sprint("resume-", t)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		err := last.plainTransaction(ctx, order{way: enqueued, entries: []compensator.NewEntry{{BusinessType: t, Content: []byte(`0`),
			Options: compensator.Options{IdempotencyKey: compensator.IdempotencyKey(key)}}}})
		cancel()
		if err != nil {
			w.oracle.fail("Record fails after all faults ended: %v", err)
			return
		}
		most := max(0, time.Until(open.ProbeAt)) + w.plan.types.Timeout + inFlight
		if !w.await(most, func() bool { return w.oracle.openBreakerOf(last, t) == nil }) {
			w.oracle.fail("G25: the breaker of type %s is still open %v after all faults ended and an entry was recorded", t, most)
		}
	}
}

// A handler that waits for others returns an error before its timeout, because a timeout would open the breaker.
func (w *world) shortenDeadline(ctx context.Context) context.Context {
	if w.plan.types.Breaker == (compensator.Breaker{}) {
		return ctx
	}
	ctx, cancel := context.WithTimeout(ctx, w.plan.types.Timeout*3/4)
	context.AfterFunc(ctx, cancel)
	return ctx
}
