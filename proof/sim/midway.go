package sim

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/compensator-go/compensator"
)

const midwayStream = 46

// drawMidway makes seeds in which a process is stopped while a call of its batch handler fails. The call must hold
// several entries, so drawMidway adds orders that record several entries of the batch type at once. Without these
// orders, this situation would be very rare.
func (w *world) drawMidway() {
	rng := rand.New(rand.NewPCG(w.seed, midwayStream))
	p := &w.plan
	if p.calm || rng.IntN(8) > 0 {
		return
	}
	w.apart.midway = true
	p.types.Concurrency, p.types.BatchSize = max(2, p.types.Concurrency), max(2, p.types.BatchSize)
	for i := range 1 + rng.IntN(3) {
		o := order{at: time.Duration(rng.Int64N(int64(p.chaos * 7 / 10))), whom: rng.IntN(8), way: way(rng.IntN(int(ways)))}
		for j := range 2 + rng.IntN(4) {
			key := fmt.Sprintf("m%d.%d", i, j)
			o.entries = append(o.entries, compensator.NewEntry{BusinessType: batchType, Content: strconv.AppendQuote(nil, key),
				Options: compensator.Options{IdempotencyKey: compensator.IdempotencyKey(key)}})
		}
		p.orders = append(p.orders, o)
	}
	p.countOrders()
}

func (n *instance) midway(e *compensator.Entry, start int, b behaviour) behaviour {
	w := n.w
	h := fnv.New64a()
	_, _ = h.Write([]byte(e.IdempotencyKey))
	rng := rand.New(rand.NewPCG(w.seed^h.Sum64(), midwayStream<<32|uint64(start)))
	if !w.apart.midway || w.healed.Load() || b.kills || b.jams || rng.IntN(2) == 0 {
		return b
	}
	stop := time.Duration(rng.Int64N(int64(300 * time.Millisecond)))
	w.asWorld(func() { w.schedule(event{at: time.Now().Add(stop), fault: stoppedMidway, whom: n.number}) })
	b.took = stop + 1 + time.Duration(rng.Int64N(int64(w.plan.config.StopTimeout)))
	switch rng.IntN(3) {
	case 0:
		b.took, b.deaf = 2*w.plan.types.Timeout, false
	case 1:
		b.manner = panicked
	case 2:
		b.manner = goexited
	}
	return b
}

func (w *world) stopMidway(number int) {
	for _, n := range w.living() {
		if n.number == number {
			w.retire(n)
			w.launch(true)
		}
	}
}
