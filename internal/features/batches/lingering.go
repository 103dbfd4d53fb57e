package batches

import (
	"slices"
	"sync"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// Entries of a type with a BatchWait linger. They are due but stay unclaimed and wait for others that share their
// batch. The claim schedule therefore uses the entry's due time plus the BatchWait. Once enough entries for a full
// batch are due, they are claimed at once.

// lookPause returns the time between two looks. A look is a read that finds out whether enough lingering entries of a
// type are due for a batch. Looks are needed because other processes do not report how many entries they record.
func lookPause(wait time.Duration) time.Duration {
	return min(max(wait/8, 10*time.Millisecond), 250*time.Millisecond)
}

// lingering is the state of a type whose entries wait for a batch.
type lingering struct {
	wait  time.Duration // 0: entries do not wait
	batch int           // number of due entries that are claimed at once

	mu       sync.Mutex // guards the fields below
	nextLook time.Time  // no look before this time
	news     int        // due entries reported since the last look
}

// Wait returns how long an entry lingers at most.
func (l *lingering) Wait() time.Duration { return l.wait }

// Due counts a due entry. If enough due entries have arrived for a full batch, Due returns true and lets the
// next look begin at once.
func (l *lingering) Due() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.news++; l.news < l.batch {
		return false
	}
	l.news, l.nextLook = 0, time.Time{}
	return true
}

// More lets the next look begin at once, because the last claim may have left due entries behind.
func (l *lingering) More() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nextLook = time.Time{}
}

// begin reports whether a look begins now. If not, next is the earliest time at which a look may begin.
func (l *lingering) begin(now time.Time) (begins bool, next time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.nextLook) {
		return false, l.nextLook
	}
	l.news = 0
	return true, time.Time{}
}

// looked records that a look has ended.
func (l *lingering) looked() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nextLook = time.Now().Add(lookPause(l.wait))
}

// Look returns a function that looks at the entries that linger. If no look may begin yet, Look returns nil and the
// time at which to call it again.
func (c *calls) Look(now time.Time) (look func() time.Duration, next time.Time) {
	begins, next := c.begin(now)
	if !begins {
		return nil, next
	}
	return func() time.Duration {
		defer c.looked()
		return c.ripeIn()
	}, time.Time{}
}

// ripeIn returns how much longer the due entries of the type may wait for a batch. It returns 0 if they fill a batch
// and Never if none is due. ripeIn leaves out entries that this process holds, because stuck entries would look like a
// full batch at each look.
func (c *calls) ripeIn() time.Duration {
	found, wait := 0, processlog.Never
	held := c.e.HeldFree(c.t)
	for _, state := range []processlog.State{processlog.Pending, processlog.Retrying} { // compensations run alone
		page, err := c.find(state, c.batch+len(held))
		if err != nil {
			return processlog.Never // the claim will meet the same error and report it
		}
		page = slices.DeleteFunc(page, func(e processlog.Scheduled) bool { return held[e.ID] })
		if page, err = c.unblocked(page); err != nil {
			return processlog.Never
		}
		if len(page) > 0 {
			wait = min(wait, c.wait+page[0].In)
		}
		found += len(page)
	}
	if found >= c.batch {
		return 0
	}
	return max(0, wait)
}

// unblocked leaves out blocked entries, because they cannot share a batch yet.
func (c *calls) unblocked(page []processlog.Scheduled) ([]processlog.Scheduled, error) {
	ids := make([]processlog.ID, len(page))
	for i := range page {
		ids[i] = page[i].ID
	}
	ctx, cancel := c.e.Statement()
	defer cancel()
	blocked, err := c.t.Blocked(ctx, ids)
	return slices.DeleteFunc(page, func(e processlog.Scheduled) bool { return slices.Contains(blocked, e.ID) }), err
}

func (c *calls) find(state processlog.State, limit int) ([]processlog.Scheduled, error) {
	ctx, cancel := c.e.Statement()
	defer cancel()
	return c.e.Store.Scan(ctx, processlog.Window{BusinessType: c.t.Name, State: state, From: -processlog.MaxDelay, Free: true, Limit: limit})
}
