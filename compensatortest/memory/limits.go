package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

type limitKey struct{ limit, key string }

// limitRow never changes once it is stored. Each write stores a new one.
type limitRow struct {
	arrivalTime int64         // theoretical arrival time of the next start, in unix ns
	granted     int64         // processlog.Room.Granted
	grantedAt   int64         // time of the last grant, in unix ms
	interval    time.Duration // interval of the last grant
	holders     []holder
	stored      processlog.StoredLimit // with the key "": what is known of the limit
}

// holder has the row's version after the claim that took the permit.
type holder struct {
	id      processlog.ID
	version uint64
}

// ClaimLimited implements processlog.Store. It calls accept and limit.Key while it holds the store's lock.
func (s *Store) ClaimLimited(ctx context.Context, wanted []processlog.Wanted, token processlog.Token, lease time.Duration, limit processlog.StartLimit, accept func(*processlog.Row) bool) (processlog.Claimed, error) {
	return s.claim(ctx, wanted, token, lease, &limit, accept)
}

// ReturnStarts implements processlog.Store.
func (s *Store) ReturnStarts(ctx context.Context, limit processlog.StartLimit, unusedStarts map[string]processlog.Unused) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, u := range unusedStarts {
		if row, exists := s.limits[limitKey{limit.Name, key}]; exists && row.granted == u.Granted {
			row.arrivalTime -= int64(u.Starts) * int64(limit.Interval)
			s.limits[limitKey{limit.Name, key}] = row
		}
	}
	return nil
}

// PurgeLimitKeys implements processlog.Store.
func (s *Store) PurgeLimitKeys(ctx context.Context, idle time.Duration) (deleted int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.nowLocked()
	for key, row := range s.limits {
		isHeld := slices.ContainsFunc(row.holders, func(h holder) bool {
			entry := s.rows[h.id]
			return entry != nil && entry.committed != nil && entry.committed.entry.Version == h.version
		})
		if key.key != "" && !isHeld && row.arrivalTime < now*int64(time.Millisecond) && row.grantedAt < now-processlog.Millis(idle) {
			delete(s.limits, key)
			deleted++
		}
	}
	return deleted, ctx.Err()
}

// CheckLimits implements processlog.Store. It finds no problem, because no table can be missing.
func (s *Store) CheckLimits(ctx context.Context) error { return ctx.Err() }

// A *permits is the state of one claim under a limit. The claim holds the store's lock. A nil *permits limits nothing.
type permits struct {
	s             *Store
	now           int64 // unix ms
	limit         processlog.StartLimit
	programValues processlog.LimitValues // before a person's change
	keyOf         map[processlog.ID]keyResult
	claimableKeys map[string]bool
	advance       map[string]int // for each key of which the claim leases an entry: number of starts that the claim takes in advance
}

type keyResult struct {
	key           string
	isLimited, ok bool
}

func (s *Store) permitsLocked(limit processlog.StartLimit, now int64) *permits {
	return &permits{s: s, now: now, limit: limit, programValues: limit.Values(), keyOf: make(map[processlog.ID]keyResult), claimableKeys: make(map[string]bool), advance: make(map[string]int)}
}

// readKey reads the key of an entry under the limit. When a claim reads a key for the first time, readKey takes the
// permits of this key away from entries whose leases have ended.
func (p *permits) readKey(row *processlog.Row) {
	if p == nil {
		return
	}
	key, isLimited, ok := p.limit.Of(row)
	p.keyOf[row.ID] = keyResult{key, isLimited && ok, ok}
	if !isLimited || !ok || p.claimableKeys[key] {
		return
	}
	p.claimableKeys[key] = true
	p.describe(row.BusinessType)
	rowKey := limitKey{p.limit.Name, key}
	stored, exists := p.s.limits[rowKey]
	if !exists {
		// The key has no row. The number in the field granted must never repeat, even if an earlier row of the key was
		// deleted. The time in µs is larger than any number that the earlier row can have reached.
		stored.granted = p.now * 1000
	}
	stored.holders = slices.DeleteFunc(slices.Clone(stored.holders), p.endedLocked)
	if lead := time.Duration(stored.arrivalTime - p.now*int64(time.Millisecond)); lead > 0 && stored.interval != p.limit.Interval {
		stored.arrivalTime = p.now*int64(time.Millisecond) + int64(stored.leadIn(p.now, p.limit.Interval))
		stored.interval = p.limit.Interval
		// Processes may still hold unused starts of the old rate, and must not return them at the new rate. A process
		// returns a start together with the number that the field granted had after its claim. ReturnStarts ignores a
		// start whose number differs from the present number. So change the number now.
		stored.granted++
	}
	p.s.limits[rowKey] = stored
}

// describe stores the limit's settings and its business types in the row with the key "".
func (p *permits) describe(businessType string) {
	firstKey := limitKey{p.limit.Name, ""}
	row := p.s.limits[firstKey]
	l := &row.stored
	l.Name, l.Keyed, l.Program = p.limit.Name, p.limit.Keyed, p.programValues
	if at, isListed := slices.BinarySearch(l.Types, businessType); !isListed {
		l.Types = slices.Insert(slices.Clone(l.Types), at, businessType)
	}
	p.s.limits[firstKey] = row
	p.limit.Set(p.programValues.With(l.Person)) // A person may have changed the limit.
}

// leadIn returns the lead of a key: its stored arrival time minus the parameter now, which is in unix ms. See
// processlog.StartLimit.Free. If the limit's interval has changed since the last grant, leadIn converts the result to
// the new interval.
func (r *limitRow) leadIn(now int64, interval time.Duration) time.Duration {
	return processlog.Rescaled(time.Duration(r.arrivalTime-now*int64(time.Millisecond)), r.interval, interval)
}

