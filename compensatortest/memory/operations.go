package memory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

var _ processlog.Operations = (*Store)(nil)

type operations struct {
	cases    map[processlog.ID]processlog.Case
	done     []processlog.AuditLogRecord
	settings map[string]processlog.Setting
	batches  []processlog.BulkBatch // the oldest first
	stats    statistics

	instances map[processlog.InstanceID]processlog.Instance
}

func newOperations() operations {
	return operations{cases: make(map[processlog.ID]processlog.Case), settings: make(map[string]processlog.Setting), stats: newStatistics(),
		instances: make(map[processlog.InstanceID]processlog.Instance)}
}

func (o operations) clone() operations {
	return operations{maps.Clone(o.cases), slices.Clone(o.done), maps.Clone(o.settings), slices.Clone(o.batches), o.stats.clone(), maps.Clone(o.instances)}
}

// CheckOperations implements processlog.Operations. It finds no problem, because no table can be missing.
func (s *Store) CheckOperations(ctx context.Context) error { return ctx.Err() }

// openCaseLocked keeps the owner of a reopened case.
func (s *Store) openCaseLocked(v *version, draft processlog.CaseDraft) {
	now := s.nowLocked()
	c, isReopened := s.ops.cases[v.entry.ID]
	if isReopened {
		c.Version++
	}
	c.EntryID, c.Epoch, c.Kind, c.Fingerprint = v.entry.ID, v.entry.Epoch, draft.Kind, draft.Fingerprint
	if !isReopened {
		c.BusinessType, c.BusinessID = v.entry.BusinessType, v.entry.BusinessID
	}
	c.EndedBy, c.Error, c.Amount = v.entry.EndedBy, processlog.FitCaseError(cmp.Or(draft.Error, v.entry.LastError)), processlog.Amount{}
	if draft.Amount.Known() {
		c.Amount = draft.Amount
	}
	c.OpenedAt, c.DueAt, c.ClosedAt = millisToTime(now), millisToTime(dueTime(now, draft.Due)), time.Time{}
	s.ops.cases[c.EntryID] = c
}

func (s *Store) closeCaseLocked(id processlog.ID) {
	if c, isFound := s.ops.cases[id]; isFound && c.ClosedAt.IsZero() {
		c.ClosedAt = millisToTime(s.nowLocked())
		c.Version++
		s.ops.cases[id] = c
	}
}

// ChangeAll implements processlog.Operations.
func (s *Store) ChangeAll(ctx context.Context, seen []processlog.Version, change processlog.Change) ([]processlog.Changed, error) {
	return s.changeSeen(ctx, seen, change, nil, s.closeCaseAfterLocked, nil)
}

func (s *Store) closeCaseAfterLocked(before processlog.Row) {
	if state := s.rows[before.ID].committed.entry.State; before.State == processlog.Dead && state != processlog.Dead {
		s.closeCaseLocked(before.ID)
	}
}

// ChangeBulk implements processlog.Operations.
func (s *Store) ChangeBulk(ctx context.Context, seen []processlog.Version, change processlog.Change, batch processlog.BulkBatch) (record uint64, answers []processlog.Changed, err error) {
	begin := func() error {
		isLater := func(b processlog.BulkBatch) bool { return b.ID == batch.ID && b.Record > batch.Follows }
		switch {
		case batch.Follows > 0 && slices.ContainsFunc(s.ops.batches, isLater), batch.Once && batch.ID.Record == 0 && s.firstOfBulkLocked(batch.ID.Secret) > 0:
			return fmt.Errorf("change the entries of the action %d: %w", batch.ID.Record, processlog.ErrChanged)
		}
		return nil
	}
	answers, err = s.changeSeen(ctx, seen, change, begin, s.closeCaseAfterLocked, func(answers []processlog.Changed) {
		batch = batch.With(seen, answers, change)
		batch.At = millisToTime(s.nowLocked())
		batch.Record, batch.Follows = uint64(len(s.ops.batches))+1, 0
		batch.ID.Record = cmp.Or(batch.ID.Record, batch.Record)
		s.ops.batches = append(s.ops.batches, batch)
	})
	return batch.Record, answers, err
}

