package sqlstore_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/compensatortest/memory"
	"github.com/compensator-go/compensator/processlog"
)

// storeKeys is small, so that several commands use the same key.
const storeKeys = 7

func keyName(key int) compensator.IdempotencyKey {
	return compensator.IdempotencyKey(fmt.Sprintf("key %d", key))
}

func storeCommands() *rapid.Generator[storeCommand] {
	return rapid.OneOf(
		commandsOf(drawInsert), commandsOf(drawInsert), commandsOf(drawInsert),
		commandsOf(drawMark), commandsOf(drawEnd), commandsOf(drawEnd), commandsOf(drawFinished),
		commandsOf(drawClaim), commandsOf(drawClaim), commandsOf(drawClaim), commandsOf(drawRelease), commandsOf(drawRenew),
		commandsOf(drawSettle), commandsOf(drawSettle), commandsOf(drawSettle), commandsOf(drawSettleTx),
		commandsOf(drawChange), commandsOf(drawChange), commandsOf(drawChange),
		commandsOf(drawScan), commandsOf(drawList), commandsOf(drawCount), commandsOf(drawLookUp), commandsOf(drawPurge), commandsOf(drawWait),
	)
}

func commandsOf[C storeCommand](draw func(*rapid.T) C) *rapid.Generator[storeCommand] {
	return rapid.Custom(func(t *rapid.T) storeCommand { return draw(t) })
}

func pick[T any](t *rapid.T, label string, values ...T) T {
	return rapid.SampledFrom(values).Draw(t, label)
}

func drawEntries(t *rapid.T, most int) []int {
	return rapid.SliceOfN(drawEntry(), 1, most).Draw(t, "entries")
}

func drawEntry() *rapid.Generator[int] { return rapid.IntRange(0, 12) }

func drawToken(t *rapid.T) processlog.Token {
	return processlog.Token{byte(rapid.IntRange(1, 4).Draw(t, "token"))}
}

func drawType(t *rapid.T) string { return pick(t, "type", "order", "order", "stock", "Order") }

// Some durations have a fraction of a millisecond.
func drawSpan(t *rapid.T, label string) time.Duration {
	return pick(t, label, 0, 0, 1, time.Millisecond-1, time.Millisecond, 2500*time.Microsecond, time.Second, time.Minute, time.Hour)
}

func drawState(t *rapid.T) compensator.State {
	return rapid.SampledFrom(processlog.States[:]).Draw(t, "state")
}

type draftOf struct {
	Key, Type, Batch, Business, Content string
	Headers                             string
	Delay, Lease                        time.Duration
	Token                               processlog.Token
	MaxAttempts                         int
	Done                                bool
}

func (d draftOf) draft() processlog.Draft {
	draft := processlog.Draft{BusinessType: d.Type, Content: []byte(d.Content), Headers: []byte(d.Headers), Delay: d.Delay, Lease: d.Lease, Token: d.Token, Done: d.Done}
	draft.IdempotencyKey, draft.BatchID, draft.MaxAttempts = compensator.IdempotencyKey(d.Key), d.Batch, d.MaxAttempts
	draft.BusinessID, draft.BusinessExtID, draft.UserID, draft.UserName = d.Business, "ext "+d.Business, "7", "Mia"
	return draft
}

type insertCommand struct {
	Slot                   int
	Drafts                 []draftOf
	Proven, Undone, Commit bool
}

