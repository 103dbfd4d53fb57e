package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/compensator-go/compensator"
)

// batchesStream is the stream of how batches are made. It leaves all seeds kept until then the lives they were.
const batchesStream = 7711

// drawBatches draws whether entries wait for others to share their batch, whether one batch runs at a time, and what is recorded
// with something that comes after it.
func (w *world) drawBatches() {
	rng := rand.New(rand.NewPCG(w.seed, batchesStream))
	w.apart.batchCalls = w.plan.types.Concurrency
	if !w.plan.calm && rng.IntN(6) == 0 {
		w.drawFollowed(rng)
	}
	if rng.IntN(4) > 0 {
		return
	}
	if !w.plan.calm && rng.IntN(2) == 0 {
		w.apart.batchCalls = 1
	}
	w.plan.types.BatchSize = max(2, w.plan.types.BatchSize)
	w.apart.batchWait = time.Millisecond * time.Duration(1+rng.IntN(1000)) // the shortest lease there is
}

// drawFollowed draws orders of several types under a batch id, each with an entry that comes after them all.
func (w *world) drawFollowed(rng *rand.Rand) {
	p := &w.plan
	for i := range 1 + rng.IntN(2) {
		o := order{at: time.Duration(rng.Int64N(int64(p.chaos * 7 / 10))), whom: rng.IntN(8), way: way(rng.IntN(int(ways)))}
		batch := fmt.Sprintf("f%d", i)
		add := func(key, businessType string, opts compensator.Options) {
			opts.IdempotencyKey = compensator.IdempotencyKey(key)
			o.entries = append(o.entries, compensator.NewEntry{BusinessType: businessType, Content: strconv.AppendQuote(nil, key), Options: opts})
		}
		add(batch+".after", txType, compensator.Options{BusinessID: batch}) // before the others: it waits in any order
		for j := range 1 + rng.IntN(5) {
			add(fmt.Sprintf("%s.%d", batch, j), handledTypes[rng.IntN(len(handledTypes))],
				compensator.Options{BatchID: batch, Delay: time.Duration(rng.IntN(3)) * time.Second})
		}
		p.orders = append(p.orders, o)
	}
	p.countOrders()
}

// following makes a type one whose entries come after the batch that they are about, if any.
func following(cfg compensator.TypeConfig) compensator.TypeConfig {
	cfg.AfterBatch = func(e *compensator.Entry) string { return e.BusinessID }
	return cfg
}

// follows judges that what comes after a batch runs when all of the batch have ended once. A person may have requeued them since,
// and a database that has gone back knows less.
func (o *oracle) follows(n *instance, e *compensator.Entry) {
	if e.BusinessID == "" || e.State == compensator.Compensating {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sights[sawFollowed]++
	o.calledAfterLocked(n, e)
	if len(o.losses) > 0 {
		return
	}
	for _, id := range o.idsLocked() {
		l := o.lives[id]
		of := len(l.steps) > 0 && l.steps[0].row.BatchID == e.BusinessID
		if of && !slices.ContainsFunc(l.steps, func(s transition) bool { return s.row.State.Terminal() }) {
			o.failLocked("G27: entry %s comes after batch %s, of which entry %s has never ended", e.ID, e.BusinessID, id)
		}
	}
}

// batches is the configuration of the batch type.
func (w *world) batches() compensator.TypeConfig {
	cfg := w.plan.types
	cfg.Concurrency, cfg.BatchWait = w.apart.batchCalls, w.apart.batchWait
	return cfg
}

// calls is how many of a type's handler an instance makes at once.
func (w *world) calls(businessType string) int {
	if businessType == batchType {
		return w.apart.batchCalls
	}
	return w.plan.types.Concurrency
}

// atOnce is how many entries it takes for that many.
func (w *world) atOnce(businessType string) int {
	if businessType == batchType {
		return w.apart.batchCalls * w.plan.types.BatchSize
	}
	return w.plan.types.Concurrency
}

// lingers is how long entries of a type may wait for others.
func (o *oracle) lingers(businessType string) time.Duration {
	if businessType == batchType {
		return o.w.apart.batchWait
	}
	return 0
}

// enter judges that an instance runs no more batches of several than the type allows, and none that is too large. Its entries
// that run alone may be those of a batch that came to nothing, in the place of that one.
func (n *instance) enter(entries int) (leave func()) {
	o, cfg := n.w.oracle, n.w.batches()
	if entries > cfg.BatchSize {
		o.fail("a batch of %d on instance %d, whose batches are of %d", entries, n.number, cfg.BatchSize)
	}
	if entries == 1 {
		return func() {}
	}
	if calls := n.batches.Add(1); int(calls) > cfg.Concurrency {
		o.fail("%d batches run at once on instance %d, whose concurrency is %d", calls, n.number, cfg.Concurrency)
	}
	o.note(func(o *oracle) {
		o.sights[sawBatches]++
		if n.w.apart.batchWait > 0 {
			o.sights[sawLingered]++
		}
	})
	return func() { n.batches.Add(-1) }
}
