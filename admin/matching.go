package admin

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// Search selects the entries for an action on all that match.
type Search struct {
	Filter  Filter      `json:"filter"`           // must name a state. Limit, Newest, MaxRead, Outline and Cursor do not matter
	Failure Fingerprint `json:"failure,omitzero"` // failure of the entry's open case, as Group.Fingerprint; zero: any
}

// Matching says how many entries a Search finds, and what a person should know before an action on all of them.
type Matching struct {
	N          int                  `json:"n"`               // number of entries that match
	More       bool                 `json:"more,omitempty"`  // whether more may match, because only maxSurveyed entries were compared. The other fields are about N entries
	Sums       []compensator.Amount `json:"sums,omitempty"`  // sums by currency, over the entries whose amount is known
	NoAmount   int                  `json:"no_amount_known"` // number of entries whose amount is unknown
	Unknown    int                  `json:"outcome_unknown"` // number of entries whose outcome is unknown. Without Change.Checked they are left out
	Finished   int                  `json:"finished"`        // number of entries that have ended. Without Change.Again they are left out
	NotAllowed int                  `json:"not_allowed"`     // number of entries that the actor may not change so. They are left out
}

const (
	maxSurveyed = 10_000 // how many entries Matching compares, and how many ids one query of a batch reads
	maxWeighed  = 500    // how many contents Matching reads to compute amounts. Cases have the amounts of dead entries
)

// ErrContinued says that another caller has continued the action meanwhile. The call that returns ErrContinued has done
// nothing. Bulk shows how far the action is.
var ErrContinued = errors.New("admin: another caller continues this action")

// Matching counts the entries that match a search, for a person who plans an action on all of them. It needs
// SeeEntries. A filter by error text also needs SeeErrors, and a filter by user id also needs SeeContent. Matching
// records nothing. Entries of types without these rights do not match. An invalid filter, or one without a state, is a
// *FieldError.
func (d *Admin) Matching(ctx context.Context, a Actor, action Right, search Search) (Matching, error) {
	match, ok, err := d.newMatch(ctx, a, search)
	if err != nil || !ok {
		return Matching{}, err
	}
	return d.survey(ctx, a, action, match)
}

// newMatch returns the entries to search for, limited to the types that the actor may see. If the actor may see no
// type, ok is false.
func (d *Admin) newMatch(ctx context.Context, a Actor, search Search) (match processlog.Match, ok bool, err error) {
	match = processlog.Match{Filter: search.Filter, Fingerprint: search.Failure}
	if err := match.Validate(); err != nil {
		return match, false, err
	}
	_, types, ok, err := d.searchedTypes(ctx, a, search.Filter, SeeEntries)
	match.Filter.BusinessTypes = types
	return match, ok, err
}

func (d *Admin) matchingIDs(ctx context.Context, match processlog.Match, limit int) ([]compensator.EntryID, error) {
	match.Limit = limit
	return runQuery(ctx, d, func(ctx context.Context) ([]compensator.EntryID, error) {
		return d.log.Operations().MatchingIDs(ctx, match)
	})
}

func (d *Admin) survey(ctx context.Context, a Actor, action Right, match processlog.Match) (m Matching, err error) {
	ids, err := d.matchingIDs(ctx, match, maxSurveyed+1)
	if err != nil {
		return m, err
	}
	m.More = len(ids) > maxSurveyed
	var lines []Line
	weighed := 0
	for ids := range slices.Chunk(ids[:min(len(ids), maxSurveyed)], MaxEntries) {
		found, err := d.matchingLines(ctx, a, match, ids, &weighed)
		if err != nil {
			return m, err
		}
		lines = append(lines, found...)
	}
	m.N = len(lines)
	var sums Group
	for _, line := range lines {
		sums.addSums(processlog.CaseGroup{N: 1, Sum: line.Amount.Minor, Currency: line.Amount.Currency})
		subject := Subject{Type: line.Entry.BusinessType, Amount: line.Amount, Count: m.count()}
		if !d.mayDo(ctx, a, action, subject) || !d.checkRepeat(ctx, a, action, line.Entry.State, subject) {
			m.NotAllowed++
		}
	}
	m.Sums, m.NoAmount = sums.Sums, sums.NoAmount
	if unchecked := (Change{Action: action}).Unchecked(lines); unchecked != nil {
		m.Unknown, m.Finished = len(unchecked.Unknown), len(unchecked.Finished)
	}
	return m, nil
}

