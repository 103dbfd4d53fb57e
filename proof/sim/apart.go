package sim

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// apart holds properties of a seed, which is one simulated run. Each property draws from a separate random stream.
type apart struct {
	requeues bool // in a calm seed, a person requeues entries that wait for a retry

	// In a calm seed, most fields of this group are zero. Only these fields may be set: faulty, losesAnswers,
	// wholeServer, limits, returning and waits.

	jammed compensator.IdempotencyKey
	// If this field is 0, all instances run the same version of the service. Otherwise, every third instance runs an
	// older version, without handlers for the types in formerLacks. The numbers 1, 2 and 3 say which of three
	// consecutive instances this is.
	former    int
	leases    []time.Duration
	sleepy    bool // whether some handlers ask for a delay of months
	connected bool // whether the store tells an instance when it has opened a new connection after an outage: see gatedStore.Connections
	midway    bool
	faulty    bool

	losesAnswers bool
	wholeServer  bool // whether the database errors (see the field faulty) concern the whole database server
	slots        slots
	outage       outage
	keep         time.Duration
	absent       bool
	admin        bool
	counted      bool
	listed       bool
	visits       []visit
	pausing      pausing
	ordering     ordering
	limits       map[string]compensator.Limit
	changesLimit bool
	returning    map[string]bool
	waits        []wait

	// A calm seed sets these two fields, too.
	batchCalls int
	batchWait  time.Duration
}

const longWait = 24 * time.Hour

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
	if rng.IntN(6) == 0 {
		w.schedule(event{at: w.began.Add(time.Duration(rng.Int64N(int64(w.plan.chaos)))), fault: storeDown, reads: rng.IntN(2) == 0,
			span: lease + time.Duration(rng.Int64N(int64(3*lease)))})
	}
	a.sleepy = rng.IntN(6) == 0
	if rng.IntN(6) == 0 {
		w.crossOrders(rng)
	}
}

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

// wake calls Reschedule for each entry whose due time is more than longWait away. The entry is then due at once.
func (w *world) wake() {
	if !w.apart.sleepy {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	for _, row := range w.store.Rows() {
		if n := w.alive(0); n != nil && !row.State.Terminal() && row.DueIn > longWait {
			w.oracle.noteRequest(processlog.ActionReschedule, false, row.ID)
			_ = n.c.Reschedule(ctx, row.ID, 0)
		}
	}
}

// drawLosses makes the shared queue lose the entries of one type at random times. The queue must recover so fast that
// no entry starts late. A calm seed is a simulated run without other faults, in which no entry may be late. So calm
// seeds have these losses, too.
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

func (w *world) configOf(n *instance) compensator.Config {
	cfg := w.plan.config
	cfg.Propagator, cfg.Keep = courier{}, w.apart.keep
	if w.apart.admin {
		cfg.Operations = &compensator.Operations{Attempts: true, Statistics: w.apart.counted, Instances: w.apart.listed}
	}
	if leases := w.apart.leases; len(leases) > 0 {
		cfg.Lease = leases[n.number%len(leases)]
	}
	return cfg
}

func (n *instance) handles(businessType string) bool {
	former := n.w.apart.former > 0 && n.number%3 == n.w.apart.former-1
	return businessType != strayType && !(former && formerLacks[businessType])
}

func (n *instance) handlesAll() bool { return n.handles(batchType) }
