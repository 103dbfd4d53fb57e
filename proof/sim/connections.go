package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

const connectionsStream = 190

func (w *world) drawConnections() {
	rng := rand.New(rand.NewPCG(w.seed, connectionsStream))
	if rng.IntN(2) > 0 {
		return
	}
	for _, e := range slices.Clone(w.events) {
		if e.fault != storeBack || e.after != nil {
			continue
		}
		w.apart.connected = true
		w.plan.orders = append(w.plan.orders, w.dueAfter(rng, e))
		if rng.IntN(2) == 0 {
			w.schedule(event{at: e.at, fault: questionsDown, span: e.span + time.Duration(rng.Int64N(int64(4*time.Second)))})
		}
	}
	w.plan.countOrders()
}

func (w *world) dueAfter(rng *rand.Rand, e event) (o order) {
	o.at = time.Duration(rng.Int64N(int64(2 * time.Second)))
	o.way = enqueued
	for i := range 2 + rng.IntN(3) {
		key := fmt.Sprintf("c%d.%d", len(w.plan.orders), i)
		due := e.at.Add(e.span + time.Duration(rng.Int64N(int64(4*time.Second)))).Sub(w.began)
		o.entries = append(o.entries, compensator.NewEntry{BusinessType: handledTypes[rng.IntN(len(handledTypes))], Content: strconv.AppendQuote(nil, key),
			Options: compensator.Options{IdempotencyKey: compensator.IdempotencyKey(key), Delay: due - o.at}})
	}
	return o
}

type link struct {
	outage atomic.Int64 // number of the last outage before the newest connection was opened (0: no connection yet)
	opened atomic.Int64
}

func (n *instance) connect() {
	if now := n.w.outages.Load(); n.link.outage.Swap(now) != now {
		n.link.opened.Add(1)
	}
}

// Connections is an optional method of a store.
func (s *gatedStore) Connections() int64 {
	if !s.from.w.apart.connected {
		return 0
	}
	return s.from.link.opened.Load()
}

func (s *gatedStore) ReadsCommitted() bool { return true }

type claimed struct {
	row processlog.Row
	at  time.Time
}

// checkLoss asserts G19 (a loss is noticed) when a handler is called. If the entry was claimed after the database had
// lost writes, its handler starts only after the instance has noticed the loss. checkLoss asserts this rule only if
// Config.StopOnLoss is set, and if instances can see that their connections are new.
func (o *oracle) checkLoss(n *instance, e *compensator.Entry) {
	if !o.w.apart.connected || n.dead.Load() {
		return
	}
	forgotten := o.w.forgotten()
	o.mu.Lock()
	defer o.mu.Unlock()
	claim := n.claims[e.ID]
	if len(o.losses) > 0 && claim.at.After(o.losses[len(o.losses)-1]) {
		o.sights[sawClaimedLater]++
		if o.w.plan.config.StopOnLoss && o.goOn.IsZero() && !o.purged && forgotten(n.lost) {
			o.failLocked("G19: entry %s starts on instance %d, which claimed it after a loss; the instance has not noticed that entry %s, version %d, is lost",
				e.ID, n.number, n.lost.ID, n.lost.Version)
		}
	}
	n.ran = claim.row
}
