package ordering

import (
	"slices"
	"sync"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/processlog"
)

// handover claims the next entries of ordering keys while the outcomes of the entries in front of them are being
// stored. The claim and the outcome each take a synced write, and neither write has to wait for the other. A claimed
// entry starts only after both writes. Before it starts, its key is checked, as after every claim. If the outcome of
// the entry in front was not stored, this check puts the claimed entry back.
//
// A handover begins only with an outcome that lets the next entry of the key run.
type handover struct {
	businessType string
	next         []nextEntry
	attempts     []*engine.Attempt // attempts of the entries in front of next, in the same order
	claimed      chan struct{}     // closed once known is set
	known        engine.Known

	mu    sync.Mutex             // guards ended
	ended map[processlog.ID]bool // entries in front that have ended
}

// prompt reports whether the next entry of a key waits for the outcome of this attempt.
func (o *Ordering) prompt(a *engine.Attempt) bool {
	return o.some.Load() && o.held.get(a).position.Key != ""
}

// storing begins handovers for outcomes that are about to be stored. The caller calls the returned function once the
// statement that stores them has answered. startAhead then checks and starts the claimed entries.
func (o *Ordering) storing(batch []engine.Settling) (answered func()) {
	var all []*handover
	for _, s := range batch {
		h := o.held.get(s.Attempt)
		next := o.behind(s.Attempt, h.position, s.To)
		if next.id.IsZero() {
			continue
		}
		n := slices.IndexFunc(all, func(h *handover) bool { return h.businessType == s.Attempt.Type.Name })
		if n < 0 {
			n = len(all)
			all = append(all, &handover{businessType: s.Attempt.Type.Name, claimed: make(chan struct{})})
		}
		all[n].next, all[n].attempts = append(all[n].next, next), append(all[n].attempts, s.Attempt)
		o.held.set(s.Attempt, held{h.position, all[n]})
	}
	if len(all) == 0 {
		return nil
	}
	for _, h := range all {
		o.ahead.Add(h)
	}
	return func() {
		for _, h := range all {
			o.held.endHandover(h)
			o.handed.Add(h)
		}
	}
}

// endHandover removes a handover from those of its attempts whose outcomes are not stored yet.
func (h *heldPositions) endHandover(over *handover) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range over.attempts {
		if v, found := h.of[a]; found && v.handover == over {
			h.of[a] = held{position: v.position}
		}
	}
}

// behind returns the entry that may run once an outcome is stored. The ID is zero if this process does not know that
// entry, or if no handover may begin. In particular, no handover begins if the attempt's entry has lost a lease. Such
// an entry may crash the process again, and the crash would also cost the next entry a lease.
func (o *Ordering) behind(a *engine.Attempt, p processlog.Position, to processlog.State) (next nextEntry) {
	s, _ := o.of(a.Type.Name)
	if p.Key == "" || a.Type.Grouped() || !to.Terminal() || to == processlog.Dead && !s.PassDead || engine.LostLeases(&a.Row) > 0 {
		return next
	}
	return nextEntry{businessType: a.Type.Name, id: o.seen.behind(p), behind: p}
}

// stored notes that an outcome is stored.
func (o *Ordering) stored(a *engine.Attempt, to processlog.State, _ bool) {
	if !o.some.Load() {
		return
	}
	h := o.held.take(a)
	if h.position.Key == "" {
		h.position = o.positionOf(&a.Row) // The entry was dead-lettered without a call of its handler.
	}
	if h.handover == nil {
		o.rest(h.position, to)
		return
	}
	o.seen.ended(h.position)
	h.handover.mu.Lock()
	defer h.handover.mu.Unlock()
	if h.handover.ended == nil {
		h.handover.ended = make(map[processlog.ID]bool)
	}
	h.handover.ended[h.position.ID] = true
}

// claimAhead claims the next entries of handovers.
func (o *Ordering) claimAhead(batch []*handover) {
	for _, h := range batch {
		h.known, _ = o.claimKnown(h.businessType, h.next)
		close(h.claimed)
	}
}

// startAhead starts the claimed entries that no entry blocks any more. If an entry has ended but its next entry could
// not be claimed, startAhead calls lookBehind, which looks for the next entry.
func (o *Ordering) startAhead(batch []*handover) {
	for _, h := range batch {
		<-h.claimed
		mine := idsOf(h.known.Mine)
		o.e.RunKnown(h.known)
		for _, e := range h.next {
			switch {
			case !h.hasEnded(e.behind.ID):
			case mine[e.id]:
				o.gone.Add(e.behind)
			default:
				o.lookBehind(e)
			}
		}
	}
}

func (h *handover) hasEnded(id processlog.ID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ended[id]
}
