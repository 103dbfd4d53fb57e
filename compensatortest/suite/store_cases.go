package suite

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

var casePromises = []storePromise{
	{"CaseOpensWithTheDeathOfItsEntry", false, ofOperations((*storeTest).caseOpensWithTheDeathOfItsEntry)},
	{"CaseOpensWithNothingElse", false, ofOperations((*storeTest).caseOpensWithNothingElse)},
	{"CaseOpensAmongOutcomesOfAllKinds", false, ofOperations((*storeTest).caseOpensAmongOutcomesOfAllKinds)},
	{"CaseIsOpenedAgainWithItsOwner", false, ofOperations((*storeTest).caseIsOpenedAgainWithItsOwner)},
	{"MissingCaseIsFoundAndOpened", false, ofOperations((*storeTest).missingCaseIsFoundAndOpened)},
	{"MissingCaseIsFoundSinceItsDeath", false, ofOperations((*storeTest).missingCaseIsFoundSinceItsDeath)},
	{"CaseIsOpenedOfWhatIsAsItWasRead", false, ofOperations((*storeTest).caseIsOpenedOfWhatIsAsItWasRead)},
	{"CaseOfWhatAnotherHoldsIsNotOpened", true, ofOperations((*storeTest).caseOfWhatAnotherHoldsIsNotOpened)},
	{"CaseOfAnEntryThatLivesIsClosed", false, ofOperations((*storeTest).caseOfAnEntryThatLivesIsClosed)},
	{"ClosedCaseIsKeptForAWhile", false, ofOperations((*storeTest).closedCaseIsKeptForAWhile)},
	{"CasesAreListedAsTheyAreDue", false, ofOperations((*storeTest).casesAreListedAsTheyAreDue)},
	{"GroupsAddUpToTheirCases", false, ofOperations((*storeTest).groupsAddUpToTheirCases)},
	{"GroupsAreCutAmongTheirTypesAlone", false, ofOperations((*storeTest).groupsAreCutAmongTheirTypesAlone)},
	{"CasesAreAssignedAsTheyWereSeen", false, ofOperations((*storeTest).casesAreAssignedAsTheyWereSeen)},
}

func caseDraft(print byte, minor int64, currency string) *processlog.CaseDraft {
	return &processlog.CaseDraft{Kind: processlog.CaseDead, Fingerprint: processlog.Fingerprint{print}, Amount: processlog.Amount{Minor: minor, Currency: currency}, Due: time.Hour}
}

// die makes an entry dead, which opens a case if draft is not nil.
func (t *storeTest) die(businessType string, draft *processlog.CaseDraft) processlog.Row {
	t.Helper()
	d := t.draft(businessType)
	d.BusinessID = string("o-" + d.IdempotencyKey)
	return t.dieAgain(t.insert(d)[0], draft)
}

func (t *storeTest) dieAgain(row processlog.Row, draft *processlog.CaseDraft) processlog.Row {
	t.Helper()
	o := outcome(t.claim(row.ID, token(9), time.Minute), processlog.Dead)
	o.ProcessCount, o.EndedBy, o.LastError, o.Case = 1, processlog.EndedByExhausted, "no such order: 订单 "+strings.Repeat("超", 300), draft
	require.True(t, t.settle(processlog.NewToken(), o).Applied)
	return t.load(row.ID)
}

func (t *storeTest) caseOf(id processlog.ID) (processlog.Case, bool) {
	t.Helper()
	cases := t.casesOf([]processlog.ID{id, processlog.RowID(id.Row() + 100_000)})
	c, found := cases[id]
	require.Len(t, cases, map[bool]int{true: 1}[found])
	return c, found
}

func (t *storeTest) casesOf(ids []processlog.ID) map[processlog.ID]processlog.Case {
	t.Helper()
	cases, err := t.ops().CasesOf(t.ctx, ids)
	require.NoError(t, err)
	found := make(map[processlog.ID]processlog.Case)
	for _, c := range cases {
		found[c.EntryID] = c
	}
	require.Len(t, found, len(cases))
	return found
}

