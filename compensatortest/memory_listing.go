package compensatortest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// Heads implements processlog.Store.
func (s *MemoryStore) Heads(ctx context.Context) ([]processlog.Head, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.nowLocked()
	earliest := make(map[memoryGroup]processlog.Head)
	for _, v := range s.matchingLocked(func(v *version) bool { return !v.entry.State.Terminal() }) {
		head, found := earliest[v.group()]
		if dueIn := duration(v.nextAt - now); !found || dueIn < head.DueIn {
			earliest[v.group()] = processlog.Head{BusinessType: v.entry.BusinessType, State: v.entry.State, DueIn: dueIn}
		}
	}
	return sortedGroups(earliest), nil
}

// memoryGroup is what Heads and Count group by.
type memoryGroup struct {
	businessType string
	state        processlog.State
}

func (v *version) group() memoryGroup { return memoryGroup{v.entry.BusinessType, v.entry.State} }

// sortedGroups lists the values by type, then state.
func sortedGroups[T any](groups map[memoryGroup]T) []T {
	var keys []memoryGroup
	for key := range groups {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b memoryGroup) int {
		return cmp.Or(cmp.Compare(a.businessType, b.businessType), cmp.Compare(a.state, b.state))
	})
	var values []T
	for _, key := range keys {
		values = append(values, groups[key])
	}
	return values
}

// Scan implements processlog.Store.
func (s *MemoryStore) Scan(ctx context.Context, window processlog.Window) ([]processlog.Scheduled, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.nowLocked()
	var found []processlog.Scheduled
	for _, v := range s.matchingLocked(func(v *version) bool { return v.within(window, now) }) {
		found = append(found, v.scheduled(now))
	}
	slices.SortFunc(found, place)
	return found[:min(len(found), max(window.Limit, 0))], nil
}

func (v *version) within(window processlog.Window, now int64) bool {
	dueIn := duration(v.nextAt - now)
	return v.entry.BusinessType == window.BusinessType && v.entry.State == window.State && !v.entry.State.Terminal() &&
		window.From <= dueIn && dueIn < window.To && !(window.Free && v.leased(now)) &&
		(window.After.ID.IsZero() || place(v.scheduled(now), window.After) > 0)
}

// anyOr reports whether want, when it is given, is got.
func anyOr(want, got string) bool { return want == "" || want == got }

// Count implements processlog.Store.
func (s *MemoryStore) Count(ctx context.Context, filter processlog.CountFilter) ([]processlog.Count, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	const most = 1 << 30
	if filter.AtMost < 0 || filter.AtMost > most {
		return nil, &processlog.FieldError{Field: "AtMost", Reason: fmt.Sprintf("%d: want 0 to %d", filter.AtMost, most)}
	}
	atMost := cmp.Or(filter.AtMost, 10_000)
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.matchingLocked(func(v *version) bool {
		return anyOr(filter.BatchID, v.entry.BatchID) && anyOr(filter.BusinessType, v.entry.BusinessType)
	})
	more := false
	if filter.BatchID != "" && len(found) > atMost { // a batch is counted as a whole
		found, more = found[:atMost+1], true
	}
	counts := make(map[memoryGroup]processlog.Count)
	for _, v := range found {
		count := counts[v.group()]
		count.BusinessType, count.State = v.entry.BusinessType, v.entry.State
		count.More = more || count.N == atMost
		count.N = min(count.N+1, atMost)
		counts[v.group()] = count
	}
	return sortedGroups(counts), nil
}

// History implements processlog.Store: oldest first.
func (s *MemoryStore) History(ctx context.Context, id processlog.ID) ([]processlog.AuditRecord, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	history := slices.Clone(s.audit[id])
	for i := range history {
		history[i].Ago = duration(s.nowLocked() - history[i].At.UnixMilli())
	}
	return history, nil
}

// Note implements processlog.Store.
func (s *MemoryStore) Note(ctx context.Context, action processlog.Action, by processlog.ByHand) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.audit[processlog.ID{}] = append(s.audit[processlog.ID{}], processlog.AuditRecord{
		At: instant(s.nowLocked()), Action: action, Actor: by.Actor, Reason: by.Reason,
	})
	return nil
}

// Purge implements processlog.Store: by type, oldest first. It leaves rows that a transaction holds for another
// time.
func (s *MemoryStore) Purge(ctx context.Context, state processlog.State, age time.Duration, limit int) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if !slices.Contains(processlog.States[:], state) || !state.Terminal() {
		return 0, &processlog.FieldError{Field: "state", Reason: state.String() + ": want a terminal state"}
	}
	if age < 0 {
		return 0, &processlog.FieldError{Field: "age", Reason: age.String() + " is negative"}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.nowLocked()
	old := s.matchingLocked(func(v *version) bool { return v.entry.State == state && v.nextAt < now-processlog.Millis(age) })
	slices.SortFunc(old, func(a, b *version) int {
		return cmp.Or(cmp.Compare(a.entry.BusinessType, b.entry.BusinessType), place(a.scheduled(now), b.scheduled(now)))
	})
	purged, looked := 0, 0
	for i, v := range old {
		if i > 0 && v.entry.BusinessType != old[i-1].entry.BusinessType {
			looked = purged // rows that are held count against the limit within their type only
		}
		if looked++; looked > limit {
			continue
		}
		if row := s.rows[v.entry.ID]; row.freeFor(nil) {
			purged++
			s.removeLocked(row)
			s.watch(v.row(now), processlog.Row{})
		}
	}
	return purged, nil
}