func (m Matching) count() int {
	if m.More {
		return m.N + 1
	}
	return m.N
}

// matchingLines returns a Line for each entry in ids that matches. To compute amounts, it reads the contents of some
// entries. The parameter weighed counts the contents that were read so far, and matchingLines raises this count.
func (d *Admin) matchingLines(ctx context.Context, a Actor, match processlog.Match, ids []compensator.EntryID, weighed *int) ([]Line, error) {
	rows, err := d.outlines(ctx, a, ids)
	if err != nil {
		return nil, err
	}
	cases, err := d.casesOf(ctx, ids)
	if err != nil {
		return nil, err
	}
	rows = slices.DeleteFunc(rows, func(row processlog.Row) bool { return !match.Admits(&row, caseOf(cases, row.ID)) })
	unknownOutcomes, err := d.outcomesUnknown(ctx, entriesOf(rows), cases)
	if err != nil {
		return nil, err
	}
	toWeigh := slices.DeleteFunc(slices.Clone(rows), func(row processlog.Row) bool {
		c := caseOf(cases, row.ID)
		return c != nil && c.Amount.Known()
	})
	toWeigh = toWeigh[:min(len(toWeigh), maxWeighed-*weighed)]
	*weighed += len(toWeigh)
	amounts, err := d.readAmounts(ctx, toWeigh, cases)
	if err != nil {
		return nil, err
	}
	lines := make([]Line, len(rows))
	for i, row := range rows {
		lines[i] = Line{Entry: entryOf(row), Amount: amounts[row.ID], OutcomeUnknown: unknownOutcomes[row.ID]}
	}
	return lines, nil
}

// matchingPlan is the state of an action on all entries that match. Each batch stores a matchingPlan. The plan of the
// last batch says how far the action is. The JSON names of a matchingPlan never change.
type matchingPlan struct {
	Search  Search              `json:"search"` // with the types that the first actor may see
	More    bool                `json:"more,omitempty"`
	UpTo    compensator.EntryID `json:"up_to"`              // newest entry of the log at the start
	Cursor  compensator.EntryID `json:"cursor"`             // last entry that this batch or an earlier one has visited
	Changed int                 `json:"changed"`            // number of entries that earlier batches have changed
	Trials  int                 `json:"trials,omitempty"`   // number of trials up to this batch. 0: at most one
	LeftOut map[string]int      `json:"left_out,omitempty"` // number of entries that earlier batches have left out, by reason
	Ended   bool                `json:"ended,omitempty"`    // whether no entry is left after this batch
	Stopped bool                `json:"stopped,omitempty"`  // whether this batch only ends the action
}

func (p *matchingPlan) isOver() bool { return p.Ended || p.Stopped }

func (p *matchingPlan) match() processlog.Match {
	return processlog.Match{Filter: p.Search.Filter, Fingerprint: p.Search.Failure, After: p.Cursor, UpTo: p.UpTo}
}

func (p *matchingPlan) add(changed int, skipped []string) {
	leftOut := make(map[string]int)
	maps.Copy(leftOut, p.LeftOut)
	for _, why := range skipped {
		leftOut[why]++
	}
	p.Changed, p.LeftOut = p.Changed+changed, leftOut
}

func (p *matchingPlan) visited() int {
	n := p.Changed
	for _, leftOut := range p.LeftOut {
		n += leftOut
	}
	return n
}

