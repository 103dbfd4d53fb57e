package sim

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/compensator-go/compensator"
)

// apart is what some seeds are like beside their plan. It is drawn from a stream of its own, so that the others stay the
// lives they were.
type apart struct {
	requeues bool // in a calm seed: a person requeues what runs again after a failure

	// In the others:
	jammed    compensator.IdempotencyKey // idempotency key of an entry whose handlers hear nothing and return only when all is healed
	former    int                        // from 1: which of three instances in a row is of a version that lacks some types; 0: none
	leases    []time.Duration            // of one instance after the other, in place of the configured one
	sleepy    bool                       // some handlers ask for months
	connected bool                       // instances can tell that their connections to the database are new; see drawConnections
	midway    bool                       // some instances are told to stop while they run a batch, which breaks; see drawMidway
	faulty    bool                       // the database is in a condition that transactional handlers meet; see drawServerFaults

	wholeServer bool          // that condition is the whole server's
	slots       slots         // of plain entries that are made by themselves; see drawPeriodic
	outage      outage        // of what handlers call, where types have breakers; see drawBreakers
	keep        time.Duration // of ended entries; 0: for ever
	absent      bool          // nobody runs for most of that time; see outlive
	admin       bool          // the operator's side is on; see drawAdmin
	visits      []visit
	pausing     pausing  // of a type, by somebody through package admin; see drawPauses
	ordering    ordering // of entries that take turns; see drawOrdering

	// In all of them:
	batchCalls int           // the batch type's Concurrency
	batchWait  time.Duration // see drawBatches
}

// longWait is longer than anything but a sleepy handler's wish.
const longWait = 24 * time.Hour

// formerLacks are the types that a former version has no handlers for.
var formerLacks = map[string]bool{batchType: true, undoTxType: true}

func (w *world) drawApart() {
	rng := rand.New(rand.NewPCG(w.seed, 2))
	a, lease := &w.apart, w.plan.config.Lease
	if w.plan.calm {
		a.requeues = rng.IntN(3) == 0
		return
	}
	if rng.IntN(6) == 0 {
		a.jammed = compensator.IdempotencyKey("e" + strconv.Itoa(1+rng.IntN(4)))
	}
	if rng.IntN(6) == 0 {
		a.former = 1 + rng.IntN(3)
	}
	if rng.IntN(6) == 0 {
		a.leases = []time.Duration{lease, max(time.Second, lease/time.Duration(2+rng.IntN(3)))}
	}
	if rng.IntN(6) == 0 { // for longer than leases last
		w.schedule(event{at: w.began.Add(time.Duration(rng.Int64N(int64(w.plan.chaos)))), fault: storeDown, reads: rng.IntN(2) == 0,
			span: lease + time.Duration(rng.Int64N(int64(3*lease)))})
	}
	a.sleepy = rng.IntN(6) == 0
	if rng.IntN(6) == 0 {
		w.crossOrders(rng)
	}
}

// crossOrders makes what is recorded again another event, of another type, under the same id.
func (w *world) crossOrders(rng *rand.Rand) {
	for i := 1; i < len(w.plan.orders); i++ {
		first, again := &w.plan.orders[i-1], &w.plan.orders[i]
		if first.entries[0].IdempotencyKey != again.entries[0].IdempotencyKey {
			continue
		}
		again.entries = slices.Clone(again.entries)
		again.entries[rng.IntN(len(again.entries))].BusinessType = handledTypes[rng.IntN(len(handledTypes))]
		again.stubborn = rng.IntN(2) == 0
	}
}

// wake has a service call back what sleeps for longer than anybody waits.
func (w *world) wake() {
	if !w.apart.sleepy {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	for _, row := range w.store.Rows() {
		if n := w.alive(0); n != nil && !row.State.Terminal() && row.DueIn > longWait {
			w.oracle.asksFor(compensator.ActionReschedule, false, row.ID)
			_ = n.c.Reschedule(ctx, row.ID, 0) // or at the next look
		}
	}
}

// drawLosses draws what the queue loses of one type, in calm seeds, too: what is due is no later for it.
func (w *world) drawLosses() {
	rng := rand.New(rand.NewPCG(w.seed, 3))
	if !w.plan.sharedQueue || rng.IntN(4) > 0 {
		return
	}
	for range 1 + rng.IntN(3) {
		w.schedule(event{at: w.began.Add(time.Duration(rng.Int64N(int64(w.plan.chaos)))), fault: typeLost + fault(rng.IntN(3)),
			whom: rng.IntN(64), span: time.Duration(rng.Int64N(int64(20 * time.Millisecond)))})
	}
}

// configOf is an instance's configuration.
func (w *world) configOf(n *instance) compensator.Config {
	cfg := w.plan.config
	cfg.Propagator, cfg.Keep = courier{}, w.apart.keep
	if w.apart.admin {
		cfg.Operations = &compensator.Operations{}
	}
	if leases := w.apart.leases; len(leases) > 0 {
		cfg.Lease = leases[n.number%len(leases)]
	}
	return cfg
}

// handles reports whether an instance has a handler for a type.
func (n *instance) handles(businessType string) bool {
	former := n.w.apart.former > 0 && n.number%3 == n.w.apart.former-1
	return businessType != strayType && !(former && formerLacks[businessType])
}

// handlesAll reports whether an instance has all handlers.
func (n *instance) handlesAll() bool { return n.handles(batchType) }
