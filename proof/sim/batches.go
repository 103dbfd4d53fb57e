package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/compensator-go/compensator"
)

const batchesStream = 7711

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
	w.apart.batchWait = time.Millisecond * time.Duration(1+rng.IntN(1000))
}

func (w *world) drawFollowed(rng *rand.Rand) {
	p := &w.plan
	for i := range 1 + rng.IntN(2) {
		o := order{at: time.Duration(rng.Int64N(int64(p.chaos * 7 / 10))), whom: rng.IntN(8), way: way(rng.IntN(int(ways)))}
		batch := fmt.Sprintf("f%d", i)
		add := func(key, businessType string, opts compensator.Options) {
			opts.IdempotencyKey = compensator.IdempotencyKey(key)
			o.entries = append(o.entries, compensator.NewEntry{BusinessType: businessType, Content: strconv.AppendQuote(nil, key), Options: opts})
		}
		add(batch+".after", txType, compensator.Options{BusinessID: batch}) // The order within the call must not matter.
		for j := range 1 + rng.IntN(5) {
			add(fmt.Sprintf("%s.%d", batch, j), handledTypes[rng.IntN(len(handledTypes))],
				compensator.Options{BatchID: batch, Delay: time.Duration(rng.IntN(3)) * time.Second})
		}
		p.orders = append(p.orders, o)
	}
	p.countOrders()
}

func following(cfg compensator.HandlerConfig[content]) compensator.HandlerConfig[content] {
	cfg.AfterBatch = func(e *compensator.Entry) string { return e.BusinessID }
	return cfg
}

// checkFollows asserts G27: an entry that runs after a batch starts only when every entry of the batch has ended. The
// field BusinessID of the entry names the batch. If an entry of the batch has ended and was
// requeued, it still counts as ended. After the database has lost writes, checkFollows asserts nothing.
func (o *oracle) checkFollows(n *instance, e *compensator.Entry) {
	if e.BusinessID == "" || e.State == compensator.Compensating {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sights[sawFollowed]++
	o.checkBreakerCallLocked(n, e)
	if len(o.losses) > 0 {
		return
	}
	for _, id := range o.idsLocked() {
		l := o.histories[id]
		of := len(l.steps) > 0 && l.steps[0].row.BatchID == e.BusinessID
		if of && !slices.ContainsFunc(l.steps, func(s transition) bool { return s.row.State.Terminal() }) {
			o.failLocked("G27: entry %s runs after batch %s, but entry %s of this batch has never ended", e.ID, e.BusinessID, id)
		}
	}
}

func (w *world) batches() compensator.BatchConfig[content] {
	cfg := w.plan.types
	cfg.Concurrency, cfg.BatchWait = w.apart.batchCalls, w.apart.batchWait
	return cfg
}

func (w *world) calls(businessType string) int {
	if businessType == batchType {
		return w.apart.batchCalls
	}
	return w.plan.types.Concurrency
}

func (w *world) atOnce(businessType string) int {
	if businessType == batchType {
		return w.apart.batchCalls * w.plan.types.BatchSize
	}
	return w.plan.types.Concurrency
}

func (o *oracle) maxLinger(businessType string) time.Duration {
	if businessType == batchType {
		return o.w.apart.batchWait
	}
	return 0
}

// enter does not count a batch of one entry, because the entries of a failed batch run again alone, in the slot of
// that batch.
func (n *instance) enter(entries int) (leave func()) {
	o, cfg := n.w.oracle, n.w.batches()
	if entries > cfg.BatchSize {
		o.fail("a batch has %d entries on instance %d, but BatchSize is %d", entries, n.number, cfg.BatchSize)
	}
	if entries == 1 {
		return func() {}
	}
	if calls := n.batches.Add(1); int(calls) > cfg.Concurrency {
		o.fail("%d batches run at once on instance %d, but Concurrency is %d", calls, n.number, cfg.Concurrency)
	}
	o.readCounts(func(o *oracle) {
		o.sights[sawBatches]++
		if n.w.apart.batchWait > 0 {
			o.sights[sawLingered]++
		}
	})
	return func() { n.batches.Add(-1) }
}