// left returns the number of entries that are left. It returns 0 only if the action is over.
func (p *matchingPlan) left(total int) int {
	if p.isOver() {
		return 0
	}
	return max(1, total-p.visited())
}

// StartMatching begins an action on all entries that match a search, and carries out the first batch. ContinueBulk
// carries out the other batches, until BulkView.Left is 0. Change.Entries is ignored.
//
// The action visits entries in the order of their ids. It ends at the entry that was the newest one at the start, so it
// visits each entry at most once. An entry is changed if it matches when its batch begins, whatever its version. If
// ch.Checked is false, the action leaves out entries whose outcome is unknown. If ch.Again is false, the action leaves
// out entries that have ended.
//
// A batch has at most MaxEntries entries. One transaction changes the entries and stores the position of the action. If
// a process is killed, ContinueBulk continues after the last stored batch.
//
// StartMatching needs the rights that Admin.Change and Admin.Matching need. Each batch checks them again. If no entry
// matches, StartMatching stores nothing and returns a zero BulkID. If the actor may change no matching entry,
// StartMatching returns ErrNotAllowed.
func (d *Admin) StartMatching(ctx context.Context, a Actor, ch Change, search Search, opts BulkOptions) (BulkID, error) {
	if d.readOnly {
		return BulkID{}, ErrReadOnly
	}
	change, err := ch.newChange(a)
	if err != nil {
		return BulkID{}, err
	}
	ctx = withAction(ctx)
	return d.once(ctx, a, ch.Action, opts, func(id BulkID) (BulkID, error) {
		run, err := d.newMatching(ctx, a, ch, search, change.Reason)
		if err != nil || run == nil {
			return BulkID{}, err
		}
		run.id, run.once, run.plan.TriesFirst = id, opts.Key != "", opts.TryFirst
		err = run.goOn(ctx, 1) // Only one batch, so that the person soon sees the page of the action and can stop it there.
		if run.id.Record == 0 {
			return BulkID{}, err
		}
		return run.id, err
	})
}

// newMatching prepares an action on all entries that match. It returns nil if no entry matches.
func (d *Admin) newMatching(ctx context.Context, a Actor, ch Change, search Search, reason string) (*matchingRun, error) {
	op := processlog.Operation{Action: string(ch.Action), Reason: reason}
	match, ok, err := d.newMatch(ctx, a, search)
	if errors.Is(err, ErrNotAllowed) || err == nil && !ok {
		return nil, d.recordTypeRefusal(ctx, a, search.Filter.BusinessType, op)
	}
	if err != nil {
		return nil, err
	}
	found, err := d.survey(ctx, a, ch.Action, match)
	if err != nil || found.N == 0 && !found.More {
		return nil, err
	}
	if found.N > 0 && found.NotAllowed == found.N {
		op.BusinessType, op.Subject = search.Filter.BusinessType, refusedCount(found.N, found.N)
		return nil, d.recordRefusal(ctx, a, op)
	}
	newest, err := runQuery(ctx, d, func(ctx context.Context) (processlog.Page, error) {
		return d.log.Store().List(ctx, Filter{Newest: true, Limit: 1, Outline: true})
	})
	if err != nil || len(newest.Rows) == 0 {
		return nil, err
	}
	search.Filter = match.Filter
	plan := bulkPlan{Right: ch.Action, Delay: ch.Delay, Checked: ch.Checked, Again: ch.Again, Total: found.N,
		Matching: &matchingPlan{Search: search, More: found.More, UpTo: newest.Rows[0].ID}}
	return &matchingRun{d: d, actor: a, reason: reason, plan: plan}, nil
}

func (d *Admin) continueMatching(ctx context.Context, a Actor, id BulkID, bulk *storedBulk) error {
	run, err := d.newMatchingRun(ctx, a, id, bulk)
	if err != nil || run.plan.Matching.isOver() {
		return err
	}
	return run.goOn(ctx, maxBulkBatches)
}

