package suite

import (
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

var orderingPromises = []storePromise{
	{"LineIsInTheOrderOfIds", false, (*storeTest).keyIsInTheOrderOfIDs},
	{"OrderIDDecides", false, (*storeTest).orderIDDecides},
	{"OnlyTheFirstOfAKeyIsNotBlocked", false, (*storeTest).onlyTheFirstOfAKeyIsNotBlocked},
	{"FrontsAreDueFreeAndFirst", false, (*storeTest).frontsAreDueFreeAndFirst},
	{"MembersAreReadWhereNoneIsClaimed", false, (*storeTest).membersAreReadWhereNoneIsClaimed},
	{"LongKeyIsToldToItsEnd", false, (*storeTest).longKeyIsToldToItsEnd},
	{"NoteOfAnEarlierEpochBlocksNothing", false, (*storeTest).noteOfAnEarlierEpochBlocksNothing},
	{"NamedEntryIsForgotten", false, (*storeTest).namedEntryIsForgotten},
	{"PositionIsNotedWithItsTransactionOnly", false, (*storeTest).positionIsNotedWithItsTransactionOnly},
	{"KeyIsTakenByTheLeaseOfAnother", false, (*storeTest).keyIsTakenByTheLeaseOfAnother},
	{"EndedEntryCountsUnderNoKey", false, (*storeTest).endedEntryCountsUnderNoKey},
	{"DeadEntryCountsWhereItIsSaid", false, (*storeTest).deadEntryCountsWhereItIsSaid},
	{"RequeuedEntryIsNotedUnderItsEpoch", false, (*storeTest).requeuedEntryIsNotedUnderItsEpoch},
	{"BlockedEntryIsGivenBackForAWhile", false, (*storeTest).blockedEntryIsGivenBackForAWhile},
	{"FirstOfAKeyIsMadeDue", false, (*storeTest).firstOfAKeyIsMadeDue},
	{"BlockedAsItWasInsertedIsMadeDue", false, (*storeTest).blockedAsItWasInsertedIsMadeDue},
	{"OnlyWhatIsBlockedIsMadeDue", false, (*storeTest).onlyWhatIsBlockedIsMadeDue},
	{"LockedPositionIsNotWaitedFor", true, (*storeTest).lockedPositionIsNotWaitedFor},
	{"LongKeyIsForgottenFromItsFront", false, (*storeTest).longKeyIsForgottenFromItsFront},
	{"ErasedEntryLeavesItsKeyOnceItHasEnded", false, (*storeTest).erasedEntryLeavesItsKeyOnceItHasEnded},
}

func positionOf(key string, row processlog.Row) processlog.Position {
	return processlog.Position{BusinessType: row.BusinessType, Key: key, ID: row.ID, Epoch: row.Epoch}
}

func (t *storeTest) commitWithPositions(key string, n int) []processlog.Row {
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
	var positions []processlog.Position
	for _, row := range rows {
		positions = append(positions, positionOf(key, row))
	}
	tx := t.begin()
	require.NoError(t, t.Store.Join(t.ctx, tx, positions))
	require.NoError(t, tx.Commit())
}

// keyState returns the KeyState that KeyStates reads for the key. It asserts that Firsts returns the same First and
// Known.
func (t *storeTest) keyState(key string, row processlog.Row, dead bool) processlog.KeyState {
	t.Helper()
	lines, err := t.Store.KeyStates(t.ctx, row.BusinessType, []processlog.Position{positionOf(key, row)}, row.Token, dead)
	require.NoError(t, err)
	firsts, err := t.Store.Firsts(t.ctx, row.BusinessType, []processlog.Position{positionOf(key, row)}, dead)
	require.NoError(t, err)
	assert.Equal(t, lines[key].First, firsts[key].First, "Firsts returns the same first entry as KeyStates")
	assert.Equal(t, lines[key].Known, firsts[key].Known, "Firsts returns the same count as KeyStates")
	return lines[key]
}

func members(rows ...processlog.Row) (list []processlog.Member) {
	for _, row := range rows {
		list = append(list, processlog.Member{ID: row.ID, Epoch: row.Epoch})
	}
	return list
}

// assertMembers needs a key without claimed entries.
func (t *storeTest) assertMembers(key string, dead bool, want []processlog.Row, why ...any) {
	t.Helper()
	lines, err := t.Store.KeyStates(t.ctx, "serial", []processlog.Position{{BusinessType: "serial", Key: key}}, token(99), dead)
	require.NoError(t, err)
	assert.Equal(t, members(want...), lines[key].Members, why...)
}

func (t *storeTest) block(key string, wait time.Duration, rows ...processlog.Row) {
	t.Helper()
	var blocked []processlog.BlockedEntry
	for _, row := range rows {
		blocked = append(blocked, processlog.BlockedEntry{Position: positionOf(key, row), Version: row.Version, Wait: wait})
	}
	require.NoError(t, t.Store.Block(t.ctx, blocked, rows[0].Token))
}

func (t *storeTest) advance(dead bool, keys ...string) []processlog.ID {
	t.Helper()
	var left []processlog.Position
	for _, key := range keys {
		left = append(left, processlog.Position{BusinessType: "serial", Key: key})
	}
	return t.advanceBehind(dead, left...)
}

func (t *storeTest) advanceBehind(dead bool, left ...processlog.Position) []processlog.ID {
	t.Helper()
	next, err := t.Store.Advance(t.ctx, "serial", left, dead)
	require.NoError(t, err)
	return next
}

func (t *storeTest) keyIsInTheOrderOfIDs() {
	rows := t.commitWithPositions("a", 3)
	other := t.commitWithPositions("b", 1)[0]
	third := t.claim(rows[2].ID, token(1), time.Minute)
	assert.Equal(t, processlog.KeyState{First: rows[0].ID, Known: 1, Members: members(rows...)}, t.keyState("a", third, true))
	claimed := t.claim(other.ID, token(1), time.Minute)
	positions := []processlog.Position{positionOf("a", third), positionOf("a", rows[0]), positionOf("b", claimed), positionOf("c", rows[1])}
	lines, err := t.Store.KeyStates(t.ctx, "serial", positions, token(1), true)
	require.NoError(t, err)
	assert.Equal(t, map[string]processlog.KeyState{
		"a": {First: rows[0].ID, Known: 2, Members: members(rows...)}, "b": {First: other.ID, Known: 1, Members: members(other)}, "c": {},
	}, lines)
	firsts, err := t.Store.Firsts(t.ctx, "serial", positions, true)
	require.NoError(t, err)
	assert.Equal(t, map[string]processlog.KeyState{"a": {First: rows[0].ID, Known: 2}, "b": {First: other.ID, Known: 1}, "c": {}}, firsts)
	odd := "ü\x00'\\" + strings.Repeat("x", processlog.MaxOrderingKey-5)
	last := t.commitWithPositions(odd, 1)[0]
	assert.Equal(t, last.ID, t.keyState(odd, last, true).First, "a key may hold any bytes")
	assert.Zero(t, t.keyState(strings.ToUpper(odd), last, true), "a key that differs in case is another key")
	_, err = t.Store.KeyStates(t.ctx, "serial", nil, token(1), true)
	assert.NoError(t, err, "the ordering table exists")
}

// The entries' order ids are a permutation of their ids.
// Failure: F112
func (t *storeTest) orderIDDecides() {
	rows := t.committed("serial", 3)
	orderID := []int{2, 0, 1}
	var positions []processlog.Position
	for i, row := range rows {
		position := positionOf("a", row)
		position.OrderID = rows[orderID[i]].ID
		positions = append(positions, position)
	}
	tx := t.begin()
	require.NoError(t, t.Store.Join(t.ctx, tx, positions))
	require.NoError(t, tx.Commit())
	order := []processlog.Row{rows[1], rows[2], rows[0]}
	t.assertMembers("a", true, order)
	ids := []processlog.ID{rows[0].ID, rows[1].ID, rows[2].ID}
	assert.ElementsMatch(t, []processlog.ID{rows[2].ID, rows[0].ID}, t.blocked(ids, true))
	assert.Equal(t, []processlog.ID{rows[1].ID}, t.fronts(true))
	claimed := t.claim(rows[0].ID, token(1), time.Minute)
	t.block("a", time.Hour, claimed)
	t.settleTo(rows[1], processlog.Succeeded)
	assert.Equal(t, []processlog.ID{rows[2].ID}, t.advance(true, "a"))
	t.settleTo(rows[2], processlog.Succeeded)
	assert.Equal(t, []processlog.ID{rows[0].ID}, t.advance(true, "a"), "a note keeps its position when its entry is blocked")
	behind := t.commitWithPositions("a", 1)[0]
	t.assertMembers("a", true, []processlog.Row{t.load(rows[0].ID), behind})
}

func (t *storeTest) committed(businessType string, n int) []processlog.Row {
	t.Helper()
	var drafts []processlog.Draft
	for range n {
		drafts = append(drafts, t.draft(businessType))
	}
	return t.insert(drafts...)
}

func (t *storeTest) blocked(ids []processlog.ID, dead bool) []processlog.ID {
	t.Helper()
	blocked, err := t.Store.Blocked(t.ctx, "serial", ids, dead)
	require.NoError(t, err)
	if _, is := t.Store.(processlog.Operations); is {
		for _, id := range ids {
			by, err := t.ops().BlockedBy(t.ctx, "serial", id, dead)
			require.NoError(t, err)
			assert.Equal(t, slices.Contains(blocked, id), !by.IsZero(), "BlockedBy agrees with Blocked about entry %v", id)
		}
	}
	return blocked
}

func (t *storeTest) fronts(dead bool) (found []processlog.ID) {
	t.Helper()
	for after := ""; ; {
		ids, last, err := t.Store.Fronts(t.ctx, "serial", after, 2, dead)
		require.NoError(t, err)
		found = append(found, ids...)
		if after = last; last == "" {
			return found
		}
	}
}

// Failure: F117
func (t *storeTest) onlyTheFirstOfAKeyIsNotBlocked() {
	a, b := t.commitWithPositions("a", 3), t.commitWithPositions("b", 2)
	plain := t.committed("serial", 1)[0]
	ids := []processlog.ID{a[0].ID, a[1].ID, a[2].ID, b[0].ID, b[1].ID, plain.ID}
	assert.ElementsMatch(t, []processlog.ID{a[1].ID, a[2].ID, b[1].ID}, t.blocked(ids, true))
	assert.Empty(t, t.blocked(nil, true))
	t.settleTo(a[0], processlog.Dead)
	assert.ElementsMatch(t, []processlog.ID{a[1].ID, a[2].ID}, t.blocked(ids[:3], true), "a dead entry blocks the later ones")
	assert.ElementsMatch(t, []processlog.ID{a[2].ID}, t.blocked(ids[1:3], false), "a dead entry blocks nothing when dead is false")
	blocked, err := t.Store.Blocked(t.ctx, "another", ids, true)
	require.NoError(t, err)
	assert.Empty(t, blocked, "an entry of another type is not blocked")
}

// Failure: F117
func (t *storeTest) frontsAreDueFreeAndFirst() {
	for _, key := range []string{"a", "b", "c", "d"} {
		t.commitWithPositions(key, 2)
	}
	e := t.commitWithPositions("e", 3)
	running := t.claim(e[0].ID, token(1), time.Minute)
	f := t.commitWithPositions("f", 2)
	t.settleTo(f[0], processlog.Retrying)
	ch := newChange(f[0].ID, processlog.ActionReschedule)
	ch.Delay = time.Hour
	_, err := t.Store.Change(t.ctx, nil, false, ch)
	require.NoError(t, err)
	g := t.commitWithPositions("g", 2)
	t.settleTo(g[0], processlog.Dead)
	assert.Len(t, t.fronts(true), 4, "a running entry, an entry that is not due and a dead entry block their keys")
	assert.Len(t, t.fronts(false), 5)
	assert.Contains(t, t.fronts(false), g[1].ID)
	require.True(t, t.settle(token(4), outcome(running, processlog.Succeeded)).Applied)
	assert.Contains(t, t.fronts(true), e[1].ID, "the note of an ended entry blocks nothing")
	ids, last, err := t.Store.Fronts(t.ctx, "another", "", 10, true)
	require.NoError(t, err)
	assert.Empty(t, ids)
	assert.Empty(t, last)
}

// While another process may run an entry of the key, KeyStates must return no Members. Otherwise a later entry could
// start while that entry is running.
// Failure: F117
func (t *storeTest) membersAreReadWhereNoneIsClaimed() {
	rows := t.commitWithPositions("a", 3)
	first := t.claim(rows[0].ID, token(1), time.Minute)
	assert.Equal(t, members(rows...), t.keyState("a", first, true).Members, "the caller's own claim does not count")
	third := t.claim(rows[2].ID, token(2), time.Millisecond)
	t.waitUntil(func() bool { return !t.keyState("a", first, true).Taken }, "the lease ends")
	assert.Nil(t, t.keyState("a", first, true).Members, "the process with the claim may still renew its lease")
	t.release(token(2), third.ID)
	assert.Equal(t, members(rows...), t.keyState("a", first, true).Members)
}

// The key has more entries than a KeyState lists.
// Failure: F117
func (t *storeTest) longKeyIsToldToItsEnd() {
	var rows []processlog.Row
	for range 5 {
		rows = append(rows, t.commitWithPositions("a", processlog.MaxMembers)...)
	}
	b := t.commitWithPositions("b", 2)
	positions := []processlog.Position{positionOf("a", rows[0]), positionOf("b", b[0])}
	lines, err := t.Store.KeyStates(t.ctx, "serial", positions, token(1), true)
	require.NoError(t, err)
	assert.Equal(t, processlog.KeyState{First: rows[0].ID, Known: 1, Members: members(rows[:processlog.MaxMembers]...)}, lines["a"])
	assert.Equal(t, processlog.KeyState{First: b[0].ID, Known: 1, Members: members(b...)}, lines["b"])
	t.claim(rows[len(rows)-1].ID, token(2), time.Minute)
	lines, err = t.Store.KeyStates(t.ctx, "serial", positions, token(1), true)
	require.NoError(t, err)
	assert.Equal(t, processlog.KeyState{First: rows[0].ID, Known: 1, Taken: true}, lines["a"])
}

func (t *storeTest) positionIsNotedWithItsTransactionOnly() {
	for _, commit := range []bool{false, true} {
		d := t.draft("serial")
		tx := t.begin()
		inserted, err := t.Store.Insert(t.ctx, tx, []processlog.Draft{d}, false)
		require.NoError(t, err)
		position := processlog.Position{BusinessType: "serial", Key: "a", ID: inserted[0].ID}
		require.NoError(t, t.Store.Join(t.ctx, tx, []processlog.Position{position}))
		if commit {
			require.NoError(t, tx.Commit())
		} else {
			require.NoError(t, tx.Rollback())
		}
		lines, err := t.Store.KeyStates(t.ctx, "serial", []processlog.Position{position}, token(1), true)
		require.NoError(t, err)
		assert.Equal(t, commit, lines["a"].Known == 1)
		assert.Equal(t, commit, lines["a"].First == position.ID)
	}
}

// Failure: F113
func (t *storeTest) keyIsTakenByTheLeaseOfAnother() {
	rows := t.commitWithPositions("a", 3)
	first := t.claim(rows[0].ID, token(1), time.Minute)
	assert.False(t, t.keyState("a", first, true).Taken, "its own")
	second := t.claim(rows[1].ID, token(2), time.Minute)
	assert.True(t, t.keyState("a", first, true).Taken)
	assert.True(t, t.keyState("a", second, true).Taken)
	require.True(t, t.settle(token(4), outcome(second, processlog.Succeeded)).Applied)
	assert.False(t, t.keyState("a", first, true).Taken, "the other attempt has ended")
	t.claim(rows[2].ID, token(3), time.Millisecond)
	t.waitUntil(func() bool { return !t.keyState("a", first, true).Taken }, "the lease ends")
}

func (t *storeTest) endedEntryCountsUnderNoKey() {
	rows := t.commitWithPositions("a", 4)
	t.settleTo(rows[0], processlog.Succeeded)
	t.change(rows[1].ID, processlog.ActionCancel)
	t.assertMembers("a", true, rows[2:])
	t.settleTo(rows[2], processlog.Retrying)
	assert.Equal(t, rows[2].ID, t.keyState("a", rows[3], true).First, "the entry waits and keeps its position")
	t.advance(true, "a")
	for _, row := range rows[:2] {
		t.change(row.ID, processlog.ActionRequeue)
	}
	t.assertMembers("a", true, []processlog.Row{t.load(rows[2].ID), rows[3]}, "the notes of ended entries are deleted")
}

// Failure: F117
func (t *storeTest) namedEntryIsForgotten() {
	rows := t.commitWithPositions("a", 3)
	t.change(rows[0].ID, processlog.ActionCancel)
	t.change(rows[1].ID, processlog.ActionCancel)
	another := positionOf("a", rows[1])
	another.Epoch++
	assert.Equal(t, []processlog.ID{rows[2].ID}, t.advanceBehind(true, positionOf("a", rows[0]), another))
	require.NoError(t, t.Store.Forget(t.ctx, []processlog.Position{positionOf("a", rows[0]), another}))
	for _, row := range rows[:2] {
		t.change(row.ID, processlog.ActionRequeue)
	}
	t.assertMembers("a", true, rows[1:], "a note of another epoch stays")
}

// Failure: F113
func (t *storeTest) deadEntryCountsWhereItIsSaid() {
	rows := t.commitWithPositions("a", 2)
	t.settleTo(rows[0], processlog.Dead)
	assert.Equal(t, rows[0].ID, t.keyState("a", rows[1], true).First)
	assert.Equal(t, rows[1].ID, t.keyState("a", rows[1], false).First)
	t.advance(true, "a")
	t.change(rows[0].ID, processlog.ActionRequeue)
	assert.Equal(t, rows[0].ID, t.keyState("a", rows[1], true).First, "the note was still there, so the requeued entry has its old position")
	t.settleTo(t.load(rows[0].ID), processlog.Dead)
	t.advance(false, "a")
	assert.Equal(t, rows[1].ID, t.keyState("a", rows[1], true).First, "the note of a dead entry is deleted when dead is false")
}

// Failure: F114
func (t *storeTest) requeuedEntryIsNotedUnderItsEpoch() {
	row := t.commitWithPositions("a", 1)[0]
	t.settleTo(row, processlog.Succeeded)
	t.change(row.ID, processlog.ActionRequeue)
	again := t.claim(row.ID, token(1), time.Minute)
	require.NotEqual(t, row.Epoch, again.Epoch)
	assert.Equal(t, processlog.KeyState{First: row.ID, Members: members(row)}, t.keyState("a", again, true), "the note belongs to the epoch before")
	t.join("a", again)
	assert.Equal(t, processlog.KeyState{First: row.ID, Known: 1, Members: members(again)}, t.keyState("a", again, true))
	t.join("a", again)
	assert.Equal(t, members(again), t.keyState("a", again, true).Members, "once")
}

// A late process may delete the position of an earlier epoch, and this deletion wakes no entry.
func (t *storeTest) noteOfAnEarlierEpochBlocksNothing() {
	rows := t.commitWithPositions("a", 2)
	second := []processlog.ID{rows[1].ID}
	assert.Equal(t, second, t.blocked(second, true))
	t.settleTo(rows[1], processlog.Succeeded)
	t.change(rows[1].ID, processlog.ActionRequeue)
	assert.Empty(t, t.blocked(second, true))
	t.join("a", t.load(rows[1].ID))
	assert.Equal(t, second, t.blocked(second, true))
}

// Failure: F115
func (t *storeTest) blockedEntryIsGivenBackForAWhile() {
	rows := t.commitWithPositions("a", 3)
	lost := t.claim(rows[1].ID, token(1), time.Millisecond)
	t.waitUntil(func() bool {
		found, err := t.Store.Claim(t.ctx, []processlog.Wanted{{ID: lost.ID}}, token(2), time.Minute, all)
		return err == nil && len(found.Mine) == 1
	}, "the lease ends")
	second, theirs := t.load(lost.ID), t.claim(rows[2].ID, token(3), time.Minute)
	t.block("a", time.Hour, second, theirs)
	row := t.load(second.ID)
	assert.Equal(t, second.Version+1, row.Version)
	assert.Equal(t, 1, row.DeliveryCount, "the lost lease still counts")
	assert.Equal(t, processlog.Pending, row.State)
	assert.LessOrEqual(t, row.LeaseLeft, time.Duration(0))
	assert.InDelta(t, time.Hour, row.DueIn, float64(time.Minute))
	assert.Equal(t, theirs.Version, t.load(theirs.ID).Version, "another's claim")
	t.block("a", time.Minute, second)
	assert.Equal(t, row.Version, t.load(second.ID).Version, "the call is repeated, as after an unknown outcome")
}

// Failure: F115
func (t *storeTest) firstOfAKeyIsMadeDue() {
	rows := t.commitWithPositions("a", 3)
	first, second, third := t.claim(rows[0].ID, token(1), time.Minute), t.claim(rows[1].ID, token(2), time.Minute), t.claim(rows[2].ID, token(2), time.Minute)
	t.block("a", time.Hour, second, third)
	assert.Empty(t, t.advance(true, "a", "b"), "the first entry of each key is running")
	require.True(t, t.settle(token(4), outcome(first, processlog.Succeeded)).Applied)
	assert.Equal(t, []processlog.ID{second.ID}, t.advance(true, "a", "b"))
	assert.LessOrEqual(t, t.load(second.ID).DueIn, time.Duration(0))
	assert.Greater(t, t.load(third.ID).DueIn, time.Duration(0))
	assert.Equal(t, []processlog.ID{second.ID}, t.advance(true, "a"), "the first entry stays due until a process claims it")
	late := t.claim(rows[1].ID, token(6), time.Minute)
	running := t.claim(t.commitWithPositions("a", 1)[0].ID, token(7), time.Minute)
	t.block("a", time.Hour, late)
	assert.Empty(t, t.advance(true, "a"), "another entry of the key is running, so the first one could not start")
	require.True(t, t.settle(token(8), outcome(running, processlog.Succeeded)).Applied)
	assert.Equal(t, []processlog.ID{second.ID}, t.advance(true, "a"))
	claimed := t.claim(second.ID, token(5), time.Minute)
	assert.Equal(t, second.ID, t.keyState("a", claimed, true).First)
}

// Failure: F115
func (t *storeTest) blockedAsItWasInsertedIsMadeDue() {
	d := t.draft("serial")
	d.Token, d.Lease = token(1), time.Minute
	row := t.insert(d)[0]
	require.Zero(t, row.Version)
	t.join("a", row)
	t.block("a", time.Hour, row)
	assert.Equal(t, []processlog.ID{row.ID}, t.advance(true, "a"))
}

// Failure: F115
func (t *storeTest) onlyWhatIsBlockedIsMadeDue() {
	rows := t.commitWithPositions("a", 1)
	row := t.claim(rows[0].ID, token(1), time.Minute)
	t.block("a", time.Hour, row)
	ch := newChange(row.ID, processlog.ActionReschedule)
	ch.Delay = 2 * time.Hour
	_, err := t.Store.Change(t.ctx, nil, false, ch)
	require.NoError(t, err)
	assert.Empty(t, t.advance(true, "a"), "a service rescheduled the entry after it was blocked")
	d := t.draft("serial")
	d.Delay = time.Hour
	t.join("b", t.insert(d)...)
	assert.Empty(t, t.advance(true, "b"), "the entry was recorded with this delay")
	again := t.commitWithPositions("c", 1)[0]
	claimed := t.claim(again.ID, token(1), time.Minute)
	o := outcome(claimed, processlog.Retrying)
	o.After = time.Hour
	require.True(t, t.settle(token(2), o).Applied)
	assert.Empty(t, t.advance(true, "c"), "the entry's retry waits for its own due time")
}

// Failure: F115
func (t *storeTest) lockedPositionIsNotWaitedFor() {
	rows := t.commitWithPositions("a", 1)
	row := t.claim(rows[0].ID, token(1), time.Minute)
	t.block("a", time.Hour, row)
	tx := t.begin()
	_, err := t.Store.Change(t.ctx, tx, false, newChange(row.ID, processlog.ActionCancel))
	require.NoError(t, err)
	assert.Empty(t, t.advance(true, "a"))
	require.NoError(t, tx.Rollback())
	assert.Len(t, t.advance(true, "a"), 1)
}

// Failure: F114
func (t *storeTest) longKeyIsForgottenFromItsFront() {
	rows := t.commitWithPositions("a", 240)
	for _, row := range rows[:235] {
		t.change(row.ID, processlog.ActionCancel)
	}
	last := t.claim(rows[235].ID, token(1), time.Minute)
	t.block("a", time.Hour, last)
	assert.Equal(t, []processlog.ID{last.ID}, t.advance(true, "a"))
	t.change(rows[200].ID, processlog.ActionRequeue)
	t.assertMembers("a", true, append([]processlog.Row{t.load(last.ID)}, rows[236:]...))
	for _, row := range rows[235:] {
		t.change(row.ID, processlog.ActionCancel)
	}
	assert.Empty(t, t.advance(true, "a"))
	t.change(rows[238].ID, processlog.ActionRequeue)
	assert.Zero(t, t.keyState("a", last, true))
}

// Failure: F114
func (t *storeTest) erasedEntryLeavesItsKeyOnceItHasEnded() {
	rows := t.commitWithPositions("a", 6)
	t.settleTo(rows[0], processlog.Dead)
	t.change(rows[1].ID, processlog.ActionCancel)
	t.change(rows[1].ID, processlog.ActionErase)
	assert.Equal(t, 0, t.countPositions("a", rows[1]), "the entry was cancelled in the middle and then erased, so its note is deleted")
	t.change(rows[0].ID, processlog.ActionErase)
	assert.Equal(t, rows[0].ID, t.keyState("a", rows[5], true).First, "a dead entry keeps its position even when it is erased")
	t.change(rows[0].ID, processlog.ActionSettleManually)
	assert.Equal(t, rows[2].ID, t.keyState("a", rows[5], true).First, "the position is free once the dead entry has ended")
	assert.Equal(t, 0, t.countPositions("a", rows[0]))

	t.settleTo(rows[2], processlog.Dead)
	t.change(rows[2].ID, processlog.ActionErase)
	tx := t.begin()
	_, err := t.Store.Change(t.ctx, tx, false, newChange(rows[2].ID, processlog.ActionCancel))
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	assert.Equal(t, rows[2].ID, t.keyState("a", rows[5], true).First, "a cancellation that is rolled back keeps the position")
	tx = t.begin()
	_, err = t.Store.Change(t.ctx, tx, false, newChange(rows[2].ID, processlog.ActionCancel))
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	assert.Equal(t, rows[3].ID, t.keyState("a", rows[5], true).First)
	assert.Equal(t, 0, t.countPositions("a", rows[2]))
	t.change(rows[3].ID, processlog.ActionComplete)
	assert.Equal(t, rows[4].ID, t.keyState("a", rows[5], true).First)
	assert.Equal(t, 1, t.countPositions("a", rows[3]), "an entry that is not erased keeps its note until Advance deletes it")
}

func (t *storeTest) countPositions(key string, row processlog.Row) int {
	t.Helper()
	lines, err := t.Store.Firsts(t.ctx, "serial", []processlog.Position{positionOf(key, row)}, true)
	require.NoError(t, err)
	return lines[key].Known
}
