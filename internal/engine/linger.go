package engine

import (
	"slices"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// Entries of a type with a BatchWait linger: they are due, stay unclaimed, and wait for others to share their batch. The
// claim schedule's due moments are that much later than the entries', unless as many are due as a batch takes: then at once.

// lookPause is how far apart the looks are by which a type that lingers learns that a batch is full. What other processes
// record tells nobody its number.
func lookPause(wait time.Duration) time.Duration {
	return min(max(wait/8, 10*time.Millisecond), 250*time.Millisecond)
}

// linger is what a scan knows of entries that wait for others; claim schedule.mu guards it.
type linger struct {
	wait     time.Duration // 0: none do
	batch    int           // how many need not
	looking  bool
	nextLook time.Time // none before
	news     int       // due moments heard of since the last one
}

// lingers reports whether entries of the type wait for others, as far as is known.
func (typeSchedule *typeSchedule) lingers(now time.Time) bool {
	return typeSchedule.wait > 0 && now.Before(typeSchedule.due) && !now.Before(typeSchedule.due.Add(-typeSchedule.wait)) && !now.Before(typeSchedule.closed)
}

// filled counts what is heard, and reports whether that may be a batch: then it is looked at at once.
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

// look reports whether to look now, and when next at the latest.
func (typeSchedule *typeSchedule) look(t *Type, now time.Time) (look bool, next time.Time) {
	switch {
	case typeSchedule.looking || typeSchedule.claiming > 0 || t.slots.Free() == 0:
		return false, typeSchedule.due // the end of either wakes the scanner
	case !typeSchedule.lingers(now):
		return false, typeSchedule.due.Add(-typeSchedule.wait)
	}
	return !now.Before(typeSchedule.nextLook), typeSchedule.nextLook
}

// lookLocked looks whether a batch that lingers is full, if it is time to, and returns when it is.
func (s *scanner) lookLocked(t *Type, typeSchedule *typeSchedule, now time.Time, goes func(func())) time.Time {
	look, next := typeSchedule.look(t, now)
	if !look {
		return next
	}
	typeSchedule.looking, typeSchedule.news = true, 0
	goes(func() { s.claimSchedule.looked(t, s.ripeIn(t)) })
	return typeSchedule.due
}

// ripeIn is how long the entries of a type that are due may wait for others still; nothing where they are enough, Never where
// none is known. What this process holds waits for nobody: a batch that hangs would be taken for one that is full, look by look.
func (s *scanner) ripeIn(t *Type) time.Duration {
	found, wait := 0, processlog.Never
	held := s.holdings.expired(t)
	for _, state := range []processlog.State{processlog.Pending, processlog.Retrying} { // what is compensated runs alone
		page, err := s.findLingering(t, state, t.BatchSize+len(held))
		if err != nil {
			return processlog.Never // the claim meets the same, and tells
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

// unblocked leaves out entries that wait for another of their key: they share no batch.
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

// looked takes note of such a look.
func (a *claimSchedule) looked(t *Type, ripeIn time.Duration) {
	a.mu.Lock()
	typeSchedule := a.byType[t.Name]
	typeSchedule.looking, typeSchedule.nextLook = false, time.Now().Add(lookPause(typeSchedule.wait))
	if ripeIn < processlog.Never {
		typeSchedule.notified++ // the queue may not know of it, and was perhaps asked before
		typeSchedule.sooner(time.Now().Add(ripeIn))
	}
	a.mu.Unlock()
	a.Wake()
}