func (d *Admin) tryAnotherMatching(ctx context.Context, a Actor, id BulkID, bulk *storedBulk) error {
	run, err := d.newMatchingRun(ctx, a, id, bulk)
	if err != nil {
		return err
	}
	run.triesAnother, run.trials = true, bulk.trials()
	return run.goOn(ctx, maxBulkBatches)
}

// BulkProgress says how many entries an action of StartMatching has changed, and how many are left.
type BulkProgress struct {
	Changed int  // number of entries that the action has changed
	Left    int  // number of entries that are left; 0: the action is over
	More    bool // whether Left is a lower bound
}

// FinishBulk carries out the rest of an action that StartMatching has begun. It calls the function report at the
// beginning, after every four batches, and at the end. FinishBulk returns the same errors as ContinueBulk. For an
// action that StartBulk has begun, FinishBulk returns a *FieldError.
func (d *Admin) FinishBulk(ctx context.Context, a Actor, id BulkID, report func(BulkProgress)) error {
	if d.readOnly {
		return ErrReadOnly
	}
	ctx = withAction(ctx)
	bulk, err := d.readMatching(ctx, id)
	if err != nil {
		return err
	}
	run, err := d.newMatchingRun(ctx, a, id, &bulk)
	for err == nil {
		report(run.progress())
		if run.plan.Matching.isOver() {
			return nil
		}
		if err = run.goOn(ctx, maxBulkBatches); err == nil {
			err = d.checkMatching(ctx, a, id, &bulk) // Somebody may have changed the rights meanwhile.
		}
	}
	return err
}

func (d *Admin) readMatching(ctx context.Context, id BulkID) (storedBulk, error) {
	bulk, err := d.readBulk(ctx, id)
	if err == nil && bulk.plan.Matching == nil {
		err = &compensator.FieldError{Field: "bulk action", Reason: "is not one on all that match"}
	}
	return bulk, err
}

// StopBulk stops an action of StartMatching before the action has visited all entries. Entries that the action has
// already changed stay changed. Another caller may store a batch of the action at the same time. The entries of this
// batch then also stay changed. StopBulk needs the rights of ContinueBulk. If the action has no entry left, StopBulk
// does nothing.
func (d *Admin) StopBulk(ctx context.Context, a Actor, id BulkID) error {
	if d.readOnly {
		return ErrReadOnly
	}
	ctx = withAction(ctx)
	for {
		bulk, err := d.readMatching(ctx, id)
		if err != nil {
			return err
		}
		run, err := d.newMatchingRun(ctx, a, id, &bulk)
		if err != nil || run.plan.Matching.isOver() {
			return err
		}
		run.plan.Matching.Stopped = true
		if err := run.store(ctx, checkedChange{}, nil); !errors.Is(err, ErrContinued) {
			return err
		}
	}
}

type matchingRun struct {
	d       *Admin
	actor   Actor
	isOther bool   // whether another person began the action
	id      BulkID // id of the action. Its field Record is 0 until the first batch is stored
	once    bool   // BulkBatch.Once of the first batch
	reason  string // reason of the action, with the ticket before it
	follows uint64 // record of the last batch
	plan    bulkPlan

	triesAnother bool // whether TryAnother runs the action
	trials       int  // number of earlier trials; for TryAnother only
}

func (d *Admin) newMatchingRun(ctx context.Context, a Actor, id BulkID, bulk *storedBulk) (*matchingRun, error) {
	if err := d.checkMatching(ctx, a, id, bulk); err != nil {
		return nil, err
	}
	plan := bulk.plan
	plan.Matching = bulk.progress()
	return &matchingRun{d: d, actor: a, isOther: a.ID != bulk.first().Actor, id: id, reason: bulk.first().Reason, follows: bulk.last().Record, plan: plan}, nil
}