func (s *Store) firstOfBulkLocked(secret string) uint64 {
	for _, b := range s.ops.batches {
		if b.ID.Secret == secret && b.ID.Record == b.Record {
			return b.Record
		}
	}
	return 0
}

// Bulk implements processlog.Operations.
func (s *Store) Bulk(ctx context.Context, id processlog.BulkID) (batches []processlog.BulkBatch, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id.Record = cmp.Or(id.Record, s.firstOfBulkLocked(id.Secret))
	for _, batch := range s.ops.batches {
		if batch.ID == id {
			batches = append(batches, batch)
		}
	}
	if len(batches) == 0 {
		return nil, processlog.ErrNotFound
	}
	if surplus := len(batches) - 1 - processlog.MaxBulkBatches; surplus > 0 {
		batches = slices.Delete(batches, 1, 1+surplus)
	}
	return batches, nil
}

// MatchingIDs implements processlog.Operations.
func (s *Store) MatchingIDs(ctx context.Context, m processlog.Match) (ids []processlog.ID, err error) {
	if err := cmp.Or(ctx.Err(), m.Validate()); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.nowLocked()
	for _, v := range s.matchingLocked(func(v *version) bool {
		id, row := v.entry.ID, v.row(now)
		var ofEntry *processlog.Case
		if c, isFound := s.ops.cases[id]; isFound {
			ofEntry = &c
		}
		return id.Compare(m.After) > 0 && (m.UpTo.IsZero() || id.Compare(m.UpTo) <= 0) && m.Admits(&row, ofEntry)
	}) {
		if len(ids) < m.Limit {
			ids = append(ids, v.entry.ID)
		}
	}
	return ids, nil
}

func (s *Store) eraseOperationsLocked(id processlog.ID) {
	if c, isFound := s.ops.cases[id]; isFound {
		c.Error = ""
		c.Version++
		s.ops.cases[id] = c
	}
	for i := range s.ops.done {
		if s.ops.done[i].EntryID == id {
			s.ops.done[i].Reason = ""
		}
	}
}

// Outlines implements processlog.Operations.
func (s *Store) Outlines(ctx context.Context, ids []processlog.ID) ([]processlog.Row, error) {
	rows, err := s.Load(ctx, ids)
	for i := range rows {
		rows[i].Content = nil
	}
	return rows, err
}

// OutlinesByKey implements processlog.Operations.
func (s *Store) OutlinesByKey(ctx context.Context, keys []string) ([]processlog.Row, error) {
	s.mu.Lock()
	var ids []processlog.ID
	for _, v := range s.matchingLocked(func(v *version) bool { return slices.Contains(keys, string(v.entry.IdempotencyKey)) }) {
		ids = append(ids, v.entry.ID)
	}
	s.mu.Unlock()
	return s.Outlines(ctx, ids)
}

// DeadWithoutCase implements processlog.Operations.
func (s *Store) DeadWithoutCase(ctx context.Context, maxAge time.Duration, limit int) ([]processlog.Row, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.nowLocked()
	var rows []processlog.Row
	for _, v := range s.matchingLocked(func(v *version) bool {
		c, isFound := s.ops.cases[v.entry.ID]
		isRecent := maxAge == 0 || v.nextAt > now-maxAge.Milliseconds()
		return v.entry.State == processlog.Dead && isRecent && (!isFound || !c.ClosedAt.IsZero())
	}) {
		if len(rows) < limit {
			rows = append(rows, v.fullRow(now))
		}
	}
	return rows, nil
}

// KeepAttempts implements processlog.Operations. The store always keeps failed attempts.
func (s *Store) KeepAttempts(ctx context.Context) error { return ctx.Err() }

// AttemptsOf implements processlog.Operations.
func (s *Store) AttemptsOf(ctx context.Context, id processlog.ID) ([]processlog.FailedAttempt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	row := s.rows[id]
	if row == nil || row.committed == nil {
		return nil, ctx.Err()
	}
	return slices.Clone(row.committed.attempts), ctx.Err()
}

