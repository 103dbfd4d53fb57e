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

// lookInterval returns the time between two looks. A look is a read that finds out whether enough lingering entries of a
// type are due for a batch. Looks are needed because other processes do not report how many entries they record.
func lookInterval(wait time.Duration) time.Duration {
	return min(max(wait/8, 10*time.Millisecond), 250*time.Millisecond)
}

// lingerState is the state of a type whose entries wait for a batch.
type lingerState struct {
	wait      time.Duration // 0: entries do not wait
	batchSize int           // number of due entries that are claimed at once

	mu         sync.Mutex // guards the fields below
	nextLook   time.Time  // no look before this time
	dueReports int        // due entries reported since the last look
}

// Linger returns the maximum time that an entry lingers.
func (l *lingerState) Linger() time.Duration { return l.wait }

// EntryDue counts a due entry. If enough due entries have arrived for a full batch, EntryDue returns true and lets the
// next look begin at once.
func (l *lingerState) EntryDue() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dueReports++; l.dueReports < l.batchSize {
		return false
	}
	l.dueReports, l.nextLook = 0, time.Time{}
	return true
}

// ClaimFull lets the next look begin at once, because the last claim may have left due entries behind.
func (l *lingerState) ClaimFull() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nextLook = time.Time{}
}

// beginLook reports whether a look begins now. If not, nextLook is the earliest time at which a look may begin.
func (l *lingerState) beginLook(now time.Time) (begins bool, nextLook time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.nextLook) {
		return false, l.nextLook
	}
	l.dueReports = 0
	return true, time.Time{}
}

// endLook records that a look has ended.
func (l *lingerState) endLook() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nextLook = time.Now().Add(lookInterval(l.wait))
}

// Look returns a function that looks at the entries that linger. If no look may begin yet, Look returns nil and the
// time at which to call it again.
func (c *batchCalls) Look(now time.Time) (look func() time.Duration, nextLook time.Time) {
	begins, nextLook := c.beginLook(now)
	if !begins {
		return nil, nextLook
	}
	return func() time.Duration {
		defer c.endLook()
		return c.remainingWait()
	}, time.Time{}
}

// remainingWait returns how much longer the due entries of the type may wait for a batch. It returns 0 if they fill a batch
// and Never if none is due. remainingWait leaves out entries that this process holds, because stuck entries would look like a
// full batch at each look.
func (c *batchCalls) remainingWait() time.Duration {
	dueCount, wait := 0, processlog.Never
	heldIDs := c.e.HeldWithEndedLease(c.t)
	for _, state := range []processlog.State{processlog.Pending, processlog.Retrying} { // compensations run alone
		page, err := c.scanDue(state, c.batchSize+len(heldIDs))
		if err != nil {
			return processlog.Never // the claim will meet the same error and report it
		}
		page = slices.DeleteFunc(page, func(e processlog.Scheduled) bool { return heldIDs[e.ID] })
		if page, err = c.withoutBlocked(page); err != nil {
			return processlog.Never
		}
		if len(page) > 0 {
			wait = min(wait, c.wait+page[0].In)
		}
		dueCount += len(page)
	}
	if dueCount >= c.batchSize {
		return 0
	}
	return max(0, wait)
}

// withoutBlocked leaves out blocked entries, because they cannot share a batch yet.
func (c *batchCalls) withoutBlocked(page []processlog.Scheduled) ([]processlog.Scheduled, error) {
	ids := make([]processlog.ID, len(page))
	for i := range page {
		ids[i] = page[i].ID
	}
	ctx, cancel := c.e.Statement()
	defer cancel()
	blocked, err := c.t.Blocked(ctx, ids)
	return slices.DeleteFunc(page, func(e processlog.Scheduled) bool { return slices.Contains(blocked, e.ID) }), err
}

func (c *batchCalls) scanDue(state processlog.State, limit int) ([]processlog.Scheduled, error) {
	ctx, cancel := c.e.Statement()
	defer cancel()
	return c.e.Store.Scan(ctx, processlog.Window{BusinessType: c.t.Name, State: state, From: -processlog.MaxDelay, Free: true, Limit: limit})
}
