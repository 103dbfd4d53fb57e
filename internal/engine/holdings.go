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

// holdings is what this process holds: an attempt from before its handler is called until its outcome is stored, or dropped.
// Within one epoch an entry is held once, and what is held comes before all that is counted against its entry.
type holdings struct {
	claimSchedule *claimSchedule

	mu       sync.Mutex // guards the fields below
	held     map[holding]*Attempt
	handlers int           // of them, those whose handler has not returned
	idle     chan struct{} // closed when no handler runs; nil when nobody asked

	begun chan struct{} // of capacity 1: holds a token once an attempt was admitted while nothing was held
}

func newHoldings(a *claimSchedule) *holdings {
	return &holdings{claimSchedule: a, held: make(map[holding]*Attempt), begun: make(chan struct{}, 1)}
}

// admit takes attempts in that may start: Run goes on, the lease does, and this process does not hold the entry already. A
// claim may have been answered late, or this process have stood still since, for longer than the lease: then others may
// have had the entry.
func (h *holdings) admit(run context.Context, attempts []*Attempt) (admitted, refused []*Attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	admitted = attempts[:0]
	now := time.Now()
	for _, a := range attempts {
		// All under one lock: of two claims of one entry one gets in, and a drain that comes after the end of Run's
		// context finds every handler counted that can still start (G15, G16).
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

// holds returns the attempt by which this process runs an entry of this epoch, or waits for its outcome to be stored,
// and whether its handler is stuck; nil: none.
func (h *holdings) holds(row *processlog.Row) (a *Attempt, stuck bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a = h.held[holding{row.ID, row.Epoch}]
	return a, a != nil && a.stuckLocked()
}

// since is when the attempt began by which this process runs an entry of this epoch still; zero: there is none.
func (h *holdings) since(row *processlog.Row) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a := h.held[holding{row.ID, row.Epoch}]; a != nil {
		return a.started
	}
	return time.Time{}
}

// forget ends an attempt whose outcome is stored, or was dropped. Not sooner: until then the process may die of whatever
// it holds, and a claim would find the entry as if nothing had come of it.
func (h *holdings) forget(a *Attempt) {
	h.mu.Lock()
	// What takes an entry out was never let in, and must not forget the stuck attempt beside it.
	if h.held[a.holding()] == a {
		delete(h.held, a.holding())
	}
	h.mu.Unlock()
	a.left(Ended)
}

// handlerReturned tells that a handler runs no more.
func (h *holdings) handlerReturned() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handlers--
	if h.handlers == 0 && h.idle != nil {
		close(h.idle)
		h.idle = nil
	}
}

// whenIdle is closed once no handler runs.
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

// cancel ends the context of the attempts that a change has overtaken; before is the row it has found. Its answer may come so
// late that the entry, requeued, runs here again (G7).
func (h *holdings) cancel(before *processlog.Row, cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range h.held {
		// In every epoch: a person may have requeued it while a handler of the one before ran on.
		if a.Row.ID == before.ID && a.Row.Version <= before.Version {
			a.endLocked(cause)
		}
	}
}

// expired is the entries of a type that are held under leases which have ended, by our clock: to the database they are free.
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

// stuckOnes lists the attempts whose handlers are stuck here. By type and id, so that the same history makes the same claims.
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

// stuck lists the handlers that have outlived their timeout, or a Run that gave them up: nothing looks at those any more.
func (h *holdings) stuck() []processlog.StuckAttempt {
	return h.list(func(a *Attempt) bool {
		return a.stuckLocked() || !a.returned.Load() && errors.Is(context.Cause(a.ctx), processlog.ErrStopping)
	})
}

// running lists the handlers that have not returned.
func (h *holdings) running() []processlog.StuckAttempt {
	return h.list(func(a *Attempt) bool { return !a.returned.Load() })
}

// list is in the order of the entries' ids.
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