func drawInsert(t *rapid.T) insertCommand {
	draft := rapid.Custom(func(t *rapid.T) draftOf {
		d := draftOf{Key: string(keyName(rapid.IntRange(0, storeKeys-1).Draw(t, "key"))), Type: drawType(t), Token: drawToken(t)}
		d.Batch, d.Business, d.Content = pick(t, "batch", "", "b1", "b2"), pick(t, "business", "", "42"), pick(t, "content", "", "{}", "x\x00\xff")
		d.Headers = pick(t, "headers", "", "{}", `{"trace":"1"}`, "not JSON")
		d.Delay = pick(t, "delay", 0, 0, time.Millisecond, time.Minute, time.Hour)
		if d.Delay == 0 {
			d.Lease = drawSpan(t, "lease")
		}
		if d.Delay+d.Lease == 0 {
			d.Done = rapid.Bool().Draw(t, "done")
		}
		d.MaxAttempts = rapid.IntRange(0, 2).Draw(t, "max")
		return d
	})
	drafts := rapid.SliceOfNDistinct(draft, 1, 5, func(d draftOf) string { return d.Key }).Draw(t, "drafts")
	return insertCommand{rapid.IntRange(0, 2).Draw(t, "slot"), drafts, rapid.Bool().Draw(t, "proven"), pick(t, "undone", false, false, false, true), pick(t, "commit", true, true, false)}
}

func (c insertCommand) run(m *storeTwins) {
	var drafts []processlog.Draft
	for _, d := range c.Drafts {
		drafts = append(drafts, d.draft())
	}
	tx := m.open(c.Slot)
	if c.Undone {
		markCommand{Slot: c.Slot, Name: "undone"}.run(m)
	}
	var inserted [2][]processlog.Inserted
	gap := false
	m.inTx(c.Slot, "insert", func(s twinSide, tx compensator.Tx) (any, error) {
		var err error
		inserted[s.n], err = s.store.Insert(m.ctx, tx, drafts, c.Proven)
		if gap = gap || s.n == 0 && s.err(err) == "lock wait" && !c.contested(m, tx); gap {
			return nil, memory.ErrLockWait
		}
		return c.answers(s, inserted[s.n]), err
	})
	if gap {
		return
	}
	if len(inserted[0]) == len(drafts) && len(inserted[1]) == len(drafts) {
		c.remember(m, tx, inserted)
	}
	if c.Undone {
		markCommand{Slot: c.Slot, Name: "undone", Back: true}.run(m)
	}
	if c.Commit {
		m.end(c.Slot, true)
	}
}

// contested reports whether the insert would wait for another open transaction.
func (c insertCommand) contested(m *storeTwins, tx compensator.Tx) bool {
	return slices.ContainsFunc(m.entries, func(e twinEntry) bool {
		return !e.by.ended && e.by.sides[0] != tx && slices.ContainsFunc(c.Drafts, func(d draftOf) bool { return d.Key == e.key })
	})
}

func (c insertCommand) answers(s twinSide, inserted []processlog.Inserted) []string {
	answers := []string{}
	for _, in := range inserted {
		if in.Duplicate {
			answers = append(answers, fmt.Sprintf("duplicate of %d, %s, %s, same %t", s.numberOf(in.ID), in.BusinessType, in.State, in.ContentMatches))
		} else {
			answers = append(answers, "new")
		}
	}
	return answers
}

func (c insertCommand) remember(m *storeTwins, tx *twinTx, inserted [2][]processlog.Inserted) {
	var fresh []twinEntry
	for i, d := range c.Drafts {
		if inserted[0][i].Duplicate || inserted[1][i].Duplicate {
			continue
		}
		e := twinEntry{key: d.Key, by: tx, ids: [2]compensator.EntryID{inserted[0][i].ID, inserted[1][i].ID}}
		if e.ids[0].IsZero() {
			found, err := m.database.IDs(m.ctx, tx.sides[0], []compensator.IdempotencyKey{compensator.IdempotencyKey(d.Key)})
			if err != nil {
				m.Errorf("ask for the id of %q: %v", d.Key, err)
			}
			e.ids[0] = found[compensator.IdempotencyKey(d.Key)]
		}
		fresh = append(fresh, e)
	}
	slices.SortFunc(fresh, func(a, b twinEntry) int { return int(a.ids[0].Row()) - int(b.ids[0].Row()) })
	for i := 1; i < len(fresh); i++ {
		if fresh[i].ids[1].Row() < fresh[i-1].ids[1].Row() {
			m.Errorf("the double gives ids in another order: %v", fresh)
		}
	}
	m.entries = append(m.entries, fresh...)
	tx.wrote = tx.wrote || len(fresh) > 0
}