// FaultsOf implements processlog.Operations.
func (s *Store) FaultsOf(ctx context.Context, ids []processlog.ID) (map[processlog.ID]processlog.Faults, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := make(map[processlog.ID]processlog.Faults)
	for _, id := range ids {
		if row := s.rows[id]; row != nil && row.committed != nil && row.committed.faults != (processlog.Faults{}) {
			found[id] = row.committed.faults
		}
	}
	return found, ctx.Err()
}

// OpenCases implements processlog.Operations.
func (s *Store) OpenCases(ctx context.Context, rows []processlog.Row, cases []processlog.CaseDraft) (opened int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, seen := range rows {
		row := s.rows[seen.ID]
		if row == nil || row.committed == nil || !row.freeFor(nil) || row.committed.entry.Version != seen.Version || row.committed.entry.State != processlog.Dead {
			continue
		}
		s.openCaseLocked(row.committed, cases[i])
		opened++
	}
	return opened, nil
}

// CloseCases implements processlog.Operations.
func (s *Store) CloseCases(ctx context.Context, limit int) (closed int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, c := range s.ops.cases {
		row := s.rows[id]
		dead := row != nil && row.committed != nil && row.committed.entry.State == processlog.Dead
		if c.ClosedAt.IsZero() && !dead && closed < limit {
			s.closeCaseLocked(id)
			closed++
		}
	}
	return closed, nil
}

// ForgetCases implements processlog.Operations.
func (s *Store) ForgetCases(ctx context.Context, age time.Duration, limit int) (forgotten int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, c := range s.ops.cases {
		if !c.ClosedAt.IsZero() && s.nowLocked()-c.ClosedAt.UnixMilli() > age.Milliseconds() && forgotten < limit {
			delete(s.ops.cases, id)
			forgotten++
		}
	}
	return forgotten, nil
}

// CasesOf implements processlog.Operations.
func (s *Store) CasesOf(ctx context.Context, ids []processlog.ID) (cases []processlog.Case, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if c, isFound := s.ops.cases[id]; isFound {
			cases = append(cases, c)
		}
	}
	return cases, nil
}

func (s *Store) openCasesLocked() []processlog.Case {
	var openCases []processlog.Case
	for _, c := range s.ops.cases {
		if c.ClosedAt.IsZero() {
			openCases = append(openCases, c)
		}
	}
	slices.SortFunc(openCases, func(a, b processlog.Case) int { return cmp.Or(a.DueAt.Compare(b.DueAt), a.EntryID.Compare(b.EntryID)) })
	return openCases
}

