package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/processlog"
)

const adminStream = 7766

// The person lists the dead entries, waits for the duration in thinks, and then acts on the listed entries.
type visit struct {
	at, thinks time.Duration
	whom       int
	action     admin.Right
	takes      bool
}

var adminActions = [...]admin.Right{admin.Requeue, admin.SettleManually, admin.Cancel, admin.Complete, admin.Requeue, admin.Compensate}

func (w *world) drawAdmin() {
	rng := rand.New(rand.NewPCG(w.seed, adminStream))
	if w.plan.calm || rng.IntN(6) > 0 {
		return
	}
	w.apart.admin = true
	for range 1 + rng.IntN(5) {
		w.apart.visits = append(w.apart.visits, visit{
			at: time.Duration(rng.Int64N(int64(w.plan.chaos))), thinks: time.Duration(rng.Int64N(int64(10 * time.Second))), whom: rng.IntN(8),
			action: adminActions[rng.IntN(len(adminActions))], takes: rng.IntN(3) == 0,
		})
	}
}

var adminAction = map[admin.Right]processlog.Action{
	admin.Requeue: processlog.ActionRequeue, admin.Compensate: processlog.ActionRequeue, admin.SettleManually: processlog.ActionSettleManually,
	admin.Cancel: processlog.ActionCancel, admin.Complete: processlog.ActionComplete,
}

var anybody = admin.AccessFunc(func(context.Context, admin.Actor, admin.Right, admin.Subject) bool { return true })

// Package admin may refuse an entry that has changed since it was listed.
func (w *world) visit(v visit) {
	time.Sleep(v.at)
	n := w.alive(v.whom)
	if n == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	d, err := admin.New(n.c, admin.Options{Access: anybody})
	if err != nil {
		w.oracle.fail("G32: the Admin of instance %d returned an error: %v", n.number, err)
		return
	}
	actor, why := admin.Actor{ID: "mei"}, admin.Why{Reason: "because"}
	page, err := d.Entries(ctx, actor, admin.Filter{States: []compensator.State{compensator.Dead}})
	if err != nil || len(page.Entries) == 0 {
		return
	}
	if v.takes {
		cases, err := d.Cases(ctx, actor, admin.CaseFilter{})
		if err == nil && len(cases.Cases) > 0 {
			var seen []admin.SeenCase
			for _, c := range cases.Cases {
				seen = append(seen, admin.SeenCase{EntryID: c.EntryID, Version: c.Version})
			}
			_, _ = d.TakeCases(ctx, actor, seen, why)
		}
	}
	var seen []admin.Seen
	for _, e := range page.Entries {
		if v.action == admin.Compensate && e.BusinessType != undoType && e.BusinessType != undoTxType {
			continue
		}
		seen = append(seen, admin.Seen{ID: e.ID, Version: e.Version})
		w.oracle.noteRequest(adminAction[v.action], v.action == admin.Compensate, e.ID)
	}
	select {
	case <-time.After(v.thinks):
	case <-n.died:
	}
	// The code does not draw a new random number for this, because a new number would change what happens in older
	// seeds.
	checked := v.thinks%3 > 0
	if !checked {
		ctx = context.WithValue(ctx, unchecked{}, true)
	}
	change := admin.Change{Action: v.action, Entries: seen, Why: why, Checked: checked}
	if v.thinks%5 == 0 && v.action != admin.Compensate {
		w.actOnAll(ctx, d, actor, change, v)
		return
	}
	if v.thinks%2 == 0 {
		_, _ = d.Change(ctx, actor, change)
		return
	}
	id, _, err := d.StartBulk(ctx, actor, change, admin.BulkOptions{TryFirst: v.thinks%4 == 1})
	if err != nil || id == (admin.BulkID{}) {
		return
	}
	w.tells(ctx, d, actor, id, len(seen))
	_ = d.ContinueBulk(ctx, actor, id)
	w.tells(ctx, d, actor, id, len(seen))
}

func (w *world) tells(ctx context.Context, d *admin.Admin, actor admin.Actor, id admin.BulkID, entries int) {
	if view, err := d.Bulk(ctx, actor, id); err == nil && view.Changed+len(view.Skipped)+view.Left != entries {
		w.oracle.fail("G32: an action on %d entries tells of %d changed, %d skipped and %d left ones", entries, view.Changed, len(view.Skipped), view.Left)
	}
}