type markCommand struct {
	Slot int
	Name string
	Back bool
}

func drawMark(t *rapid.T) markCommand {
	return markCommand{rapid.IntRange(0, 2).Draw(t, "slot"), pick(t, "name", "a", "b"), rapid.Bool().Draw(t, "back")}
}

func (c markCommand) run(m *storeTwins) {
	if tx := m.slots[c.Slot]; tx == nil || !tx.wrote {
		return // MariaDB releases all locks of a transaction when all its writes are undone. The double keeps the locks.
	}
	tx := m.slots[c.Slot]
	m.inTx(c.Slot, "savepoint", func(s twinSide, tx compensator.Tx) (any, error) {
		memory, ok := tx.(interface {
			Savepoint(name string) error
			RollbackTo(name string) error
		})
		switch {
		case ok && c.Back:
			return nil, memory.RollbackTo(c.Name)
		case ok:
			return nil, memory.Savepoint(c.Name)
		}
		statement := "SAVEPOINT "
		if c.Back {
			statement = "ROLLBACK TO SAVEPOINT "
		}
		_, err := tx.ExecContext(m.ctx, statement+c.Name)
		return nil, err
	})
	if c.Back {
		m.undo(tx, c.Name)
	} else {
		tx.marks[c.Name] = len(m.entries)
	}
}

func (m *storeTwins) undo(tx *twinTx, mark string) {
	since, ok := tx.marks[mark]
	for i := since; ok && i < len(m.entries); i++ {
		if m.entries[i].by == tx {
			m.entries[i].by = &twinTx{ended: true}
		}
	}
}

type endCommand struct {
	Slot   int
	Commit bool
}

func drawEnd(t *rapid.T) endCommand {
	return endCommand{rapid.IntRange(0, 2).Draw(t, "slot"), pick(t, "commit", true, true, false)}
}

func (c endCommand) run(m *storeTwins) { m.end(c.Slot, c.Commit) }

type finishedCommand struct{ Entry int }

func drawFinished(t *rapid.T) finishedCommand { return finishedCommand{drawEntry().Draw(t, "entry")} }

func (c finishedCommand) run(m *storeTwins) {
	if m.finished == nil {
		return
	}
	m.same("finished", func(s twinSide) any {
		tx := m.finished.sides[s.n]
		id := s.id(m.entry(c.Entry))
		_, insert := s.store.Insert(m.ctx, tx, []processlog.Draft{draftOf{Key: string(keyName(0)), Type: "order"}.draft()}, false)
		_, ids := s.store.IDs(m.ctx, tx, []compensator.IdempotencyKey{keyName(0)})
		_, change := s.store.Change(m.ctx, tx, false, processlog.Change{Ref: id, Action: processlog.ActionCancel})
		settle := s.store.SettleTx(m.ctx, tx, processlog.Token{}, processlog.Outcome{ID: id, To: compensator.Succeeded})
		var errs []string
		for _, err := range []error{s.store.Probe(m.ctx, tx), insert, ids, change, settle, tx.Commit(), tx.Rollback()} {
			errs = append(errs, s.err(err))
		}
		return errs
	})
}

type claimCommand struct {
	Entries []int
	Own     []processlog.Token
	Token   processlog.Token
	Lease   time.Duration
	Refuse  int
}

func drawClaim(t *rapid.T) claimCommand {
	c := claimCommand{Entries: drawEntries(t, 8), Token: drawToken(t), Lease: max(1, drawSpan(t, "lease")), Refuse: rapid.IntRange(2, 5).Draw(t, "refuse")}
	for range c.Entries {
		c.Own = append(c.Own, pick(t, "own", processlog.Token{}, drawToken(t)))
	}
	return c
}

