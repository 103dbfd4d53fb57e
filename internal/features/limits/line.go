package limits

import (
	"maps"
	"slices"
	"time"

	"github.com/compensator-go/compensator/internal/jitter"
	"github.com/compensator-go/compensator/processlog"
)

// maxSleepers is the maximum number of entries that wait for a permit and that this process remembers. A read of due
// entries also returns waiting entries. It reads up to about maxSleepers entries more than a claim needs, so that the
// claim can pass over the waiting entries. See package readahead. If more entries wait, the read may return only
// waiting entries, and the claim then starts no entry.
const maxSleepers = 5000

// maxRounding is the longest time by which roundUp delays the claim of a waiting entry. roundUp moves the claims of
// several entries to the same time, so that one claim takes these entries. No start is lost by the delay: a key keeps
// the starts that become free in the meantime, up to Burst.
const maxRounding = 25 * time.Millisecond

// maxSleep is short, because other processes may return starts or raise the limit.
const maxSleep = time.Minute

// line remembers which entries wait for permits of keys. Each waiting entry of a key gets its own time, one interval
// after the entry in front of it.
type line struct {
	sleepers map[processlog.ID]sleeper
	keys     map[string]*keyLine
}

type sleeper struct {
	key     string
	claimAt time.Time // when the entry is claimed again
	startAt time.Time // when the rate allows the entry to start; zero: the entry waits for the permit of a running entry
}

type keyLine struct {
	ids    []processlog.ID // in order; some may have been woken
	lastAt time.Time
}

func newLine() line {
	return line{sleepers: make(map[processlog.ID]sleeper), keys: make(map[string]*keyLine)}
}

func (l *line) splitSleeping(wanted []processlog.Wanted, now time.Time) (awake []processlog.Wanted, sleeping []processlog.Limited) {
	if len(l.sleepers) == 0 {
		return wanted, nil
	}
	awake = make([]processlog.Wanted, 0, len(wanted))
	for _, w := range wanted {
		s, isSleeping := l.sleepers[w.ID]
		if isSleeping && now.Before(s.claimAt) {
			sleeping = append(sleeping, processlog.Limited{ID: w.ID, Key: s.key, In: s.claimAt.Sub(now)})
			continue
		}
		delete(l.sleepers, w.ID)
		awake = append(awake, w)
	}
	return awake, sleeping
}

// noteClaim sets the time at which each limited entry of a claim is claimed again. The result wokenIDs lists waiting
// entries to claim now, because their keys have free starts and permits.
func (l *line) noteClaim(claim *processlog.Claimed, limit *processlog.StartLimit, now time.Time) (wokenIDs []processlog.ID) {
	for i := range claim.Limited {
		entry := &claim.Limited[i]
		if s, isSleeping := l.sleepers[entry.ID]; isSleeping && s.key == entry.Key && now.Before(s.claimAt) {
			// While this claim ran, another claim has put the entry into the line, and has set the time of its next
			// claim. Keep this time.
			entry.In = s.claimAt.Sub(now)
			continue
		}
		k := l.keys[entry.Key]
		if k == nil {
			k = &keyLine{}
			l.keys[entry.Key] = k
		}
		claimAt := now.Add(entry.In)
		if nextInLine := k.lastAt.Add(entryInterval(limit)); nextInLine.After(claimAt) {
			claimAt = nextInLine
		}
		k.lastAt = claimAt
		startAt := time.Time{}
		if entry.In > 0 {
			startAt = claimAt
		}
		entry.In = min(claimAt.Sub(now)+roundUp(claimAt, limit), maxSleep)
		if len(l.sleepers) < maxSleepers {
			l.sleepers[entry.ID] = sleeper{entry.Key, now.Add(entry.In), startAt}
			k.ids = append(k.ids, entry.ID)
		}
	}
	var keys []string
	for key := range claim.Rooms {
		if l.keys[key] != nil {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		room, k := claim.Rooms[key], l.keys[key]
		if n := min(room.Starts, room.Permits); n > 0 {
			wokenIDs = append(wokenIDs, l.wake(key, n)...)
		}
		if len(k.ids) == 0 && k.lastAt.Before(now) {
			delete(l.keys, key)
		}
	}
	return wokenIDs
}

// entryInterval returns the time between the claims of two waiting entries of a key. If Concurrent is set, no process
// knows when the next permit ends. The time is then short and partly random.
func entryInterval(limit *processlog.StartLimit) time.Duration {
	if limit.Interval > 0 && limit.Concurrent == 0 {
		return limit.Interval
	}
	return max(limit.Interval, permitPoll+jitter.N(permitPoll))
}

func roundUp(at time.Time, limit *processlog.StartLimit) time.Duration {
	grid := min(maxRounding, time.Duration(limit.Burst-1)*limit.Interval/2)
	if grid <= 0 {
		return 0
	}
	return at.Truncate(grid).Add(grid).Sub(at)
}

func (l *line) wake(key string, n int) (ids []processlog.ID) {
	k := l.keys[key]
	if k == nil {
		return nil
	}
	for len(k.ids) > 0 && len(ids) < n {
		id := k.ids[0]
		k.ids = k.ids[1:]
		if s, isSleeping := l.sleepers[id]; isSleeping && s.key == key {
			delete(l.sleepers, id)
			ids = append(ids, id)
		}
	}
	if len(ids) > 0 {
		k.lastAt = time.Time{}
	}
	return ids
}

func (l *line) wakeAll() (ids []processlog.ID) {
	ids = slices.SortedFunc(maps.Keys(l.sleepers), processlog.ID.Compare)
	clear(l.sleepers)
	clear(l.keys)
	return ids
}

func (l *line) reportWaiting(now time.Time) (waiting int, startAt time.Time) {
	for _, s := range l.sleepers {
		if now.Sub(s.claimAt) > reportGrace {
			continue
		}
		waiting++
		if !s.startAt.IsZero() && (startAt.IsZero() || s.startAt.Before(startAt)) {
			startAt = s.startAt
		}
	}
	return waiting, startAt
}

// nextClaimAt returns the time at which the first waiting entry is claimed again, or zero if no entry waits. If the
// time of an entry has long passed, other processes have probably claimed the entry, so nextClaimAt forgets it.
func (l *line) nextClaimAt() (at time.Time) {
	for id, s := range l.sleepers {
		if time.Since(s.claimAt) > sleeperLife {
			delete(l.sleepers, id)
			continue
		}
		if at.IsZero() || s.claimAt.Before(at) {
			at = s.claimAt
		}
	}
	return at
}

const sleeperLife = 10 * time.Second
