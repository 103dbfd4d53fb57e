package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// holdings keeps the attempts that this process holds. An attempt is held from before its handler is called until its
// outcome is stored or dropped. Within one epoch a process holds an entry at most once. The outcome of a held attempt
// takes precedence over lost leases that count against its entry.
type holdings struct {
	claimSchedule *claimSchedule

	mu       sync.Mutex // guards the fields below
	held     map[holding]*Attempt
	handlers int           // number of held attempts whose handler has not returned
	idle     chan struct{} // closed when no handler runs; nil unless whenIdle waits for that

	begun chan struct{} // of capacity 1: holds a token once an attempt was admitted while nothing was held
}

func newHoldings(a *claimSchedule) *holdings {
	return &holdings{claimSchedule: a, held: make(map[holding]*Attempt), begun: make(chan struct{}, 1)}
}

// admit holds the attempts that may start. An attempt may start if Run has not ended, its lease has not ended, and this
// process does not hold its entry already.
//
// The lease may have ended because the claim was answered late or because this process stood still. Then other
// processes may have run the entry.
func (h *holdings) admit(run context.Context, attempts []*Attempt) (admitted, refused []*Attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	admitted = attempts[:0]
	now := time.Now()
	for _, a := range attempts {
		// Check everything under one lock, so that only one of two claims of an entry is admitted. Once Run's context has
		// ended, h.handlers already counts every handler that can still start, and a drain waits for it (G15, G16).
		if run.Err() != nil || h.held[a.holding()] != nil || now.After(a.leaseEnd) {
			a.cancel(nil)
			refused = append(refused, a)
			continue
		}
		if len(h.held) == 0 {
			select {
			case h.begun <- struct{}{}:
			default:
			}
		}
		h.held[a.holding()] = a
		h.handlers++
		admitted = append(admitted, a)
	}
	return admitted, refused
}

// none reports whether nothing is held.
func (h *holdings) none() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.held) == 0
}

// holds returns the attempt that holds the row's entry in the row's epoch, and whether its handler is stuck. It returns
// nil if this process does not hold the entry.
func (h *holdings) holds(row *processlog.Row) (a *Attempt, stuck bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a = h.held[holding{row.ID, row.Epoch}]
	return a, a != nil && a.stuckLocked()
}

// since returns the start of the attempt that holds the row's entry in the row's epoch. It returns the zero time if
// there is none.
func (h *holdings) since(row *processlog.Row) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a := h.held[holding{row.ID, row.Epoch}]; a != nil {
		return a.started
	}
	return time.Time{}
}

// forget ends the holding of an attempt whose outcome is stored or dropped. Do not call it sooner: until then the entry
// has no outcome, so a crash of this process counts against it.
func (h *holdings) forget(a *Attempt) {
	h.mu.Lock()
	// A dead-lettering was never admitted, so it must not remove the stuck attempt of the same entry.
	if h.held[a.holding()] == a {
		delete(h.held, a.holding())
	}
	h.mu.Unlock()
	a.left(Ended)
}

// handlerReturned counts a handler as returned.
func (h *holdings) handlerReturned() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handlers--
	if h.handlers == 0 && h.idle != nil {
		close(h.idle)
		h.idle = nil
	}
}

// whenIdle returns a channel that is closed once no handler runs.
func (h *holdings) whenIdle() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.handlers == 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	if h.idle == nil {
		h.idle = make(chan struct{})
	}
	return h.idle
}

// cancel ends the contexts of the attempts that a change has made obsolete. before is the row as the change found it.
// The answer to the change may arrive so late that the entry was requeued and runs here again. The version check keeps
// that newer attempt (G7).
func (h *holdings) cancel(before *processlog.Row, cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range h.held {
		// Look in every epoch: after a manual Requeue a handler of the previous epoch may still run.
		if a.Row.ID == before.ID && a.Row.Version <= before.Version {
			a.endLocked(cause)
		}
	}
}

// expired returns the held entries of a type whose leases have ended by the clock of this process. The database regards
// these entries as free.
func (h *holdings) expired(t *Type) map[processlog.ID]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	var ids map[processlog.ID]bool
	now := time.Now()
	for _, a := range h.held {
		if a.Type == t && !now.Before(a.leaseEnd) {
			setIn(&ids, a.Row.ID, true)
		}
	}
	return ids
}

// stuckOnes lists the attempts whose handlers are stuck. It sorts them by type and id, so that the same history makes
// the same claims.
func (h *holdings) stuckOnes() []*Attempt {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []*Attempt
	for _, a := range h.held {
		if a.stuckLocked() {
			list = append(list, a)
		}
	}
	slices.SortFunc(list, func(a, b *Attempt) int {
		return cmp.Or(cmp.Compare(a.Type.Name, b.Type.Name), a.Row.ID.Compare(b.Row.ID))
	})
	return list
}

// stuck lists the handlers that run on after their timeout. It includes the handlers that a stopped Run has left
// running, which the renewer no longer checks.
func (h *holdings) stuck() []processlog.StuckAttempt {
	return h.list(func(a *Attempt) bool {
		return a.stuckLocked() || !a.returned.Load() && errors.Is(context.Cause(a.ctx), processlog.ErrStopping)
	})
}

// running lists the handlers that have not returned.
func (h *holdings) running() []processlog.StuckAttempt {
	return h.list(func(a *Attempt) bool { return !a.returned.Load() })
}

// list returns the held attempts that match, in the order of their ids. which reports whether an attempt matches.
func (h *holdings) list(which func(*Attempt) bool) []processlog.StuckAttempt {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []processlog.StuckAttempt
	for _, a := range h.held {
		if which(a) {
			list = append(list, processlog.StuckAttempt{ID: a.Row.ID, BusinessType: a.Type.Name, Running: time.Since(a.started)})
		}
	}
	slices.SortFunc(list, func(a, b processlog.StuckAttempt) int { return a.ID.Compare(b.ID) })
	return list
}