func (w *world) actOnAll(ctx context.Context, d *admin.Admin, actor admin.Actor, change admin.Change, v visit) {
	ctx = context.WithValue(ctx, onAll{}, make(map[compensator.EntryID]bool))
	search := admin.Search{Filter: admin.Filter{States: []compensator.State{compensator.Dead}}}
	opts := admin.BulkOptions{TryFirst: true, Key: fmt.Sprintf("form %d of %016d", v.whom, v.at)}
	id, err := d.StartMatching(ctx, actor, change, search, opts)
	if again, _ := d.StartMatching(ctx, actor, change, search, opts); id != (admin.BulkID{}) && again != (admin.BulkID{}) && again != id {
		w.oracle.fail("G32: one form that was sent twice began the actions %s and %s", id, again)
	}
	for try := range 5 {
		if id == (admin.BulkID{}) || ctx.Err() != nil {
			return
		}
		if n := w.alive(v.whom + try); err != nil && n != nil {
			if d, err = admin.New(n.c, admin.Options{Access: anybody}); err != nil {
				return
			}
		}
		if view, failed := d.Bulk(ctx, actor, id); failed == nil && view.Left == 0 {
			w.oracle.readCounts(func(o *oracle) { o.sights[sawAllVisited]++ })
			return
		}
		err = d.ContinueBulk(ctx, actor, id)
	}
}

// The value under onAll is the set of entries that the action has changed.
type onAll struct{}

func (s *gatedStore) noteMatching(ctx context.Context, seen []processlog.Version, change processlog.Change) {
	if ctx.Value(onAll{}) == nil {
		return
	}
	for _, v := range seen {
		s.from.w.oracle.noteRequest(change.Action, change.Compensate, v.ID)
	}
}

func (s *gatedStore) visitedOnce(ctx context.Context, seen []processlog.Version, answers []processlog.Changed) {
	changed, _ := ctx.Value(onAll{}).(map[compensator.EntryID]bool)
	for i, v := range seen {
		if changed == nil || answers[i].Err != nil {
			continue
		}
		if changed[v.ID] {
			s.from.w.oracle.fail("G32: an action on all that match has changed entry %s twice", v.ID)
		}
		changed[v.ID] = true
	}
}

type unchecked struct{}

func (s *gatedStore) casesOpened(outcomes []processlog.Outcome, answers []processlog.Settled) {
	if !s.from.w.apart.admin || len(answers) != len(outcomes) {
		return
	}
	for i, o := range outcomes {
		if !answers[i].Applied || o.To != processlog.Dead {
			continue
		}
		found, err := s.store.CasesOf(context.Background(), []compensator.EntryID{o.ID})
		if err != nil || len(found) != 1 || !found[0].ClosedAt.IsZero() || found[0].Epoch != o.Epoch {
			s.from.w.oracle.fail("G31: entry %s died in epoch %d, but its case is %+v", o.ID, o.Epoch, found)
		}
		s.from.w.oracle.readCounts(func(or *oracle) { or.sights[sawCases]++ })
	}
}

