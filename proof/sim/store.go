package sim

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/compensatortest/memory"
	"github.com/compensator-go/compensator/processlog"
)

// Every statement is a step.
type gatedStore struct {
	from  *instance
	store *memory.Store
}

var _ processlog.Store = (*gatedStore)(nil)

type args []byte

func (a args) id(id compensator.EntryID) args {
	return append(strconv.AppendUint(a, id.Row(), 10), ' ')
}
func (a args) num(n uint64) args  { return append(strconv.AppendUint(a, n, 10), ' ') }
func (a args) text(s string) args { return append(append(a, s...), ' ') }

// ids appends the ids in ascending order, because goroutines pass them in random order.
func (a args) ids(ids []compensator.EntryID) args {
	sorted := slices.SortedFunc(slices.Values(ids), func(a, b compensator.EntryID) int { return cmp.Compare(a.Row(), b.Row()) })
	for _, id := range sorted {
		a = a.id(id)
	}
	return a
}

func idsOf[T any](items []T, id func(T) compensator.EntryID) string {
	ids := make([]compensator.EntryID, len(items))
	for i, item := range items {
		ids[i] = id(item)
	}
	return string(make(args, 0, 32).ids(ids))
}

func (s *gatedStore) Check(ctx context.Context) error { return s.store.Check(ctx) }

func (s *gatedStore) Fingerprint(ctx context.Context) (string, error) {
	return s.store.Fingerprint(ctx)
}

func (s *gatedStore) Close() error { return nil }

func (s *gatedStore) Begin(ctx context.Context) (tx processlog.Transaction, err error) {
	began, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	return began, nil
}

func (s *gatedStore) begin(ctx context.Context) (*gatedTx, error) {
	var inner *memory.Tx
	err := s.from.step(ctx, classRead, "begin", "", func() (err error) {
		inner, err = s.store.BeginTx(ctx)
		return err
	})
	if err != nil {
		if inner != nil {
			_ = inner.Rollback() // the server rolls back when the connection breaks
		}
		return nil, err
	}
	tx := &gatedTx{Tx: inner, from: s.from}
	s.from.own(tx)
	return tx, nil
}

func (s *gatedStore) Probe(ctx context.Context, tx compensator.Tx) error {
	return s.from.step(ctx, classRead, "probe", "", func() error { return s.store.Probe(ctx, tx) })
}