func (c claimCommand) run(m *storeTwins) {
	m.same("claim", func(s twinSide) any {
		var want []processlog.Wanted
		for i, pick := range c.Entries {
			want = append(want, processlog.Wanted{ID: s.id(m.entry(pick)), Token: c.Own[i]})
		}
		var asked []processlog.Row
		got, err := s.store.Claim(m.ctx, want, c.Token, c.Lease, func(row *processlog.Row) bool {
			asked = append(asked, *row)
			return row.DeliveryCount < c.Refuse
		})
		waiting, gone := slices.Sorted(slices.Values(s.scheduled(got.Waiting))), slices.Sorted(slices.Values(s.ourIDs(got.Gone))) // The order is unspecified.
		return []any{s.rows(asked), s.rows(got.Mine), s.rows(got.Skipped), waiting, gone, s.err(err)}
	})
}

type releaseCommand struct {
	Entries []int
	Token   processlog.Token
}

func drawRelease(t *rapid.T) releaseCommand { return releaseCommand{drawEntries(t, 6), drawToken(t)} }

func (c releaseCommand) run(m *storeTwins) {
	numbers := m.committedOrGone(c.Entries)
	m.same("release", func(s twinSide) any {
		left, err := s.store.Release(m.ctx, s.ids(numbers), c.Token)
		return []any{slices.Sorted(slices.Values(s.ourIDs(left.Busy))), len(left.Refused), s.err(err)} // The order is unspecified.
	})
}

type renewCommand struct {
	Entries, Behind []int
	Lease           time.Duration
}

func drawRenew(t *rapid.T) renewCommand {
	c := renewCommand{Entries: drawEntries(t, 6), Lease: max(1, drawSpan(t, "lease"))}
	for range c.Entries {
		c.Behind = append(c.Behind, pick(t, "behind", 0, 0, 1))
	}
	return c
}

func (c renewCommand) run(m *storeTwins) {
	numbers := m.committedOrGone(c.Entries)
	versions := make([]uint64, len(numbers))
	for i, n := range numbers {
		row, _ := m.stored(n)
		versions[i] = row.Version - min(uint64(c.Behind[i]), row.Version)
	}
	m.same("renew", func(s twinSide) any {
		var held []processlog.Held
		for i, n := range numbers {
			held = append(held, processlog.Held{ID: s.id(n), Version: versions[i]})
		}
		left, err := s.store.Renew(m.ctx, held, c.Lease)
		return []any{slices.Sorted(slices.Values(s.ourIDs(left.Lost))), slices.Sorted(slices.Values(s.ourIDs(left.Busy))), s.err(err)}
	})
}

type outcomeOf struct {
	Entry               int
	Behind, BehindEpoch int
	Stranger            string // appended to the entry's idempotency key, so that the outcome belongs to another entry
	To                  compensator.State
	EndedBy             compensator.EndedBy // for a terminal state
	Processed, Undone   int
	After               time.Duration
	LastError           string
}

func drawOutcome(t *rapid.T) outcomeOf {
	o := outcomeOf{
		Entry: drawEntry().Draw(t, "entry"), Behind: pick(t, "behind", 0, 0, 0, 1), BehindEpoch: pick(t, "behind epoch", 0, 0, 0, 1), To: drawState(t),
		Processed: rapid.IntRange(0, 3).Draw(t, "processed"), Undone: rapid.IntRange(0, 3).Draw(t, "undone"), After: drawSpan(t, "after"),
		LastError: pick(t, "error", "", "it's \"down\" \\", "\xff\xfe\x00ü", strings.Repeat("ü", 1001)),
	}
	o.Stranger = pick(t, "stranger", "", "", "", "", "'s heir")
	if rapid.Bool().Draw(t, "success") {
		o.To = pick(t, "to", compensator.Succeeded, compensator.Succeeded, compensator.Compensated)
	}
	if o.To.Terminal() {
		o.After = 0
		o.EndedBy = pick(t, "ended by", compensator.EndedByHandler, compensator.EndedByExhausted, compensator.EndedByCrash)
	}
	return o
}