func (s *gatedStore) ChangeAll(ctx context.Context, seen []processlog.Version, change processlog.Change) (answers []processlog.Changed, err error) {
	op := &operation{kind: opChange, from: s.from, change: change, seen: make(map[compensator.EntryID]uint64)}
	for _, v := range seen {
		op.seen[v.ID] = v.Number
	}
	s.from.w.oracle.noteOperation(change.Token, op)
	err = s.from.step(ctx, classOnce, "changeall", string(change.Action)+" "+idsOf(seen, func(v processlog.Version) compensator.EntryID { return v.ID }), func() (err error) {
		if answers, err = s.store.ChangeAll(ctx, seen, change); err == nil {
			s.changedAll(ctx, seen, answers)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return answers, nil
}

func (s *gatedStore) ChangeBulk(ctx context.Context, seen []processlog.Version, change processlog.Change, batch processlog.BulkBatch) (record uint64, answers []processlog.Changed, err error) {
	op := &operation{kind: opChange, from: s.from, change: change, seen: make(map[compensator.EntryID]uint64)}
	for _, v := range seen {
		op.seen[v.ID] = v.Number
	}
	s.from.w.oracle.noteOperation(change.Token, op)
	s.noteMatching(ctx, seen, change)
	err = s.from.step(ctx, classOnce, "changebulk", string(change.Action)+" "+idsOf(seen, func(v processlog.Version) compensator.EntryID { return v.ID }), func() (err error) {
		if record, answers, err = s.store.ChangeBulk(ctx, seen, change, batch); err == nil {
			s.changedAll(ctx, seen, answers)
			s.visitedOnce(ctx, seen, answers)
			id := batch.ID
			id.Record = cmp.Or(id.Record, record)
			s.batchRecorded(id, answers)
		}
		return err
	})
	if err != nil {
		return 0, nil, err
	}
	return record, answers, nil
}

func (s *gatedStore) Bulk(ctx context.Context, id processlog.BulkID) (batches []processlog.BulkBatch, err error) {
	err = s.from.step(ctx, classRead, "bulk", "", func() (err error) {
		batches, err = s.store.Bulk(ctx, id)
		return err
	})
	return batches, err
}

func (s *gatedStore) batchRecorded(id processlog.BulkID, answers []processlog.Changed) {
	batches, err := s.store.Bulk(context.Background(), id)
	if err != nil || len(batches) == 0 {
		s.from.w.oracle.fail("G32: the record of an action on %d entries is missing: %v", len(answers), err)
		return
	}
	recorded := make(map[compensator.EntryID]processlog.BulkEntry)
	for _, e := range batches[len(batches)-1].Entries {
		recorded[e.ID] = e
	}
	changed := 0
	for _, answer := range answers {
		if answer.Err != nil {
			continue
		}
		changed++
		rows, err := s.store.Outlines(context.Background(), []compensator.EntryID{answer.Before.ID})
		if err != nil || len(rows) != 1 || recorded[answer.Before.ID] != (processlog.BulkEntry{ID: rows[0].ID, Version: rows[0].Version, Epoch: rows[0].Epoch}) {
			s.from.w.oracle.fail("G32: the record of an action says %+v of entry %s, which is %+v", recorded[answer.Before.ID], answer.Before.ID, rows)
		}
	}
	if changed != len(recorded) {
		s.from.w.oracle.fail("G32: an action changed %d entries, and its record names %d", changed, len(recorded))
	}
	s.from.w.oracle.readCounts(func(o *oracle) { o.sights[sawBulkBatches]++ })
}

func (s *gatedStore) changedAll(ctx context.Context, seen []processlog.Version, answers []processlog.Changed) {
	for i, v := range seen {
		if answers[i].Err != nil {
			continue
		}
		history, err := s.store.History(context.Background(), v.ID)
		if err != nil || len(history) == 0 || history[len(history)-1].Before.Version != v.Number || history[len(history)-1].Actor != "mei" {
			s.from.w.oracle.fail("G32: entry %s was changed in version %d, but its last audit record is %+v", v.ID, v.Number, history)
		}
		found, err := s.store.CasesOf(context.Background(), []compensator.EntryID{v.ID})
		if err != nil || len(found) > 0 && found[0].ClosedAt.IsZero() {
			s.from.w.oracle.fail("G32: entry %s is no longer dead, but its case is open", v.ID)
		}
		if ctx.Value(unchecked{}) != nil {
			before := answers[i].Before
			if len(found) > 0 && found[0].Kind == processlog.CaseUnknown && found[0].Epoch == before.Epoch || before.EndedBy == processlog.EndedByCrash ||
				s.from.w.oracle.isDoubted(before) {
				s.from.w.oracle.fail("G32: a person who had not checked changed entry %s, whose outcome was unknown", v.ID)
			}
			s.from.w.oracle.readCounts(func(o *oracle) { o.sights[sawUncheckedActions]++ })
		}
		s.from.w.oracle.readCounts(func(o *oracle) { o.sights[sawAdminActions]++ })
	}
}

func (w *world) checkCases() {
	if !w.apart.admin || w.oracle.failed.Load() || len(w.oracle.losses) > 0 {
		return
	}
	wrong := ""
	right := func() bool {
		wrong = ""
		for _, row := range w.store.Rows() {
			found, err := w.store.CasesOf(context.Background(), []compensator.EntryID{row.ID})
			open := len(found) == 1 && found[0].ClosedAt.IsZero()
			if err != nil || open != (row.State == compensator.Dead) {
				wrong = row.ID.String() + " is " + row.State.String()
			}
		}
		return wrong == ""
	}
	if !w.await(15*time.Minute, right) {
		w.oracle.fail("G31: entry %s, and its case tells otherwise", wrong)
	}
}

var _ processlog.Operations = (*gatedStore)(nil)

func (s *gatedStore) CheckOperations(ctx context.Context) error { return s.store.CheckOperations(ctx) }

func (s *gatedStore) MatchingIDs(ctx context.Context, m processlog.Match) (ids []compensator.EntryID, err error) {
	err = s.from.step(ctx, classRead, "matching ids", "", func() (err error) {
		ids, err = s.store.MatchingIDs(ctx, m)
		return err
	})
	return ids, err
}

func (s *gatedStore) Outlines(ctx context.Context, ids []compensator.EntryID) (rows []processlog.Row, err error) {
	err = s.from.step(ctx, classRead, "outlines", string(make(args, 0, 32).ids(ids)), func() (err error) {
		rows, err = s.store.Outlines(ctx, ids)
		return err
	})
	return rows, err
}

func (s *gatedStore) DeadWithoutCase(ctx context.Context, since time.Duration, limit int) (rows []processlog.Row, err error) {
	err = s.from.step(ctx, classRead, "deadwithoutcase", "", func() (err error) {
		rows, err = s.store.DeadWithoutCase(ctx, since, limit)
		return err
	})
	return rows, err
}

func (s *gatedStore) OpenCases(ctx context.Context, rows []processlog.Row, drafts []processlog.CaseDraft) (n int, err error) {
	err = s.from.step(ctx, classWrite, "opencases", idsOf(rows, func(r processlog.Row) compensator.EntryID { return r.ID }), func() (err error) {
		n, err = s.store.OpenCases(ctx, rows, drafts)
		return err
	})
	return n, err
}

func (s *gatedStore) CloseCases(ctx context.Context, limit int) (n int, err error) {
	err = s.from.step(ctx, classWrite, "closecases", "", func() (err error) {
		n, err = s.store.CloseCases(ctx, limit)
		return err
	})
	return n, err
}

func (s *gatedStore) ForgetCases(ctx context.Context, age time.Duration, limit int) (int, error) {
	return s.store.ForgetCases(ctx, age, limit)
}

func (s *gatedStore) Cases(ctx context.Context, filter processlog.CaseFilter) (processlog.CasePage, error) {
	return s.store.Cases(ctx, filter)
}

func (s *gatedStore) FaultsOf(ctx context.Context, ids []compensator.EntryID) (faults map[compensator.EntryID]processlog.Faults, err error) {
	err = s.from.step(ctx, classRead, "faults of", string(make(args, 0, 32).ids(ids)), func() (err error) {
		faults, err = s.store.FaultsOf(ctx, ids)
		return err
	})
	return faults, err
}

func (s *gatedStore) KeepAttempts(ctx context.Context) error { return s.store.KeepAttempts(ctx) }

func (s *gatedStore) AttemptsOf(ctx context.Context, id compensator.EntryID) (attempts []processlog.FailedAttempt, err error) {
	err = s.from.step(ctx, classRead, "attempts of", id.String(), func() (err error) {
		attempts, err = s.store.AttemptsOf(ctx, id)
		return err
	})
	return attempts, err
}

func (s *gatedStore) StatsClock(ctx context.Context) (time.Time, error) {
	return s.store.StatsClock(ctx)
}

func (s *gatedStore) FoldStats(ctx context.Context, fold processlog.StatFold, age time.Duration, limit int) (n int, err error) {
	err = s.from.step(ctx, classWrite, "fold statistics", "", func() (err error) {
		n, err = s.store.FoldStats(ctx, fold, age, limit)
		return err
	})
	return n, err
}

func (s *gatedStore) ForgetStats(ctx context.Context, age time.Duration) error {
	return s.from.step(ctx, classWrite, "forget statistics", "", func() error { return s.store.ForgetStats(ctx, age) })
}

func (s *gatedStore) Stats(ctx context.Context, filter processlog.StatFilter) ([]processlog.Stat, error) {
	return s.store.Stats(ctx, filter)
}

func (s *gatedStore) BlockedBy(ctx context.Context, businessType string, id compensator.EntryID, dead bool) (compensator.EntryID, error) {
	return s.store.BlockedBy(ctx, businessType, id, dead)
}

func (s *gatedStore) CasesOf(ctx context.Context, ids []compensator.EntryID) ([]processlog.Case, error) {
	return s.store.CasesOf(ctx, ids)
}

func (s *gatedStore) CaseGroups(ctx context.Context, businessTypes []string, failure processlog.Fingerprint) ([]processlog.CaseGroup, error) {
	return s.store.CaseGroups(ctx, businessTypes, failure)
}

func (s *gatedStore) CountCases(ctx context.Context) ([]processlog.CaseCount, error) {
	return s.store.CountCases(ctx)
}

func (s *gatedStore) Types(ctx context.Context) ([]string, error) { return s.store.Types(ctx) }

func (s *gatedStore) AssignCases(ctx context.Context, seen []processlog.SeenCase, owner string, op processlog.Operation) (answers []error, err error) {
	err = s.from.step(ctx, classOnce, "assigncases", seen[0].EntryID.String(), func() error {
		var err error
		answers, err = s.store.AssignCases(ctx, seen, owner, op)
		for _, answer := range append(slices.Clone(answers), err) {
			if answer != nil && !errors.Is(answer, processlog.ErrChanged) && !errors.Is(answer, processlog.ErrNotFound) {
				s.from.w.oracle.fail("G32: taking a case failed: %v", answer)
			}
		}
		return err
	})
	return answers, err
}

func (s *gatedStore) Operate(ctx context.Context, op processlog.Operation) error {
	return s.store.Operate(ctx, op)
}

func (s *gatedStore) AuditLog(ctx context.Context, filter processlog.AuditLogFilter) (processlog.AuditLogPage, error) {
	return s.store.AuditLog(ctx, filter)
}

func (s *gatedStore) Limits(ctx context.Context, name string) ([]processlog.StoredLimit, error) {
	return s.store.Limits(ctx, name)
}

func (s *gatedStore) LimitedKey(ctx context.Context, limit processlog.StoredLimit, key string) (processlog.LimitedKey, error) {
	return s.store.LimitedKey(ctx, limit, key)
}

func (s *gatedStore) PutLimit(ctx context.Context, limit processlog.StoredLimit, ops ...processlog.Operation) error {
	return s.from.step(ctx, classOnce, "putlimit", limit.Name, func() error {
		err := s.store.PutLimit(ctx, limit, ops...)
		if err == nil {
			s.from.w.oracle.noteLimitChange(limit)
		}
		return err
	})
}

func (s *gatedStore) Settings(ctx context.Context) (settings []processlog.Setting, err error) {
	if s.from.w.apart.pausing.kind == "" {
		return s.store.Settings(ctx)
	}
	err = s.from.step(ctx, classRead, "settings", "", func() (err error) {
		settings, err = s.store.Settings(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return settings, nil
}

func (s *gatedStore) PutSetting(ctx context.Context, setting processlog.Setting, op processlog.Operation) error {
	return s.from.step(ctx, classOnce, "putsetting", setting.Name, func() error {
		err := s.store.PutSetting(ctx, setting, op)
		if err == nil {
			s.from.w.oracle.noteSetting(setting)
		}
		return err
	})
}

func (s *gatedStore) PeriodicMarks(ctx context.Context) (time.Time, map[string]time.Time, error) {
	return s.store.PeriodicMarks(ctx)
}

func (s *gatedStore) OutlinesByKey(ctx context.Context, keys []string) ([]processlog.Row, error) {
	return s.store.OutlinesByKey(ctx, keys)
}
