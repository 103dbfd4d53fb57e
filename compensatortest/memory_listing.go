package compensatortest

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/compensator-go/compensator"
)

// Heads implements compensator.Store.
func (s *MemoryStore) Heads(ctx context.Context) ([]compensator.Head, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := nowMS()
	earliest := make(map[memoryGroup]compensator.Head)
	for _, v := range s.matchingLocked(func(v *version) bool { return !v.entry.State.Terminal() }) {
		head, found := earliest[v.group()]
		if dueIn := duration(v.nextAt - now); !found || dueIn < head.DueIn {
			earliest[v.group()] = compensator.Head{BusinessType: v.entry.BusinessType, State: v.entry.State, DueIn: dueIn}
		}
	}
	return sortedGroups(earliest), nil
}

// memoryGroup is what Heads and Count group by.
type memoryGroup struct {
	businessType string
	state        compensator.State
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

// Scan implements compensator.Store.
func (s *MemoryStore) Scan(ctx context.Context, window compensator.Window) ([]compensator.Scheduled, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := nowMS()
	var found []compensator.Scheduled
	for _, v := range s.matchingLocked(func(v *version) bool { return v.within(window, now) }) {
		found = append(found, v.scheduled(now))
	}
	slices.SortFunc(found, place)
	return found[:min(len(found), max(window.Limit, 0))], nil
}

func (v *version) within(window compensator.Window, now int64) bool {
	dueIn := duration(v.nextAt - now)
	return v.entry.BusinessType == window.BusinessType && v.entry.State == window.State && !v.entry.State.Terminal() &&
		window.From <= dueIn && dueIn < window.To && !(window.Free && v.leased(now)) &&
		(window.After.ID.IsZero() || place(v.scheduled(now), window.After) > 0)
}

// List implements compensator.Store: by id, which is the order of creation.
func (s *MemoryStore) List(ctx context.Context, filter compensator.Filter) (compensator.Page, error) {
	if err := ctx.Err(); err != nil {
		return compensator.Page{}, err
	}
	from, err := parseCursor(filter)
	if err != nil {
		return compensator.Page{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.matchingLocked(func(v *version) bool { return v.listed(filter) && from(v.entry.ID) })
	if filter.Newest {
		slices.Reverse(found)
	}
	return listPage(found, min(cmp.Or(filter.Limit, 50), 1000)), nil
}

// parseCursor tells which ids come after the page that the cursor ended.
func parseCursor(filter compensator.Filter) (func(compensator.EntryID) bool, error) {
	if filter.Cursor == "" {
		return func(compensator.EntryID) bool { return true }, nil
	}
	last, err := compensator.ParseEntryID(filter.Cursor)
	if err != nil {
		return nil, &compensator.FieldError{Field: "Cursor", Reason: "not one of Page.Next"}
	}
	if filter.Newest {
		return func(id compensator.EntryID) bool { return compareIDs(id, last) < 0 }, nil
	}
	return func(id compensator.EntryID) bool { return compareIDs(id, last) > 0 }, nil
}

func listPage(found []*version, limit int) compensator.Page {
	var page compensator.Page
	now := nowMS()
	for _, v := range found[:min(len(found), limit)] {
		page.Entries = append(page.Entries, v.row(now).Entry)
	}
	if len(found) > limit {
		page.Next = found[limit-1].entry.ID.String()
	}
	return page
}

func (v *version) listed(filter compensator.Filter) bool {
	e := &v.entry
	return (len(filter.States) == 0 || slices.Contains(filter.States, e.State)) &&
		anyOr(filter.BusinessType, e.BusinessType) && anyOr(filter.BatchID, e.BatchID) &&
		anyOr(filter.BusinessID, e.BusinessID) && anyOr(filter.BusinessExtID, e.BusinessExtID) &&
		(filter.CreatedFrom.IsZero() || !e.CreatedAt.Before(filter.CreatedFrom)) &&
		(filter.CreatedTo.IsZero() || e.CreatedAt.Before(filter.CreatedTo))
}

// anyOr reports whether want, when it is given, is got.
func anyOr(want, got string) bool { return want == "" || want == got }

// Count implements compensator.Store.
func (s *MemoryStore) Count(ctx context.Context, filter compensator.CountFilter) ([]compensator.Count, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	atMost := cmp.Or(filter.AtMost, 10_000)
	counts := make(map[memoryGroup]compensator.Count)
	for _, v := range s.committedLocked() {
		if !anyOr(filter.BatchID, v.entry.BatchID) || !anyOr(filter.BusinessType, v.entry.BusinessType) {
			continue
		}
		count := counts[v.group()]
		count.BusinessType, count.State = v.entry.BusinessType, v.entry.State
		if count.N < atMost {
			count.N++
		} else {
			count.More = true
		}
		counts[v.group()] = count
	}
	return sortedGroups(counts), nil
}

// History implements compensator.Store: oldest first.
func (s *MemoryStore) History(ctx context.Context, id compensator.EntryID) ([]compensator.AuditRecord, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.audit[id]), nil
}

// Purge implements compensator.Store. It leaves rows that a transaction holds for another time, and refuses a
// state that is not terminal.
func (s *MemoryStore) Purge(ctx context.Context, state compensator.State, age time.Duration, limit int) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if !state.Terminal() {
		return 0, &compensator.FieldError{Field: "state", Reason: state.String() + " entries are not purged"}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := nowMS()
	old := s.matchingLocked(func(v *version) bool {
		return v.entry.State == state && v.nextAt < now-millis(age) && s.rows[v.entry.ID].holder == nil
	})
	old = old[:min(len(old), max(limit, 0))]
	for _, v := range old {
		s.removeLocked(s.rows[v.entry.ID])
		s.watch(v.row(now), compensator.Row{})
	}
	return len(old), nil
}