func (o outcomeOf) made(m *storeTwins, n int) processlog.Outcome {
	row, _ := m.stored(n)
	return processlog.Outcome{
		IdempotencyKey: compensator.IdempotencyKey(string(row.IdempotencyKey) + o.Stranger), Epoch: row.Epoch - min(uint32(o.BehindEpoch), row.Epoch), Version: row.Version - min(uint64(o.Behind), row.Version),
		To: o.To, EndedBy: o.EndedBy, ProcessCount: o.Processed, CompensateCount: o.Undone, After: o.After, LastError: o.LastError,
	}
}

// A process settles a batch twice after a lost answer.
type settleCommand struct {
	Token    processlog.Token
	Outcomes []outcomeOf
	Twice    bool
}

func drawSettle(t *rapid.T) settleCommand {
	return settleCommand{drawToken(t), rapid.SliceOfN(rapid.Custom(drawOutcome), 1, 10).Draw(t, "outcomes"), pick(t, "twice", false, false, true)}
}

func (c settleCommand) run(m *storeTwins) {
	var picks []int
	for _, o := range c.Outcomes {
		picks = append(picks, o.Entry)
	}
	numbers := m.committedOrGone(picks)
	var outcomes []processlog.Outcome
	for i, n := range numbers {
		outcomes = append(outcomes, c.Outcomes[i].made(m, n))
	}
	settle := func(s twinSide) any {
		for i, n := range numbers {
			outcomes[i].ID = s.id(n)
		}
		answers, err := s.store.Settle(m.ctx, c.Token, slices.Clone(outcomes))
		for i := range answers {
			if answers[i].Applied {
				answers[i].State = 0 // The state is returned only for outcomes that were not applied.
			}
		}
		return []any{answers, s.err(err)}
	}
	m.same("settle", settle)
	if c.Twice {
		m.same("settle again", settle)
	}
}

type settleTxCommand struct {
	Slot    int
	Token   processlog.Token
	Outcome outcomeOf
	Commit  bool
}

func drawSettleTx(t *rapid.T) settleTxCommand {
	return settleTxCommand{rapid.IntRange(0, 2).Draw(t, "slot"), drawToken(t), drawOutcome(t), rapid.Bool().Draw(t, "commit")}
}

func (c settleTxCommand) run(m *storeTwins) {
	n := m.entry(c.Outcome.Entry)
	outcome := c.Outcome.made(m, n)
	m.inTx(c.Slot, "settle in a transaction", func(s twinSide, tx compensator.Tx) (any, error) {
		outcome.ID = s.id(n)
		err := s.store.SettleTx(m.ctx, tx, c.Token, outcome)
		m.slots[c.Slot].wrote = m.slots[c.Slot].wrote || err == nil
		return nil, err
	})
	if c.Commit {
		m.end(c.Slot, true)
	}
}

type changeCommand struct {
	Slot          int // index in storeTwins.slots of the transaction; -1: the change has its own transaction
	Entry         int
	ByKey, Proven bool
	Change        processlog.Change
	Commit        bool
}

func drawChange(t *rapid.T) changeCommand {
	c := changeCommand{Slot: rapid.IntRange(-1, 2).Draw(t, "slot"), Entry: drawEntry().Draw(t, "entry"), ByKey: rapid.Bool().Draw(t, "by key"), Proven: rapid.Bool().Draw(t, "proven")}
	c.Change = processlog.Change{
		Action: pick(t, "action", processlog.ActionComplete, processlog.ActionCancel, processlog.ActionReschedule, processlog.ActionRequeue, processlog.ActionSettleManually),
		Token:  drawToken(t),
	}
	switch c.Change.Action {
	case processlog.ActionReschedule, processlog.ActionRequeue:
		c.Change.Delay, c.Change.Compensate = drawSpan(t, "delay"), rapid.Bool().Draw(t, "compensate")
	}
	if c.Change.Audited() {
		c.Change.Actor, c.Change.Reason = "Mia", "it's \"fine\" ü"
	}
	c.Commit = rapid.Bool().Draw(t, "commit")
	return c
}