func (t *storeTest) openCase(id processlog.ID) processlog.Case {
	t.Helper()
	c, found := t.caseOf(id)
	require.True(t, found && c.ClosedAt.IsZero(), "the case of entry %s is open", id)
	return c
}

func (t *storeTest) caseOpensWithTheDeathOfItsEntry() {
	require.NoError(t, t.ops().CheckOperations(t.ctx))
	row := t.die("refund", caseDraft(7, -12900, "CNY"))
	c := t.openCase(row.ID)
	assert.WithinRange(t, c.OpenedAt, row.CreatedAt, row.CreatedAt.Add(time.Minute))
	assert.WithinRange(t, c.DueAt, c.OpenedAt.Add(time.Hour), c.OpenedAt.Add(time.Hour+time.Second))
	want := processlog.Case{EntryID: row.ID, Epoch: row.Epoch, Version: c.Version, Kind: processlog.CaseDead, BusinessType: "refund", BusinessID: row.BusinessID,
		Fingerprint: processlog.Fingerprint{7}, EndedBy: processlog.EndedByExhausted, Error: string([]rune(row.LastError)[:processlog.MaxCaseError]),
		Amount: processlog.Amount{Minor: -12900, Currency: "CNY"}, OpenedAt: c.OpenedAt, DueAt: c.DueAt}
	assert.Equal(t, want, c)
	unknown := t.openCase(t.die("refund", caseDraft(7, 0, "")).ID)
	assert.Equal(t, processlog.Amount{}, unknown.Amount)
	scrubbed := caseDraft(7, 0, "")
	scrubbed.Error = "card …1111 '\\ " + strings.Repeat("超", 300)
	assert.Equal(t, string([]rune(scrubbed.Error)[:processlog.MaxCaseError]), t.openCase(t.die("refund", scrubbed).ID).Error, "the case stores its own error text, not the entry's")
	beyond := t.openCase(t.die("refund", caseDraft(7, processlog.MaxAmount+1, "CNY")).ID)
	assert.Equal(t, processlog.Amount{}, beyond.Amount, "an amount that could overflow a sum is not stored")
}

func (t *storeTest) caseOpensWithNothingElse() {
	row := t.insertOne("refund")
	claimed := t.claim(row.ID, token(9), time.Minute)
	again := outcome(claimed, processlog.Retrying)
	again.Case = caseDraft(1, 1, "CNY")
	require.True(t, t.settle(token(2), again).Applied)
	_, found := t.caseOf(row.ID)
	assert.False(t, found, "an entry that is tried again has no case")
	stale := outcome(claimed, processlog.Dead)
	stale.Case = caseDraft(1, 1, "CNY")
	assert.False(t, t.settle(token(3), stale).Applied)
	_, found = t.caseOf(row.ID)
	assert.False(t, found, "a dropped outcome opens no case")
	plain := outcome(t.claim(row.ID, token(9), time.Minute), processlog.Dead)
	require.True(t, t.settle(token(4), plain).Applied)
	_, found = t.caseOf(row.ID)
	assert.False(t, found, "an outcome without a case opens none")
}