// Cases implements processlog.Operations.
func (s *Store) Cases(ctx context.Context, f processlog.CaseFilter) (page processlog.CasePage, err error) {
	limit, err := pageLimit(ctx, f.Limit)
	if err != nil {
		return page, err
	}
	var dueMS int64
	var afterID uint64
	if f.Cursor != "" {
		if _, err := fmt.Sscanf(f.Cursor, "%d-%d", &dueMS, &afterID); err != nil {
			return page, &processlog.FieldError{Field: "cursor", Reason: fmt.Sprintf("%q is none of this listing", f.Cursor)}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.openCasesLocked() {
		at, id := c.DueAt.UnixMilli(), c.EntryID.Row()
		switch {
		case f.Cursor != "" && (at < dueMS || at == dueMS && id <= afterID):
		case f.BusinessType != "" && c.BusinessType != f.BusinessType, !matchesTypes(f.BusinessTypes, c.BusinessType):
		case f.Fingerprint != processlog.Fingerprint{} && c.Fingerprint != f.Fingerprint:
		case f.Kind != 0 && c.Kind != f.Kind, (f.Unowned || f.Owner != "") && c.Owner != f.Owner:
		case len(page.Cases) == limit:
			last := page.Cases[limit-1]
			page.Next = fmt.Sprintf("%d-%d", last.DueAt.UnixMilli(), last.EntryID.Row())
			return page, nil
		default:
			page.Cases = append(page.Cases, c)
		}
	}
	return page, nil
}

// matchesTypes returns true for a nil list.
func matchesTypes(types []string, businessType string) bool {
	return types == nil || slices.Contains(types, businessType)
}

func pageLimit(ctx context.Context, limit int) (int, error) {
	if limit < 0 || limit > 1000 {
		return 0, &processlog.FieldError{Field: "limit", Reason: fmt.Sprintf("%d: want 1 to 1000, or 0 for 50", limit)}
	}
	return cmp.Or(limit, 50), ctx.Err()
}

// CaseGroups implements processlog.Operations.
func (s *Store) CaseGroups(ctx context.Context, businessTypes []string, failure processlog.Fingerprint) ([]processlog.CaseGroup, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	type key struct {
		businessType string
		fingerprint  processlog.Fingerprint
		currency     string
	}
	groups := make(map[key]processlog.CaseGroup)
	for _, c := range s.openCasesLocked() {
		if !matchesTypes(businessTypes, c.BusinessType) || failure != (processlog.Fingerprint{}) && c.Fingerprint != failure {
			continue
		}
		k := key{c.BusinessType, c.Fingerprint, c.Amount.Currency}
		g := groups[k]
		if g.N == 0 {
			g = processlog.CaseGroup{BusinessType: c.BusinessType, Fingerprint: c.Fingerprint, Currency: c.Amount.Currency, First: c.OpenedAt}
		}
		g.N++
		g.Sum += c.Amount.Minor
		if c.OpenedAt.Before(g.First) {
			g.First = c.OpenedAt
		}
		if c.OpenedAt.After(g.Last) {
			g.Last = c.OpenedAt
		}
		if c.EntryID.Compare(g.Example) > 0 {
			g.Example, g.Error, g.Kind = c.EntryID, c.Error, c.Kind
		}
		groups[k] = g
	}
	found := slices.SortedFunc(maps.Values(groups), func(a, b processlog.CaseGroup) int {
		return cmp.Or(cmp.Compare(b.N, a.N), a.Example.Compare(b.Example))
	})
	return found[:min(len(found), 1000)], nil
}

// CountCases implements processlog.Operations.
func (s *Store) CountCases(ctx context.Context) (counts []processlog.CaseCount, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.openCasesLocked() {
		i := slices.IndexFunc(counts, func(count processlog.CaseCount) bool {
			return count.BusinessType == c.BusinessType && count.Kind == c.Kind
		})
		if i < 0 {
			counts, i = append(counts, processlog.CaseCount{BusinessType: c.BusinessType, Kind: c.Kind}), len(counts)
		}
		counts[i].N++
	}
	return counts, ctx.Err()
}

// maxTypesRead is the number of newest operations that the method Types reads, as in the other stores.
const maxTypesRead = 1000

// Types implements processlog.Operations.
func (s *Store) Types(ctx context.Context) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	types := make(map[string]bool)
	for _, v := range s.committedLocked() {
		types[v.entry.BusinessType] = true
	}
	for _, r := range s.ops.done[max(0, len(s.ops.done)-maxTypesRead):] {
		if r.BusinessType != "" {
			types[r.BusinessType] = true
		}
	}
	for name := range s.ops.settings {
		if businessType, hasPrefix := strings.CutPrefix(name, processlog.Pause("").Name); hasPrefix && businessType != "" {
			types[businessType] = true
		}
	}
	return slices.Sorted(maps.Keys(types)), ctx.Err()
}

// AssignCases implements processlog.Operations.
func (s *Store) AssignCases(ctx context.Context, seen []processlog.SeenCase, owner string, op processlog.Operation) ([]error, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	results := make([]error, len(seen))
	for i, v := range seen {
		var now *processlog.Case
		c, isFound := s.ops.cases[v.EntryID]
		if isFound {
			now = &c
		}
		if results[i] = v.Assigned(now); results[i] != nil {
			continue
		}
		c.Owner = owner
		c.Version++
		s.ops.cases[v.EntryID] = c
		op.EntryID, op.BusinessType = v.EntryID, c.BusinessType
		s.operateLocked(op)
	}
	return results, nil
}

// Operate implements processlog.Operations.
func (s *Store) Operate(ctx context.Context, op processlog.Operation) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.operateLocked(op)
	return nil
}

func (s *Store) operateLocked(op processlog.Operation) {
	s.ops.done = append(s.ops.done, processlog.AuditLogRecord{At: millisToTime(s.nowLocked()), Actor: op.Actor, Action: op.Action, Refused: op.Refused,
		EntryID: op.EntryID, BusinessType: op.BusinessType, Subject: op.Subject, Reason: op.Reason})
}

