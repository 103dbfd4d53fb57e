package suite

import (
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

// turnPromises are about the lines of serial types.
var turnPromises = []storePromise{
	{"LineIsInTheOrderOfIds", false, (*storeTest).lineIsInTheOrderOfIDs},
	{"TurnIsNotedWithItsTransactionOnly", false, (*storeTest).turnIsNotedWithItsTransactionOnly},
	{"LineIsTakenByTheLeaseOfAnother", false, (*storeTest).lineIsTakenByTheLeaseOfAnother},
	{"EndedEntryCountsInNoLine", false, (*storeTest).endedEntryCountsInNoLine},
	{"DeadEntryCountsWhereItIsSaid", false, (*storeTest).deadEntryCountsWhereItIsSaid},
	{"RequeuedEntryIsNotedUnderItsEpoch", false, (*storeTest).requeuedEntryIsNotedUnderItsEpoch},
	{"ParkedEntryIsGivenBackForAWhile", false, (*storeTest).parkedEntryIsGivenBackForAWhile},
	{"FirstOfALineIsMadeDue", false, (*storeTest).firstOfALineIsMadeDue},
	{"ParkedAsItWasBornIsMadeDue", false, (*storeTest).parkedAsItWasBornIsMadeDue},
	{"OnlyWhatIsParkedIsMadeDue", false, (*storeTest).onlyWhatIsParkedIsMadeDue},
	{"LockedTurnIsNotWaitedFor", true, (*storeTest).lockedTurnIsNotWaitedFor},
	{"LongLineIsForgottenFromItsFront", false, (*storeTest).longLineIsForgottenFromItsFront},
	{"ErasedEntryLeavesItsLineOnceItHasEnded", false, (*storeTest).erasedEntryLeavesItsLineOnceItHasEnded},
}

func turnOf(key string, row processlog.Row) processlog.Turn {
	return processlog.Turn{BusinessType: row.BusinessType, Key: key, ID: row.ID, Epoch: row.Epoch}
}

// lined commits n entries that stand in the line of a key.
func (t *storeTest) lined(key string, n int) []processlog.Row {
	t.Helper()
	var drafts []processlog.Draft
	for range n {
		drafts = append(drafts, t.draft("serial"))
	}
	rows := t.insert(drafts...)
	t.join(key, rows...)
	return rows
}

func (t *storeTest) join(key string, rows ...processlog.Row) {
	t.Helper()
	var turns []processlog.Turn
	for _, row := range rows {
		turns = append(turns, turnOf(key, row))
	}
	tx := t.begin()
	require.NoError(t, t.Store.Join(t.ctx, tx, turns))
	require.NoError(t, tx.Commit())
}

// line reads the line in which a claimed entry stands.
func (t *storeTest) line(key string, row processlog.Row, dead bool) processlog.Line {
	t.Helper()
	lines, err := t.Store.Lines(t.ctx, row.BusinessType, []processlog.Turn{turnOf(key, row)}, row.Token, dead)
	require.NoError(t, err)
	return lines[key]
}

func (t *storeTest) park(key string, wait time.Duration, rows ...processlog.Row) {
	t.Helper()
	var parked []processlog.Parked
	for _, row := range rows {
		parked = append(parked, processlog.Parked{Turn: turnOf(key, row), Version: row.Version, Wait: wait})
	}
	require.NoError(t, t.Store.Park(t.ctx, parked, rows[0].Token))
}

func (t *storeTest) advance(dead bool, keys ...string) []processlog.ID {
	t.Helper()
	woken, err := t.Store.Advance(t.ctx, "serial", keys, dead)
	require.NoError(t, err)
	return woken
}

func (t *storeTest) lineIsInTheOrderOfIDs() {
	rows := t.lined("a", 3)
	other := t.lined("b", 1)[0]
	third := t.claim(rows[2].ID, token(1), time.Minute)
	assert.Equal(t, processlog.Line{First: rows[0].ID, Known: 1, Length: 3}, t.line("a", third, true))
	claimed := t.claim(other.ID, token(1), time.Minute)
	turns := []processlog.Turn{turnOf("a", third), turnOf("a", rows[0]), turnOf("b", claimed), turnOf("c", rows[1])}
	lines, err := t.Store.Lines(t.ctx, "serial", turns, token(1), true)
	require.NoError(t, err)
	assert.Equal(t, map[string]processlog.Line{
		"a": {First: rows[0].ID, Known: 2, Length: 3}, "b": {First: other.ID, Known: 1, Length: 1}, "c": {},
	}, lines)
	odd := "ü\x00'\\" + strings.Repeat("x", processlog.MaxTurnKey-5)
	last := t.lined(odd, 1)[0]
	assert.Equal(t, last.ID, t.line(odd, last, true).First, "any bytes are a key")
	assert.Zero(t, t.line(strings.ToUpper(odd), last, true), "and no other")
	_, err = t.Store.Lines(t.ctx, "serial", nil, token(1), true)
	assert.NoError(t, err, "the table is there")
}

func (t *storeTest) turnIsNotedWithItsTransactionOnly() {
	for _, commit := range []bool{false, true} {
		d := t.draft("serial")
		tx := t.begin()
		inserted, err := t.Store.Insert(t.ctx, tx, []processlog.Draft{d}, false)
		require.NoError(t, err)
		turn := processlog.Turn{BusinessType: "serial", Key: "a", ID: inserted[0].ID}
		require.NoError(t, t.Store.Join(t.ctx, tx, []processlog.Turn{turn}))
		if commit {
			require.NoError(t, tx.Commit())
		} else {
			require.NoError(t, tx.Rollback())
		}
		lines, err := t.Store.Lines(t.ctx, "serial", []processlog.Turn{turn}, token(1), true)
		require.NoError(t, err)
		assert.Equal(t, commit, lines["a"].Known == 1)
		assert.Equal(t, commit, lines["a"].First == turn.ID)
	}
}

func (t *storeTest) lineIsTakenByTheLeaseOfAnother() {
	rows := t.lined("a", 2)
	first := t.claim(rows[0].ID, token(1), time.Minute)
	assert.False(t, t.line("a", first, true).Taken, "its own")
	second := t.claim(rows[1].ID, token(2), 200*time.Millisecond)
	assert.True(t, t.line("a", first, true).Taken)
	assert.True(t, t.line("a", second, true).Taken)
	t.until(func() bool { return !t.line("a", first, true).Taken }, "the lease ends")
}

func (t *storeTest) endedEntryCountsInNoLine() {
	rows := t.lined("a", 4)
	t.settleTo(rows[0], processlog.Succeeded)
	t.change(rows[1].ID, processlog.ActionCancel)
	assert.Equal(t, processlog.Line{First: rows[2].ID, Known: 1, Length: 4}, t.line("a", rows[3], true))
	t.settleTo(rows[2], processlog.Retrying)
	assert.Equal(t, rows[2].ID, t.line("a", rows[3], true).First, "it waits, and keeps its turn")
	assert.Empty(t, t.advance(true, "a"), "nobody is parked")
	assert.Equal(t, processlog.Line{First: rows[2].ID, Known: 1, Length: 2}, t.line("a", rows[3], true), "those who have ended are forgotten")
}

func (t *storeTest) deadEntryCountsWhereItIsSaid() {
	rows := t.lined("a", 2)
	t.settleTo(rows[0], processlog.Dead)
	assert.Equal(t, rows[0].ID, t.line("a", rows[1], true).First)
	assert.Equal(t, rows[1].ID, t.line("a", rows[1], false).First)
	t.advance(true, "a")
	assert.Equal(t, 2, t.line("a", rows[1], true).Length, "it stands there still")
	t.change(rows[0].ID, processlog.ActionRequeue)
	assert.Equal(t, rows[0].ID, t.line("a", rows[1], true).First, "requeued, too")
	t.settleTo(t.load(rows[0].ID), processlog.Dead)
	t.advance(false, "a")
	assert.Equal(t, 1, t.line("a", rows[1], true).Length, "where it does not count it is forgotten")
}

func (t *storeTest) requeuedEntryIsNotedUnderItsEpoch() {
	row := t.lined("a", 1)[0]
	t.settleTo(row, processlog.Succeeded)
	t.change(row.ID, processlog.ActionRequeue)
	again := t.claim(row.ID, token(1), time.Minute)
	require.NotEqual(t, row.Epoch, again.Epoch)
	assert.Equal(t, processlog.Line{First: row.ID, Length: 1}, t.line("a", again, true), "of the epoch before")
	t.join("a", again)
	assert.Equal(t, processlog.Line{First: row.ID, Known: 1, Length: 1}, t.line("a", again, true))
	t.join("a", again)
	assert.Equal(t, 1, t.line("a", again, true).Length, "once")
}

func (t *storeTest) parkedEntryIsGivenBackForAWhile() {
	rows := t.lined("a", 3)
	lost := t.claim(rows[1].ID, token(1), time.Millisecond)
	t.until(func() bool {
		found, err := t.Store.Claim(t.ctx, []processlog.Wanted{{ID: lost.ID}}, token(2), time.Minute, all)
		return err == nil && len(found.Mine) == 1
	}, "the lease ends")
	second, theirs := t.load(lost.ID), t.claim(rows[2].ID, token(3), time.Minute)
	t.park("a", time.Hour, second, theirs)
	row := t.load(second.ID)
	assert.Equal(t, second.Version+1, row.Version)
	assert.Equal(t, 1, row.DeliveryCount, "the lease that was lost counts on")
	assert.Equal(t, processlog.Pending, row.State)
	assert.LessOrEqual(t, row.LeaseLeft, time.Duration(0))
	assert.InDelta(t, time.Hour, row.DueIn, float64(time.Minute))
	assert.Equal(t, theirs.Version, t.load(theirs.ID).Version, "another's claim")
	t.park("a", time.Minute, second)
	assert.Equal(t, row.Version, t.load(second.ID).Version, "again, as after an unknown outcome")
}

func (t *storeTest) firstOfALineIsMadeDue() {
	rows := t.lined("a", 3)
	first, second, third := t.claim(rows[0].ID, token(1), time.Minute), t.claim(rows[1].ID, token(2), time.Minute), t.claim(rows[2].ID, token(2), time.Minute)
	t.park("a", time.Hour, second, third)
	assert.Empty(t, t.advance(true, "a", "b"), "somebody is first, and runs")
	require.True(t, t.settle(token(4), outcome(first, processlog.Succeeded)).Applied)
	assert.Equal(t, []processlog.ID{second.ID}, t.advance(true, "a", "b"))
	assert.LessOrEqual(t, t.load(second.ID).DueIn, time.Duration(0))
	assert.Greater(t, t.load(third.ID).DueIn, time.Duration(0))
	assert.Empty(t, t.advance(true, "a"), "once")
	late := t.claim(rows[1].ID, token(6), time.Minute)
	running := t.claim(t.lined("a", 1)[0].ID, token(7), time.Minute)
	t.park("a", time.Hour, late)
	assert.Empty(t, t.advance(true, "a"), "first, and another runs already: it would come in vain")
	require.True(t, t.settle(token(8), outcome(running, processlog.Succeeded)).Applied)
	assert.Equal(t, []processlog.ID{second.ID}, t.advance(true, "a"))
	claimed := t.claim(second.ID, token(5), time.Minute)
	assert.Equal(t, processlog.Line{First: second.ID, Known: 1, Length: 3}, t.line("a", claimed, true))
}

// parkedAsItWasBornIsMadeDue has an entry parked that nobody has written since it was inserted.
func (t *storeTest) parkedAsItWasBornIsMadeDue() {
	d := t.draft("serial")
	d.Token, d.Lease = token(1), time.Minute
	row := t.insert(d)[0]
	require.Zero(t, row.Version)
	t.join("a", row)
	t.park("a", time.Hour, row)
	assert.Equal(t, []processlog.ID{row.ID}, t.advance(true, "a"))
}

func (t *storeTest) onlyWhatIsParkedIsMadeDue() {
	rows := t.lined("a", 1)
	row := t.claim(rows[0].ID, token(1), time.Minute)
	t.park("a", time.Hour, row)
	ch := newChange(row.ID, processlog.ActionReschedule)
	ch.Delay = 2 * time.Hour
	_, err := t.Store.Change(t.ctx, nil, false, ch)
	require.NoError(t, err)
	assert.Empty(t, t.advance(true, "a"), "somebody has set another moment")
	d := t.draft("serial")
	d.Delay = time.Hour
	t.join("b", t.insert(d)...)
	assert.Empty(t, t.advance(true, "b"), "it was recorded so")
	again := t.lined("c", 1)[0]
	claimed := t.claim(again.ID, token(1), time.Minute)
	o := outcome(claimed, processlog.Retrying)
	o.After = time.Hour
	require.True(t, t.settle(token(2), o).Applied)
	assert.Empty(t, t.advance(true, "c"), "its schedule says so")
}

func (t *storeTest) lockedTurnIsNotWaitedFor() {
	rows := t.lined("a", 1)
	row := t.claim(rows[0].ID, token(1), time.Minute)
	t.park("a", time.Hour, row)
	tx := t.begin()
	_, err := t.Store.Change(t.ctx, tx, false, newChange(row.ID, processlog.ActionCancel))
	require.NoError(t, err)
	assert.Empty(t, t.advance(true, "a"))
	require.NoError(t, tx.Rollback())
	assert.Len(t, t.advance(true, "a"), 1)
}

func (t *storeTest) longLineIsForgottenFromItsFront() {
	rows := t.lined("a", 40)
	for _, row := range rows[:35] {
		t.change(row.ID, processlog.ActionCancel)
	}
	last := t.claim(rows[35].ID, token(1), time.Minute)
	t.park("a", time.Hour, last)
	assert.Equal(t, []processlog.ID{last.ID}, t.advance(true, "a"))
	assert.Equal(t, 5, t.line("a", last, true).Length)
	for _, row := range rows[35:] {
		t.change(row.ID, processlog.ActionCancel)
	}
	assert.Empty(t, t.advance(true, "a"))
	assert.Zero(t, t.line("a", last, true))
}

func (t *storeTest) erasedEntryLeavesItsLineOnceItHasEnded() {
	rows := t.lined("a", 6)
	t.settleTo(rows[0], processlog.Dead)
	t.change(rows[1].ID, processlog.ActionCancel)
	t.change(rows[1].ID, processlog.ActionErase)
	assert.Equal(t, processlog.Line{First: rows[0].ID, Known: 1, Length: 5}, t.line("a", rows[5], true), "cancelled in the middle, then erased")
	t.change(rows[0].ID, processlog.ActionErase)
	assert.Equal(t, processlog.Line{First: rows[0].ID, Known: 1, Length: 5}, t.line("a", rows[5], true), "a dead one holds its turn, erased too")
	t.change(rows[0].ID, processlog.ActionSettleByHand)
	assert.Equal(t, processlog.Line{First: rows[2].ID, Known: 1, Length: 4}, t.line("a", rows[5], true), "until somebody ends it")

	t.settleTo(rows[2], processlog.Dead)
	t.change(rows[2].ID, processlog.ActionErase)
	tx := t.begin()
	_, err := t.Store.Change(t.ctx, tx, false, newChange(rows[2].ID, processlog.ActionCancel))
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	assert.Equal(t, processlog.Line{First: rows[2].ID, Known: 1, Length: 4}, t.line("a", rows[5], true), "with its transaction only")
	tx = t.begin()
	_, err = t.Store.Change(t.ctx, tx, false, newChange(rows[2].ID, processlog.ActionCancel))
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	assert.Equal(t, processlog.Line{First: rows[3].ID, Known: 1, Length: 3}, t.line("a", rows[5], true))
	t.change(rows[3].ID, processlog.ActionComplete)
	assert.Equal(t, processlog.Line{First: rows[4].ID, Known: 1, Length: 3}, t.line("a", rows[5], true), "of one that is not erased the note stays until the line moves on")
}
