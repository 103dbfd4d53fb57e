package ordering

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/compensator-go/compensator/internal/grouped"
	"github.com/compensator-go/compensator/processlog"
)

// sweep finds entries of a type that may run now. Usually an entry starts when the earlier entry of its key ends. A
// sweep finds the entries that are not started in this way. These are the entries of a backlog, of keys whose process
// was killed, and of programs that record entries by SQL.
//
// A sweep reads all keys. It also reads all due entries, because an entry may have no stored position under its key. A
// sweep reads page by page, and each read continues after the last page.
type sweep struct {
	restarted atomic.Bool // restart was called since the last read

	// guard is a lock with capacity 1 for the fields below.
	guard      chan struct{}
	pagesLeft  int    // pages in a row that may still be read without finding an entry
	finished   bool   // all keys and all due entries have been read
	lastKey    string // last key that was read; empty before the first read
	keysDone   bool
	statesLeft []processlog.State
	lastDue    processlog.Scheduled // last due entry that was read in the state statesLeft[0]; zero before the first read
}

func newSweep() *sweep { return &sweep{guard: make(chan struct{}, 1), statesLeft: openStates} }

const (
	sweepPage = processlog.MaxRows / 2

	// sweepPages limits how many pages in a row a sweep reads without finding an entry. After that the sweep stops
	// until the reconciler's next round calls restart.
	sweepPages = 8
)

// restart lets the sweep read more pages. A sweep that has read everything begins again at the first key.
func (w *sweep) restart() { w.restarted.Store(true) }

var openStates = []processlog.State{processlog.Pending, processlog.Retrying, processlog.Compensating}

func (w *sweep) readNext(ctx context.Context, o *Ordering, businessType string) (ids []processlog.ID, more bool, err error) {
	w.guard <- struct{}{}
	defer func() { <-w.guard }()
	if w.restarted.Swap(false) {
		w.pagesLeft = sweepPages
		if w.finished {
			w.finished, w.keysDone, w.lastKey = false, false, ""
			w.statesLeft, w.lastDue = openStates, processlog.Scheduled{}
		}
	}
	for {
		if ids, err = w.readPage(ctx, o, businessType); err != nil {
			return nil, false, err
		}
		w.finished = w.keysDone && len(w.statesLeft) == 0
		if len(ids) > 0 {
			w.pagesLeft = sweepPages
			return ids, !w.finished, nil
		}
		if w.pagesLeft--; w.finished || w.pagesLeft <= 0 {
			return nil, false, nil
		}
	}
}

func (w *sweep) readPage(ctx context.Context, o *Ordering, businessType string) (ids []processlog.ID, err error) {
	s, _ := o.serialOf(businessType)
	if !w.keysDone {
		found, last, err := o.e.Store.Fronts(ctx, businessType, w.lastKey, sweepPage, !s.PassDead)
		if err != nil {
			return nil, err
		}
		ids, w.lastKey, w.keysDone = found, last, last == ""
	}
	if len(w.statesLeft) == 0 {
		return ids, nil
	}
	page, err := o.e.Store.Scan(ctx, processlog.Window{BusinessType: businessType, State: w.statesLeft[0], From: -processlog.MaxDelay, After: w.lastDue, Free: true, Limit: sweepPage})
	if err != nil {
		return nil, err
	}
	if len(page) < sweepPage {
		w.statesLeft, w.lastDue = w.statesLeft[1:], processlog.Scheduled{}
	} else {
		w.lastDue = page[len(page)-1]
	}
	due := make([]processlog.ID, 0, len(page))
	for _, e := range page {
		if !slices.Contains(ids, e.ID) {
			due = append(due, e.ID)
		}
	}
	blocked, err := o.e.Store.Blocked(ctx, businessType, due, !s.PassDead)
	return append(ids, grouped.Without(due, blocked)...), err
}

func (o *Ordering) sweepOf(businessType string) *sweep {
	o.mu.Lock()
	defer o.mu.Unlock()
	w := o.sweeps[businessType]
	if w == nil {
		w = newSweep()
		o.sweeps[businessType] = w
	}
	return w
}
