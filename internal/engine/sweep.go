package engine

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/compensator-go/compensator/processlog"
)

// sweep looks through a serial type's entries for those that may run and that nobody has told of. The next entry of a key is
// told by the one before, so a sweep finds only what that has missed: a backlog at the start of a process, keys whose last
// entry ended in a process that was killed then, and entries recorded by SQL.
//
// It reads page by page, and goes on where it was: once through the keys, and once through what is due, which also finds
// entries that are not noted under any key. So a look costs the same however many entries wait.
type sweep struct {
	begun atomic.Bool // begin was called since the last read

	guard  chan struct{} // full while a claim reads, and guards the fields below: two claims then find different entries
	pages  int           // how many more pages may be read in vain
	ended  bool          // all keys, and all that is due, have been read
	key    string        // the last key read; "": none
	keys   bool          // all keys have been read
	states []processlog.State
	after  processlog.Scheduled // the last entry read of the first of states
}

func newSweep() *sweep { return &sweep{guard: make(chan struct{}, 1), states: openStates} }

const (
	// sweepPage is how many keys, and how many entries, one page has.
	sweepPage = processlog.MaxRows / 2

	// sweepPages is how many pages in a row may be read between two rounds of the reconciler without finding anything. More
	// would cost too much where many keys, or many entries, wait.
	sweepPages = 8
)

// begin allows more pages from the next read on. A sweep that has ended starts anew then.
func (w *sweep) begin() { w.begun.Store(true) }

var openStates = []processlog.State{processlog.Pending, processlog.Retrying, processlog.Compensating}

// read returns entries that may run, of at least one page, and whether there may be more.
func (w *sweep) read(ctx context.Context, n *ordering, businessType string) (ids []processlog.ID, more bool, err error) {
	w.guard <- struct{}{}
	defer func() { <-w.guard }()
	if w.begun.Swap(false) {
		w.pages = sweepPages
		if w.ended {
			w.ended, w.keys, w.key = false, false, ""
			w.states, w.after = openStates, processlog.Scheduled{}
		}
	}
	for {
		if ids, err = w.page(ctx, n, businessType); err != nil {
			return nil, false, err
		}
		w.ended = w.keys && len(w.states) == 0
		if len(ids) > 0 {
			w.pages = sweepPages
			return ids, !w.ended, nil
		}
		if w.pages--; w.ended || w.pages <= 0 {
			return nil, false, nil
		}
	}
}

// page reads the next page of keys, and of entries that are due.
func (w *sweep) page(ctx context.Context, n *ordering, businessType string) (ids []processlog.ID, err error) {
	s, _ := n.of(businessType)
	if !w.keys {
		found, last, err := n.Store.Fronts(ctx, businessType, w.key, sweepPage, !s.PassDead)
		if err != nil {
			return nil, err
		}
		ids, w.key, w.keys = found, last, last == ""
	}
	if len(w.states) == 0 {
		return ids, nil
	}
	page, err := n.Store.Scan(ctx, processlog.Window{BusinessType: businessType, State: w.states[0], From: -processlog.MaxDelay, After: w.after, Free: true, Limit: sweepPage})
	if err != nil {
		return nil, err
	}
	if len(page) < sweepPage {
		w.states, w.after = w.states[1:], processlog.Scheduled{}
	} else {
		w.after = page[len(page)-1]
	}
	due := make([]processlog.ID, 0, len(page))
	for _, e := range page {
		if !slices.Contains(ids, e.ID) {
			due = append(due, e.ID)
		}
	}
	blocked, err := n.Store.Blocked(ctx, businessType, due, !s.PassDead)
	return append(ids, without(due, blocked)...), err
}

// without returns the ids that are not in drop.
func without(ids, drop []processlog.ID) []processlog.ID {
	if len(drop) == 0 {
		return ids
	}
	dropped := make(map[processlog.ID]bool, len(drop))
	for _, id := range drop {
		dropped[id] = true
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id processlog.ID) bool { return dropped[id] })
}

// sweep is the one of a type.
func (n *ordering) sweep(businessType string) *sweep {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.sweeps[businessType]
	if w == nil {
		w = newSweep()
		setIn(&n.sweeps, businessType, w)
	}
	return w
}
