package engine

import (
	"slices"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// Entries of a type with a BatchWait linger. They are due but stay unclaimed and wait for others that share their
// batch. The claim schedule therefore uses the entry's due time plus the BatchWait. If enough entries for a full batch
// are due, it claims at once.

// lookPause returns the time between two looks at a type whose entries linger. A look finds out whether a batch is
// full. It is needed because other processes do not report how many entries they record.
func lookPause(wait time.Duration) time.Duration {
	return min(max(wait/8, 10*time.Millisecond), 250*time.Millisecond)
}

// linger is the state of a type whose entries wait for a batch. claimSchedule.mu guards it.
type linger struct {
	wait     time.Duration // BatchWait of the type; 0 means that its entries do not wait
	batch    int           // number of due entries that are claimed at once
	looking  bool
	nextLook time.Time // no look before this time
	news     int       // due times notified since the last look
}

// lingers reports whether entries of the type are known to wait for a batch now.
func (typeSchedule *typeSchedule) lingers(now time.Time) bool {
	return typeSchedule.wait > 0 && now.Before(typeSchedule.due) && !now.Before(typeSchedule.due.Add(-typeSchedule.wait)) && !now.Before(typeSchedule.closed)
}

// filled counts a notification. It reports whether enough have arrived for a full batch, and then allows the next look
// at once.
func (typeSchedule *typeSchedule) filled() bool {
	if typeSchedule.wait == 0 {
		return false
	}
	if typeSchedule.news++; typeSchedule.news < typeSchedule.batch {
		return false
	}
	typeSchedule.news, typeSchedule.nextLook = 0, time.Time{}
	return true
}

// look reports whether to look now, and otherwise when to look at the latest.
func (typeSchedule *typeSchedule) look(t *Type, now time.Time) (look bool, next time.Time) {
	switch {
	case typeSchedule.looking || typeSchedule.claiming > 0 || t.slots.Free() == 0:
		return false, typeSchedule.due // the end of the look or claim, or a free slot, wakes the scanner
	case !typeSchedule.lingers(now):
		return false, typeSchedule.due.Add(-typeSchedule.wait)
	}
	return !now.Before(typeSchedule.nextLook), typeSchedule.nextLook
}

// lookLocked starts a look if it is time, and returns when the scanner must wake next for this type. The caller holds
// claimSchedule.mu.
func (s *scanner) lookLocked(t *Type, typeSchedule *typeSchedule, now time.Time, goes func(func())) time.Time {
	look, next := typeSchedule.look(t, now)
	if !look {
		return next
	}
	typeSchedule.looking, typeSchedule.news = true, 0
	goes(func() { s.claimSchedule.looked(t, s.ripeIn(t)) })
	return typeSchedule.due
}

// ripeIn returns how much longer the due entries of a type may wait for a batch. It returns 0 if they fill a batch and
// Never if none is due. It leaves out entries that this process holds. Otherwise stuck entries would look like a full
// batch at each look.
func (s *scanner) ripeIn(t *Type) time.Duration {
	found, wait := 0, processlog.Never
	held := s.holdings.expired(t)
	for _, state := range []processlog.State{processlog.Pending, processlog.Retrying} { // compensations run alone
		page, err := s.findLingering(t, state, t.BatchSize+len(held))
		if err != nil {
			return processlog.Never // the claim will meet the same error and report it
		}
		page = slices.DeleteFunc(page, func(e processlog.Scheduled) bool { return held[e.ID] })
		if page, err = s.unblocked(t, page); err != nil {
			return processlog.Never
		}
		if len(page) > 0 {
			wait = min(wait, t.BatchWait+page[0].In)
		}
		found += len(page)
	}
	if found >= t.BatchSize {
		return 0
	}
	return max(0, wait)
}

// unblocked leaves out blocked entries, because they cannot share a batch yet.
func (s *scanner) unblocked(t *Type, page []processlog.Scheduled) ([]processlog.Scheduled, error) {
	ids := make([]processlog.ID, len(page))
	for i := range page {
		ids[i] = page[i].ID
	}
	ctx, cancel := s.Statement()
	defer cancel()
	blocked, err := t.blocked(ctx, ids)
	return slices.DeleteFunc(page, func(e processlog.Scheduled) bool { return slices.Contains(blocked, e.ID) }), err
}

func (s *scanner) findLingering(t *Type, state processlog.State, limit int) ([]processlog.Scheduled, error) {
	ctx, cancel := s.Statement()
	defer cancel()
	return s.Store.Scan(ctx, processlog.Window{BusinessType: t.Name, State: state, From: -processlog.MaxDelay, Free: true, Limit: limit})
}

// looked records the result of a look and wakes the scanner.
func (a *claimSchedule) looked(t *Type, ripeIn time.Duration) {
	a.mu.Lock()
	typeSchedule := a.byType[t.Name]
	typeSchedule.looking, typeSchedule.nextLook = false, time.Now().Add(lookPause(typeSchedule.wait))
	if ripeIn < processlog.Never {
		typeSchedule.notified++ // an earlier answer of the queue may not include these entries
		typeSchedule.sooner(time.Now().Add(ripeIn))
	}
	a.mu.Unlock()
	a.Wake()
}