func (m *storeTwins) ref(s twinSide, n int, byKey bool) compensator.Ref {
	switch {
	case byKey && n == unknownEntry:
		return compensator.IdempotencyKey("nothing")
	case byKey:
		return compensator.IdempotencyKey(m.entries[n].key)
	}
	return s.id(n)
}

func (c changeCommand) run(m *storeTwins) {
	n := m.entry(c.Entry)
	change := func(s twinSide, tx compensator.Tx) (any, error) {
		made := c.Change
		made.Ref = m.ref(s, n, c.ByKey)
		oldRow, err := s.store.Change(m.ctx, tx, c.Proven && tx != nil, made)
		if c.Slot >= 0 && err == nil {
			m.slots[c.Slot].wrote = true
		}
		return s.row(oldRow), err
	}
	if c.Slot < 0 {
		m.same("change", func(s twinSide) any {
			before, err := change(s, nil)
			return []any{before, s.err(err)}
		})
	} else {
		m.inTx(c.Slot, "change in a transaction", change)
		if c.Commit {
			m.end(c.Slot, true)
		}
	}
	if n != unknownEntry {
		m.same("history", func(s twinSide) any {
			history, err := s.store.History(m.ctx, s.id(n))
			for i := range history {
				history[i].EntryID = processlog.RowID(uint64(s.numberOf(history[i].EntryID)))
			}
			return []any{len(history), history, s.err(err)}
		})
	}
}

type scanCommand struct {
	Window processlog.Window
}

func drawScan(t *rapid.T) scanCommand {
	return scanCommand{processlog.Window{
		BusinessType: drawType(t), State: pick(t, "state", compensator.Pending, compensator.Retrying, compensator.Compensating),
		From: -drawSpan(t, "from") + drawSpan(t, "later"), To: drawSpan(t, "to"), Free: rapid.Bool().Draw(t, "free"), Limit: rapid.IntRange(1, 3).Draw(t, "limit"),
	}}
}

func (c scanCommand) run(m *storeTwins) {
	m.same("due", func(s twinSide) any {
		due, err := s.store.Due(m.ctx, c.Window.BusinessType, c.Window.Limit)
		return []any{s.ourIDs(due), s.err(err)}
	})
	m.same("heads", func(s twinSide) any {
		heads, err := s.store.Heads(m.ctx)
		lines := []string{}
		for _, h := range heads {
			lines = append(lines, fmt.Sprint(h))
		}
		return []any{slices.Sorted(slices.Values(lines)), s.err(err)}
	})
	m.same("scan", func(s twinSide) any {
		w := c.Window
		var pages []any
		for {
			found, err := s.store.Scan(m.ctx, w)
			pages = append(pages, s.scheduled(found), s.err(err))
			if len(found) < w.Limit {
				return pages
			}
			w.After = found[len(found)-1]
		}
	})
}

type listCommand struct {
	Filter admin.Filter
	Within time.Duration // how long before now the created range begins; 0: the list has no created range
}

func drawList(t *rapid.T) listCommand {
	c := listCommand{Filter: admin.Filter{Newest: rapid.Bool().Draw(t, "newest"), Limit: pick(t, "limit", 1, 2, 3, 0, -1, 1001)}}
	c.Filter.States = rapid.SliceOfN(rapid.Custom(drawState), 0, 2).Draw(t, "states")
	c.Filter.BusinessType = pick(t, "type", "", drawType(t))
	c.Filter.BatchID, c.Filter.BusinessID = pick(t, "batch", "", "", "b1"), pick(t, "business", "", "", "42")
	c.Filter.BusinessExtID = pick(t, "external", "", "", "ext 42")
	c.Within = drawSpan(t, "within")
	return c
}

