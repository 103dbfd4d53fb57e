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

// connectionsStream is the stream of what tells instances of their connections. It leaves all seeds kept until then the lives
// they were.
const connectionsStream = 190

// drawConnections draws, where the database goes back, whether instances can tell that it may be another one: their connections
// to it are new. Just then there is something to claim, and some get no answer when they ask what the database has kept.
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

// dueAfter is an order of entries that come due when an outage is over.
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

// link is an instance's connection to the database.
type link struct {
	outage atomic.Int64 // the number of the last one that it has come after; 0: nothing was sent yet
	opened atomic.Int64 // how many there were
}

// connect is a statement that reaches the database: after an outage over a new connection.
func (n *instance) connect() {
	if now := n.w.outages.Load(); n.link.outage.Swap(now) != now {
		n.link.opened.Add(1)
	}
}

// Connections is what a pool tells beyond the contract, where the seed has it.
func (s *gatedStore) Connections() (own, users int64) {
	if !s.from.w.apart.connected {
		return 0, 0
	}
	opened := s.from.link.opened.Load()
	return opened, opened
}

// ReadsCommitted is true of the double.
func (s *gatedStore) ReadsCommitted() bool { return true }

// claimed is a claim as its instance was told of it.
type claimed struct {
	row processlog.Row
	at  time.Time // when it was done
}

// asks judges that a handler is called. G19: where its connections tell, nothing starts that was claimed after the database
// went back, before the instance has found out what that has lost of what it ran.
func (o *oracle) asks(n *instance, e *compensator.Entry) {
	if !o.w.apart.connected || n.dead.Load() {
		return
	}
	forgotten := o.w.forgotten()
	o.mu.Lock()
	defer o.mu.Unlock()
	claim := n.claims[e.ID]
	if len(o.losses) > 0 && claim.at.After(o.losses[len(o.losses)-1]) {
		o.sights[sawClaimedLater]++
		if o.goOn.IsZero() && !o.purged && forgotten(n.lost) {
			o.failLocked("G19: entry %s starts on instance %d, which claimed it after the database went back, and has not found out that entry %s, version %d, is lost",
				e.ID, n.number, n.lost.ID, n.lost.Version)
		}
	}
	n.ran = claim.row
}