// Failure: F118
func (t *storeTest) caseOpensAmongOutcomesOfAllKinds() {
	drafts := make([]processlog.Draft, 240) // These are more rows than one statement takes.
	for i := range drafts {
		drafts[i] = t.draft("refund")
	}
	ids := idsOf(t.insert(drafts...))
	var outcomes []processlog.Outcome
	for i, claimed := range t.claimAll(token(9), time.Minute, ids...) {
		o := outcome(claimed, []processlog.State{processlog.Dead, processlog.Succeeded, processlog.Retrying}[i%3])
		if o.To == processlog.Dead {
			o.Case = caseDraft(byte(i), int64(i), []string{"CNY", "USD", ""}[i/3%3])
			o.Case.Kind = processlog.CaseKind(1 + i/3%2)
		}
		outcomes = append(outcomes, o)
	}
	for range 2 { // A caller repeats Settle if its answer was lost. The second call must have the same results.
		answers, err := t.Store.Settle(t.ctx, token(12), outcomes)
		require.NoError(t, err)
		states, cases := t.statesOf(ids), t.casesOf(ids)
		for i, o := range outcomes {
			require.True(t, answers[i].Applied)
			require.Equal(t, o.To, states[o.ID])
			c, found := cases[o.ID]
			require.Equal(t, o.To == processlog.Dead, found)
			if found {
				want := o.Case.Amount
				if !want.Known() {
					want = processlog.Amount{}
				}
				require.Equal(t, []any{o.Case.Kind, o.Case.Fingerprint, want}, []any{c.Kind, c.Fingerprint, c.Amount})
				require.True(t, c.ClosedAt.IsZero())
			}
		}
	}
}

func (t *storeTest) caseIsOpenedAgainWithItsOwner() {
	row := t.die("refund", caseDraft(1, 100, "CNY"))
	first := t.openCase(row.ID)
	require.NoError(t, t.assign(row.ID, first.Version, "mei", processlog.Operation{Actor: "mei", Action: "take case", EntryID: row.ID}))
	answers, err := t.ops().ChangeAll(t.ctx, []processlog.Version{seenAs(row)}, newChange(nil, processlog.ActionRequeue))
	require.NoError(t, err)
	require.NoError(t, answers[0].Err)
	closed, _ := t.caseOf(row.ID)
	require.False(t, closed.ClosedAt.IsZero())
	t.dieAgain(row, caseDraft(2, 200, "USD"))
	again := t.openCase(row.ID)
	assert.Equal(t, []any{"mei", uint32(1), processlog.Fingerprint{2}, processlog.Amount{Minor: 200, Currency: "USD"}},
		[]any{again.Owner, again.Epoch, again.Fingerprint, again.Amount})
	assert.Greater(t, again.Version, closed.Version)
}

func (t *storeTest) missingCaseIsFoundAndOpened() {
	with, without, alive := t.die("refund", caseDraft(1, 1, "CNY")), t.die("refund", nil), t.insertOne("refund")
	closed := t.die("mail", caseDraft(1, 1, "CNY"))
	rows, err := t.ops().DeadWithoutCase(t.ctx, 0, 10)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	assert.Equal(t, without.ID, rows[0].ID)
	assert.Equal(t, without.Content, rows[0].Content, "the row has the content from which the amount is read")
	n, err := t.ops().OpenCases(t.ctx, []processlog.Row{rows[0], alive, with}, []processlog.CaseDraft{*caseDraft(9, 5, "USD"), *caseDraft(9, 5, "USD"), *caseDraft(8, 6, "EUR")})
	require.NoError(t, err)
	assert.Equal(t, 2, n, "an existing case is reopened, and an entry that is not dead gets no case")
	assert.Equal(t, processlog.Amount{Minor: 5, Currency: "USD"}, t.openCase(without.ID).Amount)
	_, found := t.caseOf(alive.ID)
	assert.False(t, found)
	assert.Equal(t, processlog.Fingerprint{8}, t.openCase(with.ID).Fingerprint)
	// The variable closed keeps the row as it was when the entry was dead. The requeue below does not change the
	// variable. So the later call of openCases passes an outdated row.
	t.change(closed.ID, processlog.ActionRequeue)
	_, err = t.ops().CloseCases(t.ctx, 10)
	require.NoError(t, err)
	assert.Zero(t, t.openCases(closed))
	c, _ := t.caseOf(closed.ID)
	assert.False(t, c.ClosedAt.IsZero())
	assert.Empty(t, t.withoutCase(0, 10))
}

