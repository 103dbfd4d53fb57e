package engine

import (
	"slices"

	"github.com/compensator-go/compensator/processlog"
)

// handover claims the next entries of ordering keys while the outcomes of the entries in front of them are stored. The claim
// and the outcome take a synced write each, and neither needs the other. No claimed entry starts before both are done: the
// look at its key comes after them, as after every claim, and puts an entry back whose outcome in front was not stored.
//
// Only a result that lets the next entry of the key run begins a handover. An entry that is retried begins none.
type handover struct {
	t       *Type
	next    []nextEntry
	claimed chan struct{} // closed once found is set
	found   claimed
	over    bool                   // the outcomes are answered, or a try has failed; only the goroutine that stores them has it
	ended   map[processlog.ID]bool // the entries in front that have ended; not written once over is set
}

// handOver begins handovers for a batch of outcomes that are about to be stored.
func (s *settler) handOver(batch []settlement) (all []*handover) {
	for i := range batch {
		done := &batch[i]
		next := s.ordering.behind(done.a, done.outcome.To)
		if next.id.IsZero() {
			continue
		}
		n := slices.IndexFunc(all, func(h *handover) bool { return h.t == done.a.Type })
		if n < 0 {
			n = len(all)
			all = append(all, &handover{t: done.a.Type, claimed: make(chan struct{})})
		}
		all[n].next = append(all[n].next, next)
		done.handover = all[n]
	}
	for _, h := range all {
		s.ordering.claimAhead(h)
	}
	return all
}

// behind returns the entry that may run once an attempt's outcome is stored. It is zero where this process does not know it,
// and where the attempt's entry has lost a lease: one that kills its process must not cost the next one a lease each time.
func (n *ordering) behind(a *Attempt, to processlog.State) (next nextEntry) {
	s, _ := n.of(a.Type.Name)
	if a.position.Key == "" || a.Type.RunBatch != nil || !to.Terminal() || to == processlog.Dead && !s.PassDead || LostLeases(&a.Row) > 0 {
		return next
	}
	return nextEntry{businessType: a.Type.Name, id: n.seen.behind(a.position), behind: a.position}
}

// end notes that an entry has ended whose next one is being claimed.
func (h *handover) end(n *ordering, position processlog.Position) {
	n.seen.ended(position)
	setIn(&h.ended, position.ID, true)
}

// finish has the claimed entries looked at, once.
func (h *handover) finish(n *ordering) {
	if !h.over {
		h.over = true
		n.startAhead(h)
	}
}

// claimAhead claims the entries of handovers.
func (in *intake) claimAhead(batch []*handover) {
	for _, h := range batch {
		h.found, _ = in.claimUnblocked(h.t.Name, h.next)
		close(h.claimed)
	}
}

// startAhead starts the claimed entries that nothing blocks any more. Behind an entry that has ended, and whose next one could
// not be claimed, the next is looked for.
func (in *intake) startAhead(batch []*handover) {
	for _, h := range batch {
		<-h.claimed
		mine := make(map[processlog.ID]bool, len(h.found.Mine))
		for i := range h.found.Mine {
			mine[h.found.Mine[i].ID] = true
		}
		if len(mine) > 0 {
			_ = in.dispatcher.startClaimed(h.t, h.found.Mine, h.found.asked, 0) // what is put back is the scanner's from here on
		}
		for _, e := range h.next {
			switch {
			case !h.ended[e.behind.ID]:
			case mine[e.id]:
				in.ordering.gone.Add(e.behind)
			default:
				in.lookBehind(e)
			}
		}
	}
}