func (d *Admin) checkMatching(ctx context.Context, a Actor, id BulkID, bulk *storedBulk) error {
	seesAll, err := d.seesMatching(ctx, a, bulk)
	if err != nil {
		return err
	}
	if !seesAll {
		return d.refuseBulk(ctx, a, bulk, newNotFoundError(compensator.IdempotencyKey(id.String())))
	}
	if !d.mayContinue(ctx, a, bulk) {
		return d.refuseBulk(ctx, a, bulk, ErrNotAllowed)
	}
	return nil
}

func (b *storedBulk) progress() *matchingPlan {
	next := *b.plan.Matching
	var skipped []string
	for _, s := range b.last().Skipped {
		skipped = append(skipped, s.Why)
	}
	next.add(len(b.last().Entries), skipped)
	return &next
}

func (d *Admin) seesMatching(ctx context.Context, a Actor, bulk *storedBulk) (bool, error) {
	filter := bulk.plan.Matching.Search.Filter
	types, ok, err := d.visibleTypes(ctx, d.bulkReaders(a, bulk), filter.BusinessType, filter.BusinessTypes)
	return ok && (types == nil || len(types) == len(filter.BusinessTypes)), err
}

// mayContinue reports whether the actor may continue the action. The person who began the action may always continue
// it. For another actor, mayContinue checks only the rights to the types. For every actor, each batch checks the right
// to each of its entries.
func (d *Admin) mayContinue(ctx context.Context, a Actor, bulk *storedBulk) bool {
	if a.ID == bulk.first().Actor {
		return true
	}
	types := bulk.plan.Matching.Search.Filter.BusinessTypes
	if types == nil {
		types = []string{""}
	}
	return slices.ContainsFunc(types, func(name string) bool {
		return d.mayDo(ctx, a, bulk.plan.Right, Subject{Type: name, Count: bulk.plan.Total})
	})
}

func (r *matchingRun) progress() BulkProgress {
	now := r.plan.Matching
	return BulkProgress{Changed: now.Changed, Left: now.left(r.plan.Total), More: now.More}
}

// change returns the Change for the next batch. The versions in the result are 0, and are read later.
func (r *matchingRun) change(ids []compensator.EntryID) Change {
	entries := make([]Seen, len(ids))
	for i, id := range ids {
		entries[i].ID = id
	}
	return r.plan.change(entries, r.reason)
}

// isTrial reports whether the next batch is a trial, which changes one entry only: see BulkOptions.TryFirst.
func (r *matchingRun) isTrial() bool {
	return r.triesAnother || r.plan.TriesFirst && r.plan.Matching.Changed == 0
}

// goOn carries out up to maxBatches batches. A batch that is a trial changes one entry only: see BulkOptions.TryFirst.
// After a trial that has changed an entry, goOn stops, because a person must first see how the entry ended.
func (r *matchingRun) goOn(ctx context.Context, maxBatches int) error {
	ids, err := r.d.matchingIDs(ctx, r.plan.Matching.match(), maxSurveyed)
	if err != nil {
		return err
	}
	isRest := len(ids) < maxSurveyed
	for n := 0; n < maxBatches && (len(ids) > 0 || isRest); {
		trial, p := r.isTrial(), r.plan.Matching
		c, entries, err := r.check(ctx, ids[:min(len(ids), MaxEntries)])
		if err != nil {
			return err
		}
		if len(entries) > 0 {
			p.Cursor = entries[len(entries)-1].ID
		}
		ids = ids[len(entries):]
		p.Ended = isRest && len(ids) == 0
		if len(ids) > 0 && len(c.versions)+len(c.skipped(entries)) == 0 { // No entry of this part matches.
			continue
		}
		r.plan.TriesFirst = trial
		if r.triesAnother && len(c.versions) > 0 {
			p.Trials = r.trials + 1
		}
		if err := r.store(ctx, c, entries); err != nil {
			return err
		}
		if n++; p.Ended || trial && r.plan.Matching.Changed > p.Changed {
			return nil
		}
	}
	return nil
}