func (t *storeTest) openCases(rows ...processlog.Row) int {
	t.Helper()
	drafts := make([]processlog.CaseDraft, len(rows))
	for i := range drafts {
		drafts[i] = *caseDraft(9, 5, "USD")
	}
	n, err := t.ops().OpenCases(t.ctx, rows, drafts)
	require.NoError(t, err)
	return n
}

func (t *storeTest) withoutCase(since time.Duration, limit int) []processlog.ID {
	t.Helper()
	rows, err := t.ops().DeadWithoutCase(t.ctx, since, limit)
	require.NoError(t, err)
	return idsOf(rows)
}

func (t *storeTest) missingCaseIsFoundSinceItsDeath() {
	refund, mail := t.die("refund", nil), t.die("mail", nil)
	both := []processlog.ID{refund.ID, mail.ID}
	for _, since := range []time.Duration{0, time.Hour} {
		assert.ElementsMatch(t, both, t.withoutCase(since, 10), "%s", since)
	}
	assert.Len(t, t.withoutCase(0, 1), 1)
	t.waitUntil(func() bool { return max(t.load(refund.ID).DueIn, t.load(mail.ID).DueIn) < -20*time.Millisecond }, "they have been dead for a while")
	assert.Empty(t, t.withoutCase(10*time.Millisecond, 10), "both died before that period")
	assert.ElementsMatch(t, both, t.withoutCase(0, 10))
}

func (t *storeTest) caseIsOpenedOfWhatIsAsItWasRead() {
	moved, same := t.die("refund", nil), t.die("refund", nil)
	stale := moved
	stale.Version-- // Make stale look like a row that was read before the last write of the entry.
	assert.Equal(t, 1, t.openCases(stale, same))
	t.openCase(same.ID)
	_, found := t.caseOf(moved.ID)
	assert.False(t, found)
	assert.Equal(t, 1, t.openCases(moved))
	t.openCase(moved.ID)
	assert.Zero(t, t.openCases())
}

func (t *storeTest) caseOfWhatAnotherHoldsIsNotOpened() {
	held, free := t.die("refund", nil), t.die("refund", nil)
	tx := t.begin()
	_, err := t.Store.Change(t.ctx, tx, false, newChange(held.ID, processlog.ActionCancel))
	require.NoError(t, err)
	assert.Equal(t, 1, t.openCases(held, free))
	t.openCase(free.ID)
	require.NoError(t, tx.Commit())
	_, found := t.caseOf(held.ID)
	assert.False(t, found, "an entry that is no longer dead gets no case")
}

func (t *storeTest) closedCaseIsKeptForAWhile() {
	const age = 100 * time.Millisecond
	var closed []processlog.Row
	for range 3 {
		closed = append(closed, t.die("refund", caseDraft(1, 1, "CNY")))
	}
	open := t.die("refund", caseDraft(1, 1, "CNY"))
	for _, row := range closed {
		t.change(row.ID, processlog.ActionCancel)
	}
	began := time.Now()
	n, err := t.ops().CloseCases(t.ctx, 2)
	require.NoError(t, err)
	assert.Equal(t, 2, n, "the call closes no more cases than its limit")
	n, err = t.ops().CloseCases(t.ctx, 10)
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	forgotten := 0
	t.waitUntil(func() bool {
		n, err := t.ops().ForgetCases(t.ctx, age, 2)
		require.NoError(t, err)
		require.LessOrEqual(t, n, 2)
		if forgotten += n; n > 0 {
			assert.GreaterOrEqual(t, time.Since(began), age)
		}
		return forgotten == 3
	}, "closed cases are deleted")
	assert.Len(t, t.casesOf(append(idsOf(closed), open.ID)), 1)
	t.openCase(open.ID)
}

