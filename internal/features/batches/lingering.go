package batches

import (
	"slices"
	"sync"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// Entries of a type with a BatchWait linger: a due entry stays unclaimed and waits for others that can share its batch.
// A look is a read that counts the due entries and finds the one that has waited longest. The type is claimed when a
// full batch is due, or when an entry has waited for BatchWait.

// lookInterval is short, because other processes do not report how many entries they record.
func lookInterval(wait time.Duration) time.Duration {
	return min(max(wait/8, 10*time.Millisecond), 250*time.Millisecond)
}

type lingerState struct {
	wait      time.Duration // 0: entries do not wait
	batchSize int

	mu         sync.Mutex // guards the fields below
	waitEnds   time.Time  // when BatchWait of the oldest due entry ends, and the next claim begins; zero if unknown
	noneWaits  bool       // whether the last look found no due entry. If true, another look comes before the claim.
	nextLook   time.Time
	dueReports int // due entries reported since the last look
}

// entryDue counts a due entry. It returns the time until the due entries must be read again or claimed.
func (l *lingerState) entryDue(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dueReports++; l.dueReports >= l.batchSize {
		l.dueReports, l.nextLook = 0, time.Time{}
	}
	return l.untilNextLocked(now)
}

func (l *lingerState) untilNextLocked(now time.Time) time.Duration {
	next := l.nextLook
	if !l.waitEnds.IsZero() && l.waitEnds.Before(next) {
		next = l.waitEnds
	}
	return max(0, next.Sub(now))
}

// look returns nil if the next claim may begin. Otherwise look returns the function ask, and the scanner calls ask in place
// of the claim. ask reads the due entries if it is time to do so, and returns the time until the next call of look.
func (c *batchCalls) look(now time.Time, full bool) (ask func() time.Duration) {
	begins, wait := c.beginLook(now, full)
	switch {
	case begins:
		return func() time.Duration { return c.endLook(c.remainingWait()) }
	case wait > 0:
		return func() time.Duration { return wait }
	}
	return nil
}

// beginLook reports in the result begins whether it is time for a look, which reads the due entries. If it is not, the
// result wait is the time until the next look or claim. If begins is false and wait is 0, the claim may begin now.
func (l *lingerState) beginLook(now time.Time, full bool) (begins bool, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.noneWaits && !l.waitEnds.IsZero() && !now.Before(l.waitEnds) {
		l.waitEnds = time.Time{}
		return false, 0
	}
	if wait = l.untilNextLocked(now); wait > 0 && !full {
		return false, wait
	}
	l.dueReports = 0
	return true, 0
}

// endLook records the result of a look at the due entries. The parameter wait is how much longer the entries may wait,
// or Never if no entry waits. endLook returns the time until the next look or claim.
//
// If no entry waits, the next look comes when the time BatchWait is over. A claim follows that look in any case,
// because a look does not see compensations, but a claim does.
func (l *lingerState) endLook(wait time.Duration, err error) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, interval := time.Now(), lookInterval(l.wait)
	l.nextLook = now.Add(interval)
	switch {
	case err == nil && wait < processlog.Never:
		l.waitEnds = now.Add(wait)
	case l.waitEnds.IsZero():
		l.waitEnds = now.Add(l.wait)
	}
	l.noneWaits = err == nil && wait == processlog.Never && now.Before(l.waitEnds)
	if l.noneWaits {
		return l.waitEnds.Sub(now)
	}
	return min(l.waitEnds.Sub(now), interval)
}

// remainingWait returns how much longer the due entries of the type may wait for a batch. It returns 0 if they fill a
// batch and Never if none waits. remainingWait leaves out entries that this process holds.
func (c *batchCalls) remainingWait() (time.Duration, error) {
	dueCount, wait := 0, processlog.Never
	heldIDs := c.e.HeldWithEndedLease(c.t)
	// Leave out the state Compensating. A compensation shares no handler call, so it does not wait for a batch.
	for _, state := range []processlog.State{processlog.Pending, processlog.Retrying} {
		page, err := c.scanDue(state, c.batchSize+len(heldIDs))
		if err != nil {
			return processlog.Never, err
		}
		page = slices.DeleteFunc(page, func(e processlog.Scheduled) bool { return heldIDs[e.ID] })
		if page, err = c.withoutBlocked(page); err != nil {
			return processlog.Never, err
		}
		for _, e := range page {
			wait = min(wait, c.wait+e.In)
			if e.In <= 0 {
				dueCount++
			}
		}
	}
	if dueCount >= c.batchSize {
		return 0, nil
	}
	return max(0, wait), nil
}

func (c *batchCalls) withoutBlocked(page []processlog.Scheduled) ([]processlog.Scheduled, error) {
	if !c.t.IsOrdered() {
		return page, nil
	}
	ids := make([]processlog.ID, len(page))
	for i := range page {
		ids[i] = page[i].ID
	}
	ctx, cancel := c.e.Statement()
	defer cancel()
	blocked, err := c.t.Order().Blocked(ctx, ids)
	return slices.DeleteFunc(page, func(e processlog.Scheduled) bool { return slices.Contains(blocked, e.ID) }), err
}

func (c *batchCalls) scanDue(state processlog.State, limit int) ([]processlog.Scheduled, error) {
	ctx, cancel := c.e.Statement()
	defer cancel()
	return c.e.Store.Scan(ctx, processlog.Window{BusinessType: c.t.Name, State: state, From: -processlog.MaxDelay, To: lookInterval(c.wait), Free: true, Limit: limit})
}