func (c listCommand) run(m *storeTwins) {
	filter := c.Filter
	if c.Within > 0 {
		filter.CreatedFrom = time.Now().Add(-c.Within)
	}
	cursors := [2][]string{}
	m.same("list", func(s twinSide) any {
		f := filter
		var pages []any
		for {
			page, err := s.store.List(m.ctx, f)
			entries := []processlog.Row{}
			for _, e := range page.Rows {
				e.ID = processlog.RowID(uint64(s.numberOf(e.ID)))
				entries = append(entries, e)
			}
			pages = append(pages, entries, s.err(err))
			if page.Next == "" {
				return pages
			}
			f.Cursor = page.Next
			cursors[s.n] = append(cursors[s.n], page.Next)
		}
	})
	m.same("list with the cursor of another listing", func(s twinSide) any {
		f := filter
		f.Newest = !f.Newest
		var errs []string
		for _, cursor := range append(cursors[s.n], "none of ours") {
			f.Cursor = cursor
			_, err := s.store.List(m.ctx, f)
			errs = append(errs, s.err(err))
		}
		return errs
	})
}

type countCommand struct {
	Slot   int
	Filter admin.CountFilter
}

func drawCount(t *rapid.T) countCommand {
	return countCommand{rapid.IntRange(-1, 2).Draw(t, "slot"), admin.CountFilter{BatchID: pick(t, "batch", "", "b1"), BusinessType: pick(t, "type", "", drawType(t)), AtMost: pick(t, "at most", 0, 1, 2, -1)}}
}

func (c countCommand) run(m *storeTwins) {
	m.same("count", func(s twinSide) any {
		counts, err := s.store.Count(m.ctx, m.txOf(s, c.Slot), c.Filter)
		lines := []string{}
		for _, count := range counts {
			lines = append(lines, fmt.Sprintf("%+v", count))
		}
		return []any{slices.Sorted(slices.Values(lines)), s.err(err)}
	})
}

type lookUpCommand struct {
	Slot, Entry int
	ByKey       bool
}

func drawLookUp(t *rapid.T) lookUpCommand {
	return lookUpCommand{rapid.IntRange(-1, 2).Draw(t, "slot"), drawEntry().Draw(t, "entry"), rapid.Bool().Draw(t, "by key")}
}

func (c lookUpCommand) run(m *storeTwins) {
	keys := []compensator.IdempotencyKey{"nothing"}
	for key := range storeKeys {
		keys = append(keys, keyName(key))
	}
	m.same("ids", func(s twinSide) any {
		ids, err := s.store.IDs(m.ctx, m.txOf(s, c.Slot), keys)
		numbers := make(map[compensator.IdempotencyKey]int)
		for key, id := range ids {
			numbers[key] = s.numberOf(id)
		}
		return []any{numbers, s.err(err)}
	})
	n := m.entry(c.Entry)
	m.same("resolve", func(s twinSide) any {
		row, err := s.store.Resolve(m.ctx, m.ref(s, n, c.ByKey))
		return []any{s.row(row), s.err(err)}
	})
}

func (m *storeTwins) txOf(s twinSide, slot int) compensator.Tx {
	if slot < 0 || m.slots[slot] == nil {
		return nil
	}
	return m.slots[slot].sides[s.n]
}

type purgeCommand struct {
	BusinessType string
	State        compensator.State
	Age          time.Duration
	Limit        int
}

func drawPurge(t *rapid.T) purgeCommand {
	return purgeCommand{pick(t, "type", "", drawType(t)), drawState(t), drawSpan(t, "age") - pick(t, "negative", 0, 0, 0, time.Hour), rapid.IntRange(0, 3).Draw(t, "limit")}
}

func (c purgeCommand) run(m *storeTwins) {
	m.same("purge", func(s twinSide) any {
		purged, err := s.store.Purge(m.ctx, c.BusinessType, c.State, c.Age, c.Limit)
		return []any{purged, s.err(err)}
	})
}

type waitCommand struct{ For time.Duration }

func drawWait(t *rapid.T) waitCommand {
	return waitCommand{pick(t, "for", 300*time.Microsecond, time.Millisecond-time.Microsecond, time.Millisecond, 3*time.Millisecond, time.Second, time.Minute, time.Hour)}
}

func (c waitCommand) run(*storeTwins) { <-time.After(c.For) }