func (t *storeTest) caseOfAnEntryThatLivesIsClosed() {
	cancelled, dead, requeued, purged := t.die("refund", caseDraft(1, 1, "CNY")), t.die("refund", caseDraft(1, 1, "CNY")), t.die("mail", caseDraft(1, 1, "CNY")), t.die("gone", caseDraft(1, 1, "CNY"))
	t.change(cancelled.ID, processlog.ActionCancel)
	t.change(requeued.ID, processlog.ActionRequeue)
	t.waitUntil(func() bool {
		n, err := t.Store.Purge(t.ctx, "gone", processlog.Dead, 0, 10)
		require.NoError(t, err)
		return n == 1
	}, "the entry is purged")
	n, err := t.ops().CloseCases(t.ctx, 10)
	require.NoError(t, err)
	assert.Equal(t, 3, n)
	for _, id := range []processlog.ID{cancelled.ID, requeued.ID, purged.ID} {
		c, found := t.caseOf(id)
		assert.True(t, found && !c.ClosedAt.IsZero())
	}
	t.openCase(dead.ID)
	n, err = t.ops().CloseCases(t.ctx, 10)
	require.NoError(t, err)
	assert.Zero(t, n)
	n, err = t.ops().ForgetCases(t.ctx, time.Hour, 10)
	require.NoError(t, err)
	assert.Zero(t, n)
	forgotten := 0
	t.waitUntil(func() bool {
		n, err := t.ops().ForgetCases(t.ctx, 0, 10)
		require.NoError(t, err)
		forgotten += n
		return forgotten == 3
	}, "closed cases are deleted")
	t.openCase(dead.ID)
}

func (t *storeTest) casesAreListedAsTheyAreDue() {
	var ids []processlog.ID
	for i := range 7 {
		draft := caseDraft(byte(1+i%2), 1, "CNY")
		draft.Due = time.Duration(10-i) * time.Hour
		draft.Kind = processlog.CaseKind(1 + i%2)
		ids = append(ids, t.die([]string{"refund", "mail"}[i%2], draft).ID)
	}
	require.NoError(t, t.assign(ids[3], t.openCase(ids[3]).Version, "mei", processlog.Operation{Actor: "mei", Action: "take case"}))
	list := func(f processlog.CaseFilter) (found []processlog.ID) {
		f.Limit = 2
		for {
			page, err := t.ops().Cases(t.ctx, f)
			require.NoError(t, err)
			require.LessOrEqual(t, len(page.Cases), 2)
			for _, c := range page.Cases {
				found = append(found, c.EntryID)
			}
			if f.Cursor = page.Next; f.Cursor == "" {
				return found
			}
		}
	}
	assert.Equal(t, []processlog.ID{ids[6], ids[5], ids[4], ids[3], ids[2], ids[1], ids[0]}, list(processlog.CaseFilter{}))
	assert.Equal(t, []processlog.ID{ids[5], ids[3], ids[1]}, list(processlog.CaseFilter{BusinessType: "mail"}))
	assert.Equal(t, []processlog.ID{ids[5], ids[3], ids[1]}, list(processlog.CaseFilter{BusinessTypes: []string{"mail", "gone"}}))
	assert.Empty(t, list(processlog.CaseFilter{BusinessType: "mail", BusinessTypes: []string{"refund"}}))
	assert.Empty(t, list(processlog.CaseFilter{BusinessTypes: []string{}}), "no types")
	page, err := t.ops().Cases(t.ctx, processlog.CaseFilter{BusinessTypes: []string{"mail"}, Limit: 3})
	require.NoError(t, err)
	assert.Empty(t, page.Next, "the remaining cases belong to another type")
	assert.Equal(t, []processlog.ID{ids[5], ids[3], ids[1]}, list(processlog.CaseFilter{Fingerprint: processlog.Fingerprint{2}}))
	assert.Equal(t, []processlog.ID{ids[5], ids[3], ids[1]}, list(processlog.CaseFilter{Kind: processlog.CaseUnknown}))
	assert.Equal(t, []processlog.ID{ids[3]}, list(processlog.CaseFilter{Owner: "mei"}))
	assert.Equal(t, []processlog.ID{ids[5], ids[1]}, list(processlog.CaseFilter{Unowned: true, BusinessType: "mail"}))
	for _, bad := range []processlog.CaseFilter{{Limit: -1}, {Limit: 1001}, {Cursor: "x"}} {
		_, err := t.ops().Cases(t.ctx, bad)
		var field *processlog.FieldError
		require.ErrorAs(t, err, &field, "%+v", bad)
	}
}

