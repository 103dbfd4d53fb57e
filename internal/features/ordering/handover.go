package ordering

import (
	"slices"
	"sync"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/processlog"
)

// handover claims the next entries of ordering keys while the outcomes of the entries in front of them are being
// stored. Neither write waits for the other.
//
// A claimed entry starts only after both writes, and after a check of its key. If the outcome was not stored, this
// check puts the claimed entry back.
type handover struct {
	businessType  string
	nextEntries   []nextEntry
	frontAttempts []*engine.Attempt // attempts of the entries in front of nextEntries, in the same order
	claimDone     chan struct{}     // closed once claimedRows is set
	claimedRows   engine.ClaimedRows

	mu          sync.Mutex             // guards endedFronts
	endedFronts map[processlog.ID]bool // entries of frontAttempts whose outcomes were stored
}

func (o *Ordering) waitsForOutcome(a *engine.Attempt) bool {
	return o.hasSerial.Load() && o.positions.get(a).position.Key != ""
}

// beginHandovers returns a function to call after the database has answered the statement that stores the outcomes.
func (o *Ordering) beginHandovers(batch []engine.Settling) (answered func()) {
	var handovers []*handover
	for _, s := range batch {
		h := o.positions.get(s.Attempt)
		successor := o.successorOf(s.Attempt, h.position, s.To)
		if successor.id.IsZero() {
			continue
		}
		n := slices.IndexFunc(handovers, func(h *handover) bool { return h.businessType == s.Attempt.Type.Name })
		if n < 0 {
			n = len(handovers)
			handovers = append(handovers, &handover{businessType: s.Attempt.Type.Name, claimDone: make(chan struct{})})
		}
		handovers[n].nextEntries, handovers[n].frontAttempts = append(handovers[n].nextEntries, successor), append(handovers[n].frontAttempts, s.Attempt)
		o.positions.set(s.Attempt, heldPosition{h.position, handovers[n]})
	}
	if len(handovers) == 0 {
		return nil
	}
	for _, h := range handovers {
		o.handoversToClaim.Add(h)
	}
	return func() {
		for _, h := range handovers {
			o.positions.endHandover(h)
			o.handoversToStart.Add(h)
		}
	}
}

func (h *heldPositions) endHandover(ended *handover) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range ended.frontAttempts {
		if v, found := h.byAttempt[a]; found && v.handover == ended {
			h.byAttempt[a] = heldPosition{position: v.position}
		}
	}
}

// successorOf returns the next entry of the key, for a claim while the outcome of the attempt a is being stored. It
// returns no entry if the entry of a has lost a lease, because that entry may have crashed a process. If it crashed
// this process now, the next entry would lose a lease too.
func (o *Ordering) successorOf(a *engine.Attempt, p processlog.Position, to processlog.State) (successor nextEntry) {
	s, _ := o.serialOf(a.Type.Name)
	if p.Key == "" || a.Type.Grouped() || !to.Terminal() || to == processlog.Dead && !s.PassDead || engine.LostLeases(&a.Row) > 0 {
		return successor
	}
	return nextEntry{businessType: a.Type.Name, id: o.seenEntries.successorOf(p), front: p}
}

func (o *Ordering) outcomeStored(a *engine.Attempt, to processlog.State, _ bool) {
	if !o.hasSerial.Load() {
		return
	}
	h := o.positions.take(a)
	if h.position.Key == "" {
		// The position of an entry is known here only after a start. This entry was dead-lettered without a call of its
		// handler, so compute its position now.
		h.position = o.positionOf(&a.Row)
	}
	if h.handover == nil {
		o.attemptOver(h.position, to)
		return
	}
	o.seenEntries.remove(h.position)
	h.handover.mu.Lock()
	defer h.handover.mu.Unlock()
	if h.handover.endedFronts == nil {
		h.handover.endedFronts = make(map[processlog.ID]bool)
	}
	h.handover.endedFronts[h.position.ID] = true
}

func (o *Ordering) claimAhead(batch []*handover) {
	for _, h := range batch {
		h.claimedRows, _ = o.claimKnown(h.businessType, h.nextEntries)
		close(h.claimDone)
	}
}

func (o *Ordering) startAhead(batch []*handover) {
	for _, h := range batch {
		<-h.claimDone
		claimedIDs := idsOf(h.claimedRows.Mine)
		o.e.RunClaimed(h.claimedRows)
		for _, e := range h.nextEntries {
			switch {
			case !h.hasEnded(e.front.ID):
			case claimedIDs[e.id]:
				o.toDelete.Add(e.front)
			default:
				o.findSuccessor(e)
			}
		}
	}
}

func (h *handover) hasEnded(id processlog.ID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.endedFronts[id]
}
