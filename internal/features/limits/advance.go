package limits

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// An advance start is a start that one claim takes from the limit, and that an entry of a later claim uses.

// An advance start is a start that one claim takes for an entry of a later claim. advanceLife is the maximum time from the
// grant of the start until the later claim gives it to an entry. The handler must be called within grantLife after the
// grant, so the second half of grantLife is left for that claim.
const advanceLife = grantLife / 2

// advanceAim is the time within which a claim expects later claims to use its advance starts. The time is shorter than
// advanceLife, so that most advance starts are used before they are too old.
const advanceAim = advanceLife * 4 / 5

// maxGrowth limits how many advance starts a claim takes for one key. An advance start is a start for an entry of a
// later claim. The claim takes at most maxGrowth of them for each entry of the key that has started since the previous
// claim.
const maxGrowth = 4

const maxAdvance = 32

const sweepPause = advanceLife / 5

// advances holds the advance starts of this process: starts that a claim has taken for entries of later claims. A claim
// takes advance starts for a key only if an earlier claim of this process got starts of the same key within the last
// advanceLife. The claim leaves at least half of the burst to other processes.
type advances struct {
	// allowed reports whether claims may take advance starts. Claims may take them only while the method
	// Limits.ReturnAdvances runs, because that method returns unused advance starts to the limit.
	allowed bool
	slow    bool // whether the last claim has taken so long that an advance start would be too old
	keys    map[string]*advance
}

// advance holds the advance starts of one key: starts that a claim has taken for entries of later claims. The fields
// sentAt and started together show how fast the entries of the key start.
type advance struct {
	starts []unusedStart // from the oldest to the newest
	// sentAt is the time of the limit's last grant for the key to a claim of this process. The time is taken just
	// before this process sends the statement that grants the starts.
	sentAt  time.Time
	started int // number of entries of the key that this process has leased since the time sentAt
}

func isOld(sentAt, now time.Time) bool { return now.Sub(sentAt) >= advanceLife }

// wanted returns how many advance starts the next claim takes for a key. The argument left is the number of starts that
// the limit still has for the key.
func (as *advances) wanted(key string, left, burst int, now time.Time) int {
	a := as.keys[key]
	if !as.allowed || as.slow || a == nil || isOld(a.sentAt, now) {
		return 0
	}
	enough := maxGrowth * a.started
	if age := now.Sub(a.sentAt); age > 0 {
		enough = min(enough, int(time.Duration(a.started)*advanceAim/age))
	}
	return max(0, min(enough-len(a.starts), maxAdvance, left-(burst+1)/2))
}

func (as *advances) take(key string, now time.Time) (start unusedStart, ok bool) {
	a := as.keys[key]
	if a == nil {
		return unusedStart{}, false
	}
	for len(a.starts) > 0 && !ok {
		// Drop an old start without returning it to the limit. The limit takes back only the starts of its latest grant
		// for the key, and an old start usually comes from an earlier grant.
		start, a.starts = a.starts[0], a.starts[1:]
		ok = !isOld(start.sentAt, now)
	}
	if ok {
		a.started++
	}
	return start, ok
}

func (as *advances) giveBack(start unusedStart, now time.Time) bool {
	a := as.keys[start.key]
	if a == nil || isOld(start.sentAt, now) {
		return false
	}
	a.starts = slices.Insert(a.starts, 0, start)
	a.started--
	return true
}

// The method note stores n starts of one key that the limit has granted to a claim for entries of later claims. The
// parameter granted describes each of these starts. The parameter leased is the number of entries of the key that the
// claim itself has leased. For these entries, the limit has granted further starts.
func (as *advances) note(granted unusedStart, n, leased int) {
	a := as.keys[granted.key]
	if a == nil {
		a = &advance{}
		as.keys[granted.key] = a
	}
	a.starts = append(a.starts, slices.Repeat([]unusedStart{granted}, n)...)
	a.sentAt, a.started = granted.sentAt, leased
}

// dropOld removes each key whose advance starts are older than advanceLife, and so are of no use to an entry. If the
// parameter all is true, dropOld removes every key.
//
// dropOld returns the unused starts of the removed keys. The result next is the time at which the starts of another key
// get too old. It is zero if no key is left.
func (as *advances) dropOld(all bool, now time.Time) (unused []unusedStart, next time.Time) {
	for key, a := range as.keys {
		if all || isOld(a.sentAt, now) {
			unused = append(unused, a.starts...)
			delete(as.keys, key)
		} else if next.IsZero() || a.sentAt.Before(next) {
			next = a.sentAt
		}
	}
	if !next.IsZero() {
		next = next.Add(advanceLife)
	}
	return unused, next
}