func (t *storeTest) groupsAddUpToTheirCases() {
	want := make(map[string]int64)
	n := make(map[string]int)
	for i := range 24 {
		businessType, print, currency := []string{"refund", "mail"}[i%2], byte(1+i%3), []string{"CNY", "USD", ""}[i%3]
		minor := int64(i) * 33
		draft := caseDraft(print, minor, currency)
		draft.Kind = []processlog.CaseKind{processlog.CaseDead, processlog.CaseUnknown}[i/12]
		t.die(businessType, draft)
		key := fmt.Sprint(businessType, processlog.Fingerprint{print}, currency)
		n[key]++
		if currency != "" {
			want[key] += minor
		} else {
			want[key] += 0
		}
	}
	closed := t.die("refund", caseDraft(1, 1_000_000, "CNY"))
	t.change(closed.ID, processlog.ActionCancel)
	_, err := t.ops().CloseCases(t.ctx, 10)
	require.NoError(t, err)
	counts, err := t.ops().CountCases(t.ctx)
	require.NoError(t, err)
	assert.ElementsMatch(t, []processlog.CaseCount{
		{BusinessType: "refund", Kind: processlog.CaseDead, N: 6}, {BusinessType: "refund", Kind: processlog.CaseUnknown, N: 6},
		{BusinessType: "mail", Kind: processlog.CaseDead, N: 6}, {BusinessType: "mail", Kind: processlog.CaseUnknown, N: 6},
	}, counts)
	groups, err := t.ops().CaseGroups(t.ctx, nil, processlog.Fingerprint{})
	require.NoError(t, err)
	require.Len(t, groups, len(want))
	one, err := t.ops().CaseGroups(t.ctx, []string{"mail"}, processlog.Fingerprint{2})
	require.NoError(t, err)
	require.NotEmpty(t, one)
	assert.ElementsMatch(t, slices.DeleteFunc(slices.Clone(groups), func(g processlog.CaseGroup) bool {
		return g.BusinessType != "mail" || g.Fingerprint != processlog.Fingerprint{2}
	}), one, "the groups have the same failure")
	for _, g := range groups {
		key := fmt.Sprint(g.BusinessType, g.Fingerprint, g.Currency)
		assert.Equal(t, []any{n[key], want[key]}, []any{g.N, g.Sum}, key)
		example := t.openCase(g.Example)
		assert.Equal(t, []any{g.BusinessType, g.Fingerprint, g.Currency}, []any{example.BusinessType, example.Fingerprint, example.Amount.Currency})
		assert.Equal(t, []any{g.Error, g.Kind}, []any{example.Error, example.Kind})
		assert.False(t, g.Last.Before(g.First) || g.First.IsZero())
	}
}