func (s *gatedStore) Insert(ctx context.Context, tx compensator.Tx, drafts []processlog.Draft, proven bool) (answers []processlog.Inserted, err error) {
	key := make(args, 0, 64)
	for _, d := range drafts {
		key = key.text(string(d.IdempotencyKey))
	}
	op := &operation{kind: opInsert, from: s.from, drafts: drafts}
	s.from.w.oracle.noteOperation(drafts[0].Token, op)
	if tx := gatedOf(tx); tx != nil {
		tx.inserts = append(tx.inserts, op)
	}
	err = s.from.stepIn(ctx, tx, "insert", key, func() (err error) {
		answers, err = s.store.Insert(ctx, tx, drafts, proven)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(drafts) > 1 && s.from.w.plan.bulkIDsHidden {
		// Hide the ids, because MySQL returns no ids for an insert of several rows.
		for i := range answers {
			if !answers[i].Duplicate {
				answers[i].ID = compensator.EntryID{}
			}
		}
	}
	return answers, nil
}

func (s *gatedStore) IDs(ctx context.Context, tx compensator.Tx, keys []compensator.IdempotencyKey) (ids map[compensator.IdempotencyKey]compensator.EntryID, err error) {
	key := make(args, 0, 64)
	for _, k := range slices.Sorted(slices.Values(keys)) {
		key = key.text(string(k))
	}
	err = s.from.step(ctx, classRead, "ids", string(key), func() (err error) {
		ids, err = s.store.IDs(ctx, tx, keys)
		return err
	})
	if err != nil {
		return nil, err
	}
	return ids, nil
}

func (s *gatedStore) Load(ctx context.Context, ids []compensator.EntryID) (rows []processlog.Row, err error) {
	err = s.from.step(ctx, classRead, "load", string(make(args, 0, 32).ids(ids)), func() (err error) {
		rows, err = s.store.Load(ctx, ids)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.from.w.oracle.noteRows(s.from, rows)
	return rows, nil
}

func (s *gatedStore) Ends(ctx context.Context, ids []compensator.EntryID) (rows []processlog.Row, err error) {
	err = s.from.step(ctx, classRead, "ends", string(make(args, 0, 32).ids(ids)), func() (err error) {
		rows, err = s.store.Ends(ctx, ids)
		return err
	})
	return rows, err
}

func (s *gatedStore) Versions(ctx context.Context, ids []compensator.EntryID) (versions []processlog.Version, err error) {
	err = s.from.step(ctx, classRead, "versions", string(make(args, 0, 32).ids(ids)), func() (err error) {
		versions, err = s.store.Versions(ctx, ids)
		s.from.w.oracle.readCounts(func(*oracle) { s.from.compared = time.Now() })
		return err
	})
	if err != nil {
		return nil, err
	}
	return versions, nil
}

func (s *gatedStore) Note(ctx context.Context, action processlog.Action, by admin.AuditInfo) error {
	return s.from.step(ctx, classWrite, "note", string(action), func() error {
		s.from.w.oracle.noteLogAction(action)
		return s.store.Note(ctx, action, by)
	})
}

func (s *gatedStore) Resolve(ctx context.Context, ref compensator.Ref) (row processlog.Row, err error) {
	var name string
	switch ref := ref.(type) {
	case compensator.EntryID:
		name = ref.String()
	case compensator.IdempotencyKey:
		name = string(ref)
	}
	err = s.from.step(ctx, classRead, "resolve", name, func() (err error) {
		row, err = s.store.Resolve(ctx, ref)
		return err
	})
	if err != nil {
		return processlog.Row{}, err
	}
	return row, nil
}

func (s *gatedStore) Claim(ctx context.Context, want []processlog.Wanted, token processlog.Token, lease time.Duration, accept func(*processlog.Row) bool) (found processlog.Claimed, err error) {
	return s.claim(ctx, want, token, accept, func(accept func(*processlog.Row) bool) (processlog.Claimed, error) {
		return s.store.Claim(ctx, want, token, lease, accept)
	})
}

func (s *gatedStore) ClaimLimited(ctx context.Context, want []processlog.Wanted, token processlog.Token, lease time.Duration, limit processlog.StartLimit, accept func(*processlog.Row) bool) (processlog.Claimed, error) {
	return s.claim(ctx, want, token, accept, func(accept func(*processlog.Row) bool) (processlog.Claimed, error) {
		found, err := s.store.ClaimLimited(ctx, want, token, lease, limit, accept)
		s.from.w.oracle.checkGrants(&limit, found, err)
		return found, err
	})
}

func (s *gatedStore) ReturnStarts(ctx context.Context, limit processlog.StartLimit, unused map[string]processlog.Unused) error {
	return s.from.step(ctx, classOnce, "return-starts", limit.Name, func() error {
		err := s.store.ReturnStarts(ctx, limit, unused)
		s.from.w.oracle.noteReturnedStarts(&limit, unused, err)
		return err
	})
}

func (s *gatedStore) PurgeLimitKeys(ctx context.Context, idle time.Duration) (deleted int, err error) {
	err = s.from.step(ctx, classOnce, "purge-limit-keys", "", func() error {
		deleted, err = s.store.PurgeLimitKeys(ctx, idle)
		s.from.w.oracle.readCounts(func(o *oracle) { o.sights[sawLimitKeys] += deleted })
		return err
	})
	return deleted, err
}

func (s *gatedStore) CheckLimits(ctx context.Context) error { return s.store.CheckLimits(ctx) }

func (s *gatedStore) claim(ctx context.Context, want []processlog.Wanted, token processlog.Token, accept func(*processlog.Row) bool, send func(accept func(*processlog.Row) bool) (processlog.Claimed, error)) (found processlog.Claimed, err error) {
	s.from.w.oracle.checkContinues(s.from, "claims")
	key := idsOf(want, func(w processlog.Wanted) compensator.EntryID { return w.ID })
	op := &operation{kind: opClaim, from: s.from, want: slices.Clone(want)}
	s.from.w.oracle.noteOperation(token, op)
	var done time.Time
	err = s.from.step(ctx, classOnce, "claim", key, func() (err error) {
		done = time.Now()
		s.from.w.oracle.readCounts(func(o *oracle) { o.checkProcessMarkLocked(s.from, token) })
		s.from.w.oracle.numberClaim(op)
		found, err = send(func(row *processlog.Row) bool { return s.from.w.oracle.noteAccept(s.from, row, accept(row)) })
		return err
	})
	if err != nil {
		s.from.w.oracle.readCounts(func(*oracle) { op.failed = true })
		return processlog.Claimed{}, err
	}
	s.from.w.oracle.noteRows(s.from, found.Mine)
	s.from.w.oracle.noteClaimAnswer(s.from, found.Mine, done)
	return found, nil
}

func (s *gatedStore) Release(ctx context.Context, ids []compensator.EntryID, token processlog.Token) (left processlog.Unreleased, err error) {
	s.from.w.oracle.noteRelease(token, ids...)
	err = s.from.stepUnder(ctx, token, classWrite, "release", string(make(args, 0, 32).ids(ids)), func() (err error) {
		left, err = s.store.Release(ctx, ids, token)
		return err
	})
	if err != nil {
		return processlog.Unreleased{}, err
	}
	return left, nil
}

func (s *gatedStore) Due(ctx context.Context, businessType string, limit int) (ids []compensator.EntryID, err error) {
	err = s.from.step(ctx, classRead, "due", string(make(args, 0, 16).text(businessType).num(uint64(limit))), func() (err error) {
		ids, err = s.store.Due(ctx, businessType, limit)
		return err
	})
	if err != nil {
		return nil, err
	}
	return ids, nil
}

func (s *gatedStore) Renew(ctx context.Context, held []processlog.Held, lease time.Duration) (left processlog.Unrenewed, err error) {
	key := idsOf(held, func(h processlog.Held) compensator.EntryID { return h.ID })
	err = s.from.step(ctx, classWrite, "renew", key, func() (err error) {
		left, err = s.store.Renew(ctx, held, lease)
		return err
	})
	if err != nil {
		return processlog.Unrenewed{}, err
	}
	s.from.w.oracle.noteLostLeases(s.from, held, left.Lost)
	return left, nil
}

func (s *gatedStore) Settle(ctx context.Context, token processlog.Token, outcomes []processlog.Outcome) (answers []processlog.Settled, err error) {
	key := idsOf(outcomes, func(o processlog.Outcome) compensator.EntryID { return o.ID })
	s.from.w.oracle.noteOperation(token, &operation{kind: opSettle, from: s.from, outcomes: slices.Clone(outcomes)})
	err = s.from.step(ctx, classWrite, "settle", key, func() (err error) {
		if answers, err = s.store.Settle(ctx, token, outcomes); err == nil {
			s.casesOpened(outcomes, answers)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	s.from.w.oracle.checkAnswers(s.from, outcomes, answers)
	return answers, nil
}

func (s *gatedStore) SettleTx(ctx context.Context, tx compensator.Tx, token processlog.Token, outcome processlog.Outcome) error {
	s.from.w.oracle.noteOperation(token, &operation{kind: opSettle, from: s.from, outcomes: []processlog.Outcome{outcome}})
	return s.from.stepIn(ctx, tx, "settletx", make(args, 0, 16).id(outcome.ID).num(outcome.Version), func() error {
		return s.store.SettleTx(ctx, tx, token, outcome)
	})
}

func (s *gatedStore) Change(ctx context.Context, tx compensator.Tx, proven bool, change processlog.Change) (before processlog.Row, err error) {
	s.from.w.oracle.noteOperation(change.Token, &operation{kind: opChange, from: s.from, change: change, inTx: tx != nil})
	do := func() (err error) {
		before, err = s.store.Change(ctx, tx, proven, change)
		return err
	}
	var name string
	switch ref := change.Ref.(type) {
	case compensator.EntryID:
		name = ref.String()
	case compensator.IdempotencyKey:
		name = string(ref)
	}
	if tx == nil {
		err = s.from.step(ctx, classOnce, "change", string(change.Action)+" "+name, do)
	} else {
		err = s.from.stepIn(ctx, tx, "change", make(args, 0, 32).text(string(change.Action)).text(name), do)
	}
	return before, err
}

func (s *gatedStore) RequeueAll(ctx context.Context, seen []processlog.Version, change processlog.Change) (answers []processlog.Changed, err error) {
	op := &operation{kind: opChange, from: s.from, change: change, seen: make(map[compensator.EntryID]uint64)}
	for _, v := range seen {
		op.seen[v.ID] = v.Number
	}
	s.from.w.oracle.noteOperation(change.Token, op)
	err = s.from.step(ctx, classOnce, "requeue", idsOf(seen, func(v processlog.Version) compensator.EntryID { return v.ID }), func() (err error) {
		answers, err = s.store.RequeueAll(ctx, seen, change)
		return err
	})
	return answers, err
}

func (s *gatedStore) Heads(ctx context.Context) (heads []processlog.Head, err error) {
	err = s.from.step(ctx, classRead, "heads", "", func() (err error) {
		heads, err = s.store.Heads(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return heads, nil
}

func (s *gatedStore) Scan(ctx context.Context, w processlog.Window) (page []processlog.Scheduled, err error) {
	key := make(args, 0, 48).text(w.BusinessType).text(w.State.String()).num(uint64(w.To)).id(w.After.ID)
	err = s.from.step(ctx, classRead, "scan", string(key), func() (err error) {
		page, err = s.store.Scan(ctx, w)
		return err
	})
	if err != nil {
		return nil, err
	}
	return page, nil
}

func (s *gatedStore) List(ctx context.Context, filter processlog.Filter) (processlog.Page, error) {
	if filter.BatchID == "" {
		return s.store.List(ctx, filter)
	}
	var page processlog.Page
	err := s.from.step(ctx, classRead, "list", filter.BatchID, func() (err error) {
		page, err = s.store.List(ctx, filter)
		return err
	})
	return page, err
}

func (s *gatedStore) History(ctx context.Context, id compensator.EntryID) (history []admin.AuditRecord, err error) {
	err = s.from.step(ctx, classRead, "history", id.String(), func() (err error) {
		history, err = s.store.History(ctx, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	return history, nil
}

func (s *gatedStore) Purge(ctx context.Context, businessType string, state compensator.State, age time.Duration, limit int) (n int, err error) {
	err = s.from.step(ctx, classWrite, "purge", businessType+state.String(), func() (err error) {
		s.from.w.oracle.readCounts(func(o *oracle) { o.keeping = businessType != "" })
		n, err = s.store.Purge(ctx, businessType, state, age, limit)
		return err
	})
	return n, err
}

func (s *gatedStore) Marks(ctx context.Context, businessTypes []string) (now time.Time, marks map[string]time.Time, err error) {
	if s.from.opening {
		return s.store.Marks(ctx, businessTypes)
	}
	err = s.from.step(ctx, classWrite, "marks", string(make(args, 0, 16).num(uint64(len(businessTypes)))), func() (err error) {
		now, marks, err = s.store.Marks(ctx, businessTypes)
		return err
	})
	if err != nil {
		return time.Time{}, nil, err
	}
	return now, marks, nil
}

func (s *gatedStore) BeginMark(ctx context.Context, businessType string) (begun bool, err error) {
	if s.from.opening {
		return s.store.BeginMark(ctx, businessType)
	}
	err = s.from.step(ctx, classWrite, "beginmark", businessType, func() (err error) {
		begun, err = s.store.BeginMark(ctx, businessType)
		return err
	})
	return begun, err
}

func (s *gatedStore) MoveMark(ctx context.Context, tx compensator.Tx, businessType string, from, to time.Time) (moved bool, err error) {
	key, move := make(args, 0, 48).text(businessType).num(uint64(to.UnixMilli())), func() (err error) {
		moved, err = s.store.MoveMark(ctx, tx, businessType, from, to)
		return err
	}
	if tx == nil {
		err = s.from.step(ctx, classWrite, "movemark", string(key), move)
	} else {
		err = s.from.stepIn(ctx, tx, "movemark", key, move)
	}
	return moved && err == nil, err
}