// check chooses the entries of the next batch, and checks which of them the actor may change. The second result holds
// all entries of the batch, including those that stay as they are. A trial batch ends with the first entry that may be
// changed.
func (r *matchingRun) check(ctx context.Context, ids []compensator.EntryID) (c checkedChange, entries []Seen, err error) {
	ch := r.change(ids)
	if len(ids) == 0 {
		c.change, err = ch.newChange(r.actor)
		return c, nil, err
	}
	match := r.plan.Matching.match()
	total := Matching{N: r.plan.Total, More: r.plan.Matching.More}
	if c, err = r.d.checkChange(ctx, r.actor, ch, part{total: total.count(), leavesOut: true, match: &match}); err != nil {
		return c, nil, err
	}
	if r.isOther && slices.Contains(c.answers, ErrNotAllowed) {
		// Do not store the batch. The stored batch would move the position of the action past the entry that this actor
		// may not change. The action would never come back to the entry, although a person with the right could change it.
		return c, nil, ErrNotAllowed
	}
	entries = ch.Entries
	if r.isTrial() && len(c.versions) > 0 {
		entries = entries[:c.indexes[0]+1]
		c.versions, c.indexes, c.answers = c.versions[:1], c.indexes[:1], c.answers[:len(entries)]
	}
	return c, entries, nil
}

// store stores the batch, and adds its numbers to the plan. The parameter entries holds all entries of the batch,
// including those that stay as they are.
func (r *matchingRun) store(ctx context.Context, c checkedChange, entries []Seen) (err error) {
	if c.change.Action == "" {
		if c.change, err = r.change(nil).newChange(r.actor); err != nil {
			return err
		}
	}
	record, err := r.d.storeBatch(ctx, r.actor, c, processlog.BulkBatch{ID: r.id, Follows: r.follows, Once: r.once, Skipped: c.skipped(entries)}, r.plan)
	switch {
	case r.follows > 0 && errors.Is(err, ErrChanged):
		return ErrContinued
	case err != nil:
		return err
	}
	r.follows = record
	if r.id.Record == 0 {
		r.id.Record = record
	}
	changed := 0
	var skipped []string
	for _, answer := range c.answers {
		switch answer {
		case nil:
			changed++
		case errNoMatch:
		default:
			skipped = append(skipped, skipWord(answer))
		}
	}
	next := *r.plan.Matching
	next.add(changed, skipped)
	r.plan.Matching = &next
	return nil
}

func (d *Admin) viewMatching(ctx context.Context, a Actor, view BulkView, bulk *storedBulk) (BulkView, error) {
	seesAll, err := d.seesMatching(ctx, a, bulk)
	if err != nil {
		return BulkView{}, err
	}
	if !seesAll {
		return BulkView{}, newNotFoundError(compensator.IdempotencyKey(view.ID.String()))
	}
	ids := make([]compensator.EntryID, len(bulk.entries))
	for i, e := range bulk.entries {
		ids[i] = e.ID
	}
	rows, err := d.readRows(ctx, ids)
	if err != nil {
		return BulkView{}, err
	}
	now := bulk.progress()
	for _, e := range bulk.entries {
		view.addOutcome(e, rows[e.ID], bulk.isTrying())
	}
	view.Search, view.More, view.Changed, view.LeftOut, view.Skipped = &now.Search, now.More, now.Changed, now.LeftOut, bulk.skipped
	view.NotFollowed = now.Changed - len(bulk.entries)
	switch {
	case now.Stopped:
		view.StoppedBy = bulk.last().Actor
	case !now.Ended:
		view.Left = now.left(view.Total)
		view.MayContinue = !d.readOnly && d.mayContinue(ctx, a, bulk)
	}
	return view, nil
}