// PutLimit implements processlog.Operations.
func (s *Store) PutLimit(ctx context.Context, limit processlog.StoredLimit, ops ...processlog.Operation) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	first := limitKey{limit.Name, ""}
	row := s.limits[first]
	if row.stored.Name == "" || row.stored.Version != limit.Version {
		return fmt.Errorf("change the limit %q: %w", limit.Name, processlog.ErrChanged)
	}
	row.stored.Person, row.stored.Actor, row.stored.Reason = limit.Person, limit.Actor, limit.Reason
	row.stored.Version++
	row.stored.At = millisToTime(s.nowLocked())
	s.limits[first] = row
	for _, op := range ops {
		s.operateLocked(op)
	}
	return nil
}

// Limits implements processlog.Operations.
func (s *Store) Limits(ctx context.Context, name string) (limits []processlog.StoredLimit, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, row := range s.limits {
		if at.key == "" && (name == "" || at.limit == name) {
			limits = append(limits, row.stored)
		}
	}
	slices.SortFunc(limits, func(a, b processlog.StoredLimit) int { return strings.Compare(a.Name, b.Name) })
	return limits, ctx.Err()
}

// LimitedKey implements processlog.Operations.
func (s *Store) LimitedKey(ctx context.Context, limit processlog.StoredLimit, key string) (k processlog.LimitedKey, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	values, row, now := limit.InForce(), s.limits[limitKey{limit.Name, key}], s.nowLocked()
	k.Starts, k.Next = (&processlog.StartLimit{Interval: values.Interval, Burst: values.Burst}).Free(row.leadIn(now, values.Interval))
	for _, h := range row.holders {
		entry := s.rows[h.id]
		if values.Concurrent > 0 && entry != nil && entry.committed != nil && entry.committed.entry.Version == h.version && entry.committed.isLeased(now) {
			k.Holders = append(k.Holders, processlog.PermitHolder{ID: h.id, BusinessType: entry.committed.entry.BusinessType})
		}
	}
	slices.SortFunc(k.Holders, func(a, b processlog.PermitHolder) int { return a.ID.Compare(b.ID) })
	return k, ctx.Err()
}

// endedLocked raises the version of an entry whose lease has ended, so that its process can no longer renew the lease.
func (p *permits) endedLocked(h holder) bool {
	row := p.s.rows[h.id]
	switch {
	case row == nil || row.committed == nil || row.committed.entry.Version != h.version:
		return true
	case row.committed.isLeased(p.now) || !row.freeFor(nil):
		return false
	}
	p.s.writeLocked(nil, row, row.committed.successor(row.committed.token, p.now), nil)
	return true
}

// storedFor returns false for an entry that needs no permit.
func (p *permits) storedFor(id processlog.ID) (at limitKey, row limitRow, isLimited bool) {
	if p == nil || !p.keyOf[id].isLimited {
		return limitKey{}, limitRow{}, false
	}
	at = limitKey{p.limit.Name, p.keyOf[id].key}
	return at, p.s.limits[at], true
}

func (p *permits) roomOf(row limitRow) processlog.Room {
	r := processlog.Room{Permits: processlog.Unbounded, Granted: row.granted}
	r.Starts, r.Next = p.limit.Free(row.leadIn(p.now, p.limit.Interval))
	if p.limit.Concurrent > 0 {
		r.Permits = max(0, p.limit.Concurrent-len(row.holders))
	}
	return r
}

func (p *permits) lacksPermit(row *processlog.Row) bool {
	_, stored, isLimited := p.storedFor(row.ID)
	if !isLimited {
		return false
	}
	room := p.roomOf(stored)
	return room.Starts == 0 || room.Permits == 0
}

func (p *permits) isRefused(row *processlog.Row) bool { return p != nil && !p.keyOf[row.ID].ok }

func (p *permits) newLimited(row *processlog.Row) processlog.Limited {
	at, stored, _ := p.storedFor(row.ID)
	l := processlog.Limited{ID: row.ID, Key: at.key}
	if room := p.roomOf(stored); room.Starts == 0 {
		l.In = room.Next
	}
	return l
}

func (p *permits) takePermit(claimed *version) {
	at, stored, isLimited := p.storedFor(claimed.entry.ID)
	if !isLimited {
		return
	}
	p.takeStarts(&stored, 1)
	p.advance[at.key] = 0
	if p.limit.Concurrent > 0 {
		stored.holders = append(slices.Clone(stored.holders), holder{claimed.entry.ID, claimed.entry.Version})
	}
	p.s.limits[at] = stored
}

func (p *permits) takeStarts(row *limitRow, n int) {
	now := p.now * int64(time.Millisecond)
	row.arrivalTime = now + int64(max(0, row.leadIn(p.now, p.limit.Interval))+time.Duration(n)*p.limit.Interval)
	row.interval, row.grantedAt = p.limit.Interval, p.now
	row.granted += int64(n)
}

func (p *permits) takeAdvance() {
	if p == nil {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(p.advance)) {
		at := limitKey{p.limit.Name, key}
		row := p.s.limits[at]
		if n := p.limit.TakeAdvance(key, p.roomOf(row).Starts); n > 0 {
			p.takeStarts(&row, n)
			p.s.limits[at], p.advance[key] = row, n
		}
	}
}

func (p *permits) roomsByKey() map[string]processlog.Room {
	if p == nil || len(p.claimableKeys) == 0 {
		return nil
	}
	rooms := make(map[string]processlog.Room, len(p.claimableKeys))
	for key := range p.claimableKeys {
		room := p.roomOf(p.s.limits[limitKey{p.limit.Name, key}])
		room.Advance = p.advance[key]
		rooms[key] = room
	}
	return rooms
}