type startsInAdvance struct {
	lt     *limitedType
	keys   map[processlog.ID]string      // keys of the entries that need a permit
	starts map[processlog.ID]unusedStart // of the entries that need no permit, because they have a start already
}

func (s *startsInAdvance) keyOf(row *processlog.Row) (key string, isLimited, ok bool) {
	if start, has := s.starts[row.ID]; has {
		return start.key, false, true
	}
	if key, isLimited, ok = s.lt.limit.Key(row); !isLimited || !ok {
		return key, isLimited, ok
	}
	s.lt.mu.Lock()
	defer s.lt.mu.Unlock()
	if start, has := s.lt.advances.take(key, time.Now()); has {
		s.starts[row.ID] = start
		return key, false, true
	}
	s.keys[row.ID] = key
	return key, true, true
}

func (lt *limitedType) advance(key string, left int) int {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	return lt.advances.wanted(key, left, lt.currentLimit.Burst, time.Now())
}

// giveBack looks for unused advance starts after a claim. The claim has given each start in the parameter starts to an
// entry, but has leased only the entries in the parameter mine. The start of an entry that was not leased is unused. If
// the start is not too old, giveBack keeps it for a later claim. Otherwise giveBack returns the start, and the caller
// must return it to the limit.
func (lt *limitedType) giveBack(starts *startsInAdvance, mine []processlog.Row) (unused []unusedStart) {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	return lt.giveBackLocked(starts, mine)
}

func (lt *limitedType) giveBackLocked(starts *startsInAdvance, mine []processlog.Row) (unused []unusedStart) {
	if len(starts.starts) == 0 {
		return nil
	}
	leased := make(map[processlog.ID]bool, len(mine))
	for i := range mine {
		leased[mine[i].ID] = true
	}
	now := time.Now()
	for _, id := range slices.SortedFunc(maps.Keys(starts.starts), processlog.ID.Compare) {
		if start := starts.starts[id]; !leased[id] && !lt.advances.giveBack(start, now) {
			unused = append(unused, start)
		}
	}
	return unused
}

// noteAdvancesLocked stores the advance starts that the limit has granted to a claim. An advance start is a start for
// an entry of a later claim. The parameter leased gives the number of entries that the claim has leased, for each key.
//
// If advance starts are no longer allowed, noteAdvancesLocked stores nothing and returns the starts as unused. The
// caller must return them to the limit.
func (lt *limitedType) noteAdvancesLocked(claim *processlog.Claimed, leased map[string]int, sentAt time.Time) (unused []unusedStart) {
	if len(lt.advances.keys) == 0 && len(leased) > 0 {
		select {
		case lt.l.advanced <- struct{}{}:
		default:
		}
	}
	for key, n := range leased {
		room := claim.Rooms[key]
		granted := unusedStart{lt, key, room.Granted, lt.currentLimit.Interval, sentAt}
		if lt.advances.allowed {
			lt.advances.note(granted, room.Advance, n)
		} else { // Run has ended meanwhile.
			unused = append(unused, slices.Repeat([]unusedStart{granted}, room.Advance)...)
		}
	}
	return unused
}

// ReturnAdvances returns unused advance starts to their limits until ctx ends. An advance start is a start that a claim
// has taken for an entry of a later claim. Claims take advance starts only while ReturnAdvances runs.
func (l *Limits) ReturnAdvances(ctx context.Context) {
	keyed := l.allowAdvances()
	if len(keyed) == 0 {
		return
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-l.advanced:
		case <-timer.C:
		}
		next := time.Time{}
		for _, lt := range keyed {
			if at := lt.returnAdvances(ctx.Err() != nil); !at.IsZero() && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
		if !next.IsZero() {
			timer.Reset(max(sweepPause, time.Until(next)))
		}
	}
}

func (l *Limits) allowAdvances() (keyed []*limitedType) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lt := range l.limitedTypes {
		if lt.gate.isKeyed && lt.limit.Interval > 0 {
			lt.mu.Lock()
			lt.advances.allowed = true
			lt.mu.Unlock()
			keyed = append(keyed, lt)
		}
	}
	return keyed
}

// returnAdvances looks for advance starts that are too old for an entry, and returns them to their limit. If the
// parameter stops is true, Run is ending. In this case returnAdvances returns all advance starts, and later claims take
// no advance starts. The result next is the time at which another advance start gets too old.
func (lt *limitedType) returnAdvances(stops bool) (next time.Time) {
	lt.mu.Lock()
	if stops {
		lt.advances.allowed = false
	}
	unused, next := lt.advances.dropOld(stops, time.Now())
	lt.mu.Unlock()
	lt.returnUnused(unused)
	return next
}

func (lt *limitedType) returnUnused(unused []unusedStart) {
	if len(unused) > 0 {
		lt.l.unusedStarts.Add(unused...)
	}
}