// AuditLog implements processlog.Operations. Its cursor is the number of older records that are not listed yet.
func (s *Store) AuditLog(ctx context.Context, f processlog.AuditLogFilter) (page processlog.AuditLogPage, err error) {
	limit, err := pageLimit(ctx, f.Limit)
	if err != nil {
		return page, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	entries := s.auditLogLocked(f.EachEntry || !f.EntryID.IsZero())
	left := len(entries)
	if f.Cursor != "" {
		if _, err := fmt.Sscanf(f.Cursor, "%d-0", &left); err != nil || left < 0 || left > len(entries) || !strings.HasSuffix(f.Cursor, "-0") {
			return page, &processlog.FieldError{Field: "cursor", Reason: fmt.Sprintf("%q is none of this listing", f.Cursor)}
		}
	}
	for ; left > 0; left-- {
		r := entries[left-1]
		admitted := matchesTypes(f.BusinessTypes, r.BusinessType) && (f.EntryID.IsZero() || r.EntryID == f.EntryID) && (f.Actor == "" || r.Actor == f.Actor) && (f.Action == "" || r.Action == f.Action) &&
			(f.From.IsZero() || !r.At.Before(f.From)) && (f.To.IsZero() || r.At.Before(f.To))
		if !admitted {
			continue
		}
		if len(page.Records) == limit {
			page.Next = fmt.Sprintf("%d-0", left)
			break
		}
		page.Records = append(page.Records, r)
	}
	return page, nil
}

// auditLogLocked lists the oldest record first. If eachEntry is true, each entry of a batch also has its own record.
func (s *Store) auditLogLocked(eachEntry bool) []processlog.AuditLogRecord {
	entries := slices.Clone(s.ops.done)
	type changedEntry struct {
		id      processlog.ID
		version uint64
	}
	isInBatch := make(map[changedEntry]bool)
	for _, batch := range s.ops.batches {
		for _, e := range batch.Entries {
			isInBatch[changedEntry{e.ID, e.Version}] = !eachEntry
		}
	}
	for id, records := range s.audit {
		for _, a := range records {
			if isInBatch[changedEntry{id, a.After.Version}] {
				continue
			}
			r := processlog.AuditLogRecord{At: a.At, Actor: a.Actor, Action: string(a.Action), EntryID: id, Reason: a.Reason}
			if !id.IsZero() {
				before, after := a.Before, a.After
				r.Before, r.After = &before, &after
			}
			if row := s.rows[id]; row != nil && row.committed != nil {
				r.BusinessType = row.committed.entry.BusinessType
			}
			entries = append(entries, r)
		}
	}
	for _, batch := range s.ops.batches {
		id := batch.ID
		entries = append(entries, processlog.AuditLogRecord{At: batch.At, Actor: batch.Actor, Action: string(batch.Action), Reason: batch.Reason,
			Subject: processlog.EntryCount(len(batch.Entries)), Bulk: &id, N: len(batch.Entries)})
	}
	slices.SortStableFunc(entries, func(a, b processlog.AuditLogRecord) int {
		return cmp.Or(a.At.Compare(b.At), a.EntryID.Compare(b.EntryID))
	})
	return entries
}

// Settings implements processlog.Operations.
func (s *Store) Settings(ctx context.Context) ([]processlog.Setting, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	settings := slices.SortedFunc(maps.Values(s.ops.settings), func(a, b processlog.Setting) int { return cmp.Compare(a.Name, b.Name) })
	for i := range settings {
		settings[i].ReadAt = millisToTime(s.nowLocked())
	}
	return settings, ctx.Err()
}

// PutSetting implements processlog.Operations.
func (s *Store) PutSetting(ctx context.Context, v processlog.Setting, op processlog.Operation) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ops.settings[v.Name].Version != v.Version {
		return fmt.Errorf("set %q: %w", v.Name, processlog.ErrChanged)
	}
	v.Version++
	v.At = millisToTime(s.nowLocked())
	s.ops.settings[v.Name] = v
	s.operateLocked(op)
	return nil
}
