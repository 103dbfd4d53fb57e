package limits

import (
	"maps"
	"slices"
	"time"

	"github.com/compensator-go/compensator/internal/jitter"
	"github.com/compensator-go/compensator/processlog"
)

// lookAhead is how many waiting entries of a type a process remembers. While no queue answers, an entry with more
// waiting entries in front of it waits too, even if its own key is free.
const lookAhead = 5000

// coarse limits how much later than its permit an entry is claimed, so that one claim takes entries of several keys. A
// burst makes up for a delay of (Burst-1) × Interval. The added delay is at most half of that.
const coarse = 25 * time.Millisecond

// mostSleep limits how long a waiting entry is left out of claims, because other processes may return starts, or run
// with a new limit.
const mostSleep = time.Minute

// line remembers which entries wait for permits of keys. Each waiting entry of a key gets its own time, one interval
// after the entry in front of it. The entry is claimed again at that time, and then usually gets a permit and starts.
type line struct {
	asleep map[processlog.ID]sleeper
	keys   map[string]*keyLine
}

// sleeper is an entry that waits.
type sleeper struct {
	key   string
	until time.Time // when it is claimed again
	free  time.Time // when the rate allows it to start; zero: it waits for the permit of a running entry
}

// keyLine are the waiting entries of a key.
type keyLine struct {
	ids  []processlog.ID // in order; some may have been woken
	last time.Time       // time of the last entry
}

func newLine() line {
	return line{asleep: make(map[processlog.ID]sleeper), keys: make(map[string]*keyLine)}
}

// awake separates wanted entries from those that still wait.
func (l *line) awake(want []processlog.Wanted, now time.Time) (rest []processlog.Wanted, asleep []processlog.Limited) {
	if len(l.asleep) == 0 {
		return want, nil
	}
	rest = make([]processlog.Wanted, 0, len(want))
	for _, w := range want {
		s, sleeps := l.asleep[w.ID]
		if sleeps && now.Before(s.until) {
			asleep = append(asleep, processlog.Limited{ID: w.ID, Key: s.key, In: s.until.Sub(now)})
			continue
		}
		delete(l.asleep, w.ID)
		rest = append(rest, w)
	}
	return rest, asleep
}

// claimed sets the time at which each entry without a permit is claimed again. If a key still allows n starts after the
// claim, claimed also returns the first n waiting entries of the key, which need not wait longer. This happens, for
// example, when an entry in front of them was cancelled.
func (l *line) claimed(found *processlog.Claimed, limit *processlog.StartLimit, now time.Time) (woken []processlog.ID) {
	for i := range found.Limited {
		entry := &found.Limited[i]
		k := l.keys[entry.Key]
		if k == nil {
			k = &keyLine{}
			l.keys[entry.Key] = k
		}
		until := now.Add(entry.In)
		if after := k.last.Add(pace(limit)); after.After(until) {
			until = after
		}
		k.last = until
		free := time.Time{}
		if entry.In > 0 {
			free = until
		}
		entry.In = min(until.Sub(now)+roundUp(until, limit), mostSleep)
		if len(l.asleep) < lookAhead {
			l.asleep[entry.ID] = sleeper{entry.Key, now.Add(entry.In), free}
			k.ids = append(k.ids, entry.ID)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(found.Rooms)) {
		left := found.Rooms[key]
		if n := min(left.Starts, left.Permits); n > 0 {
			woken = append(woken, l.wake(key, n)...)
		}
		if k := l.keys[key]; k != nil && len(k.ids) == 0 && k.last.Before(now) {
			delete(l.keys, key)
		}
	}
	return woken
}

// pace returns the time between two waiting entries of a key. If Concurrent is set, the next start depends on the end
// of a permit, which another process may hold. No process knows that time, so the entries are tried one by one.
func pace(limit *processlog.StartLimit) time.Duration {
	if limit.Interval > 0 && limit.Concurrent == 0 {
		return limit.Interval
	}
	return max(limit.Interval, permitPoll+jitter.N(permitPoll))
}

// roundUp returns how much later an entry is claimed, so that it shares a claim.
func roundUp(at time.Time, limit *processlog.StartLimit) time.Duration {
	grid := min(coarse, time.Duration(limit.Burst-1)*limit.Interval/2)
	if grid <= 0 {
		return 0
	}
	return at.Truncate(grid).Add(grid).Sub(at)
}

// wake takes the first n waiting entries of a key out of the line.
func (l *line) wake(key string, n int) (ids []processlog.ID) {
	k := l.keys[key]
	if k == nil {
		return nil
	}
	for len(k.ids) > 0 && len(ids) < n {
		id := k.ids[0]
		k.ids = k.ids[1:]
		if s, sleeps := l.asleep[id]; sleeps && s.key == key {
			delete(l.asleep, id)
			ids = append(ids, id)
		}
	}
	if len(ids) > 0 {
		k.last = time.Time{}
	}
	return ids
}

// wakeAll takes all waiting entries out of the line, in the order of their ids.
func (l *line) wakeAll() (ids []processlog.ID) {
	ids = slices.SortedFunc(maps.Keys(l.asleep), processlog.ID.Compare)
	clear(l.asleep)
	clear(l.keys)
	return ids
}

// report returns how many entries wait, and when the first of them may start.
func (l *line) report(now time.Time) (waiting int, free time.Time) {
	for _, s := range l.asleep {
		if now.Sub(s.until) > reportGrace {
			continue
		}
		waiting++
		if !s.free.IsZero() && (free.IsZero() || s.free.Before(free)) {
			free = s.free
		}
	}
	return waiting, free
}

// next returns the earliest time of a waiting entry, or the zero time. It forgets entries whose times have long passed,
// because other processes have claimed them.
func (l *line) next() (at time.Time) {
	for id, s := range l.asleep {
		if time.Since(s.until) > forgetAfter {
			delete(l.asleep, id)
			continue
		}
		if at.IsZero() || s.until.Before(at) {
			at = s.until
		}
	}
	return at
}

// forgetAfter is how long an entry stays in the line after its time.
const forgetAfter = 10 * time.Second