// Groups of other types must not use up the limit of CaseGroups.
// Failure: F122
func (t *storeTest) groupsAreCutAmongTheirTypesAlone() {
	rare := t.die("rare", caseDraft(0, 1, "CNY"))
	drafts := make([]processlog.Draft, 1001)
	for i := range drafts {
		drafts[i] = t.draft("many")
	}
	var many []processlog.Outcome
	for i, row := range t.claimAll(token(9), time.Minute, idsOf(t.insert(drafts...))...) {
		o := outcome(row, processlog.Dead)
		o.Case = caseDraft(0, 1, "CNY")
		o.Case.Fingerprint = processlog.Fingerprint{1, byte(i), byte(i >> 8)}
		many = append(many, o)
	}
	_, err := t.Store.Settle(t.ctx, token(12), many)
	require.NoError(t, err)
	more := t.die("many", caseDraft(0, 1, "CNY"))
	t.die("many", caseDraft(0, 1, "CNY"))
	groups, err := t.ops().CaseGroups(t.ctx, nil, processlog.Fingerprint{})
	require.NoError(t, err)
	require.Len(t, groups, 1000)
	assert.Equal(t, []any{"many", 2}, []any{groups[0].BusinessType, groups[0].N}, "%s", more.ID)
	groups, err = t.ops().CaseGroups(t.ctx, []string{"rare", "nobody's"}, processlog.Fingerprint{})
	require.NoError(t, err)
	require.Len(t, groups, 1)
	assert.Equal(t, rare.ID, groups[0].Example)
	groups, err = t.ops().CaseGroups(t.ctx, []string{}, processlog.Fingerprint{})
	require.NoError(t, err)
	assert.Empty(t, groups, "no types")
}

// Failure: F120
func (t *storeTest) casesAreAssignedAsTheyWereSeen() {
	first, second, ended, last := t.die("refund", caseDraft(1, 1, "CNY")), t.die("mail", caseDraft(2, 0, "")), t.die("refund", caseDraft(1, 1, "CNY")), t.die("mail", caseDraft(2, 0, ""))
	seen := func(id processlog.ID) processlog.SeenCase {
		c, _ := t.caseOf(id)
		return processlog.SeenCase{EntryID: id, Version: c.Version}
	}
	op := processlog.Operation{Actor: "mei", Action: "take case", Reason: "mine"}
	before := seen(second.ID)
	require.NoError(t, t.assign(second.ID, before.Version, "bob", op))
	require.ErrorIs(t, t.assign(second.ID, before.Version, "mei", op), processlog.ErrChanged)
	t.change(ended.ID, processlog.ActionCancel)
	_, err := t.ops().CloseCases(t.ctx, 10)
	require.NoError(t, err)

	answers, err := t.ops().AssignCases(t.ctx, []processlog.SeenCase{seen(ended.ID), before, {EntryID: processlog.RowID(ended.ID.Row() + 1000)}, seen(last.ID), seen(first.ID)}, "mei", op)
	require.NoError(t, err)
	require.Len(t, answers, 5)
	require.ErrorIs(t, answers[0], processlog.ErrNotFound, "the case is closed")
	require.ErrorIs(t, answers[1], processlog.ErrChanged)
	require.ErrorIs(t, answers[2], processlog.ErrNotFound, "the case never existed")
	require.NoError(t, errors.Join(answers[3:]...))
	assert.Equal(t, []string{"mei", "bob", "mei"}, []string{t.openCase(first.ID).Owner, t.openCase(second.ID).Owner, t.openCase(last.ID).Owner})
	require.NoError(t, t.assign(first.ID, seen(first.ID).Version, "", op), "an empty owner gives the case back")
	assert.Empty(t, t.openCase(first.ID).Owner)
	page, err := t.ops().AuditLog(t.ctx, processlog.AuditLogFilter{Action: "take case"})
	require.NoError(t, err)
	var told []string
	for _, r := range page.Records {
		told = append(told, fmt.Sprint(r.Actor, " ", r.BusinessType, " ", r.EntryID, " ", r.Reason))
	}
	assert.ElementsMatch(t, []string{fmt.Sprint("mei refund ", first.ID, " mine"), fmt.Sprint("mei refund ", first.ID, " mine"), fmt.Sprint("mei mail ", second.ID, " mine"),
		fmt.Sprint("mei mail ", last.ID, " mine")}, told,
		"a case that was not assigned has no record")
}

func (t *storeTest) assign(id processlog.ID, version uint64, owner string, op processlog.Operation) error {
	answers, err := t.ops().AssignCases(t.ctx, []processlog.SeenCase{{EntryID: id, Version: version}}, owner, op)
	return errors.Join(append(answers, err)...)
}
