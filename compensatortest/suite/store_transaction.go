package suite

import (
	"context"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

var transactionPromises = []storePromise{
	{"FingerprintIsThereAndStays", false, (*storeTest).fingerprintIsThereAndStays},
	{"ProbeTellsAnOpenTransactionAndLeavesItOpen", false, (*storeTest).probeTellsAnOpenTransactionAndLeavesItOpen},
	{"FinishedTransactionIsRefusedEverywhere", false, (*storeTest).finishedTransactionIsRefusedEverywhere},
	{"HandleWithoutTransactionIsRefusedEverywhere", false, (*storeTest).handleWithoutTransactionIsRefusedEverywhere},
	{"SavepointRollbackTakesItsEntriesBack", false, (*storeTest).savepointRollbackTakesItsEntriesBack},
	{"SavepointRollbackTakesPositionsAndMarksBack", false, (*storeTest).savepointRollbackTakesPositionsAndMarksBack},
	{"DuplicateOfItsOwnTransactionIsTold", false, (*storeTest).duplicateOfItsOwnTransactionIsTold},
	{"EntryMayBeChangedByTheTransactionThatRecordsIt", false, (*storeTest).entryMayBeChangedByTheTransactionThatRecordsIt},
	{"RolledBackActionOfAPersonLeavesNoTrace", false, (*storeTest).rolledBackActionOfAPersonLeavesNoTrace},
	{"UncommittedWritesAreInvisibleToEveryRead", true, (*storeTest).uncommittedWritesAreInvisibleToEveryRead},
	{"CrashLosesOnlyWhatWasNotCommitted", true, (*storeTest).crashLosesOnlyWhatWasNotCommitted},
}

func (t *storeTest) fingerprintIsThereAndStays() {
	first, err := t.Store.Fingerprint(t.ctx)
	require.NoError(t, err)
	require.NotEmpty(t, first)
	second, err := t.Store.Fingerprint(t.ctx)
	require.NoError(t, err)
	require.Equal(t, first, second)
}

func (t *storeTest) probeTellsAnOpenTransactionAndLeavesItOpen() {
	for _, begin := range []func(context.Context) (processlog.Transaction, error){t.Begin, t.Store.Begin} {
		tx, err := begin(t.ctx)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		require.NoError(t, t.Store.Probe(t.ctx, tx), "before its first statement")
		d := t.draft("probed")
		_, err = t.Store.Insert(t.ctx, tx, []processlog.Draft{d}, false)
		require.NoError(t, err)
		require.NoError(t, t.Store.Probe(t.ctx, tx), "after its first statement")
		require.NoError(t, tx.Rollback())
		t.requireAbsent(d)
	}
}

func (t *storeTest) requireAbsent(drafts ...processlog.Draft) {
	t.Helper()
	for _, d := range drafts {
		ids, err := t.Store.IDs(t.ctx, nil, []processlog.IdempotencyKey{d.IdempotencyKey})
		require.NoError(t, err)
		assert.Empty(t, ids)
	}
}

func (t *storeTest) finishedTransactionIsRefusedEverywhere() {
	noTransaction := func(err error, call string) {
		assert.ErrorIs(t, err, processlog.ErrNoTransaction, call)
	}
	for _, begin := range []func(context.Context) (processlog.Transaction, error){t.Begin, t.Store.Begin} {
		for _, end := range []func(processlog.Transaction) error{processlog.Transaction.Commit, processlog.Transaction.Rollback} {
			tx, err := begin(t.ctx)
			require.NoError(t, err)
			require.NoError(t, end(tx))
			t.refuses(tx, noTransaction)
			t.refusesEnded(tx, noTransaction)
		}
	}
}

// refusesEnded makes calls for which the store does not check whether the transaction is open. The error comes from the
// statement in the ended transaction.
func (t *storeTest) refusesEnded(tx processlog.Tx, refusal func(err error, call string)) {
	t.Helper()
	row := t.insertOne("ended")
	_, marks := t.marks("ended")
	refusal(t.Store.Join(t.ctx, tx, []processlog.Position{positionOf("a", row)}), "join")
	_, err := t.Store.MoveMark(t.ctx, tx, "ended", marks[0], marks[0].Add(time.Hour))
	refusal(err, "move a mark")
	_, err = t.Store.IDs(t.ctx, tx, []processlog.IdempotencyKey{row.IdempotencyKey})
	refusal(err, "read ids")
	assert.Zero(t, t.keyState("a", row, true), "no position was noted")
	_, now := t.marks("ended")
	assert.Equal(t, marks, now)
}

func (t *storeTest) handleWithoutTransactionIsRefusedEverywhere() {
	if t.Autocommit == nil {
		t.Skip("Harness.Autocommit is nil")
	}
	t.refuses(t.Autocommit, func(err error, call string) {
		assert.ErrorIs(t, err, processlog.ErrNoTransaction, call)
	})
}

func (t *storeTest) refuses(tx processlog.Tx, refusal func(err error, call string)) {
	t.Helper()
	row := t.claim(t.insertOne("refused").ID, token(1), time.Hour)
	one, two := t.draft("refused"), t.draft("refused")
	refusal(t.Store.Probe(t.ctx, tx), "probe")
	_, err := t.Store.Insert(t.ctx, tx, []processlog.Draft{one}, false)
	refusal(err, "insert one")
	_, err = t.Store.Insert(t.ctx, tx, []processlog.Draft{one, two}, false)
	refusal(err, "insert two")
	duplicate := one
	duplicate.IdempotencyKey = row.IdempotencyKey
	_, err = t.Store.Insert(t.ctx, tx, []processlog.Draft{duplicate, two}, false)
	refusal(err, "insert a duplicate")
	_, err = t.Store.Change(t.ctx, tx, false, newChange(row.ID, processlog.ActionCancel))
	refusal(err, "change")
	err = t.Store.SettleTx(t.ctx, tx, token(2), outcome(row, processlog.Succeeded))
	refusal(err, "settle")
	t.requireAbsent(one, two)
	assert.Equal(t, row.Version, t.load(row.ID).Version)
}

type savepointer interface {
	Savepoint(name string) error
	RollbackTo(name string) error
}

func (t *storeTest) savepointRollbackTakesItsEntriesBack() {
	kept, undone := t.draft("savepoint"), t.draft("savepoint")
	row := t.insertOne("savepoint")
	tx := t.begin()
	_, err := t.Store.Insert(t.ctx, tx, []processlog.Draft{kept}, false)
	require.NoError(t, err)
	sp := t.savepoints(tx)
	require.NoError(t, sp.Savepoint("here"))
	_, err = t.Store.Insert(t.ctx, tx, []processlog.Draft{undone}, false)
	require.NoError(t, err)
	_, err = t.Store.Change(t.ctx, tx, false, newChange(row.ID, processlog.ActionCancel))
	require.NoError(t, err)
	require.NoError(t, sp.RollbackTo("here"))
	require.NoError(t, tx.Commit())
	t.requireAbsent(undone)
	assert.Equal(t, row.Version, t.load(row.ID).Version)
	ids, err := t.Store.IDs(t.ctx, nil, []processlog.IdempotencyKey{kept.IdempotencyKey})
	require.NoError(t, err)
	assert.Len(t, ids, 1)
	t.claim(row.ID, token(1), time.Minute)
}

func (t *storeTest) savepointRollbackTakesPositionsAndMarksBack() {
	kept, undone := t.insertOne("savepoint"), t.insertOne("savepoint")
	_, marks := t.marks("kept", "undone")
	tx, moved := t.moveMark("kept", marks[0], marks[0].Add(time.Second))
	require.True(t, moved)
	require.NoError(t, t.Store.Join(t.ctx, tx, []processlog.Position{positionOf("a", kept)}))
	sp := t.savepoints(tx)
	require.NoError(t, sp.Savepoint("here"))
	for i, name := range []string{"kept", "undone"} {
		moved, err := t.Store.MoveMark(t.ctx, tx, name, marks[i].Add(time.Duration(1-i)*time.Second), marks[i].Add(time.Hour))
		require.NoError(t, err)
		require.True(t, moved, name)
	}
	require.NoError(t, t.Store.Join(t.ctx, tx, []processlog.Position{positionOf("a", undone)}))
	require.NoError(t, sp.RollbackTo("here"))
	require.NoError(t, tx.Commit())
	assert.Equal(t, processlog.KeyState{First: kept.ID, Known: 1, Members: members(kept)}, t.keyState("a", kept, true))
	_, there := t.marks("kept", "undone")
	assert.Equal(t, []time.Time{marks[0].Add(time.Second), marks[1]}, there)
}

// savepoints prefers the transaction's own methods to SQL.
func (t *storeTest) savepoints(tx processlog.Transaction) savepointer {
	if sp, ok := tx.(savepointer); ok {
		return sp
	}
	return sqlSavepoints{t.ctx, tx}
}

type sqlSavepoints struct {
	ctx context.Context
	tx  processlog.Tx
}

func (s sqlSavepoints) Savepoint(name string) error {
	_, err := s.tx.ExecContext(s.ctx, "SAVEPOINT "+name)
	return err
}

func (s sqlSavepoints) RollbackTo(name string) error {
	_, err := s.tx.ExecContext(s.ctx, "ROLLBACK TO SAVEPOINT "+name)
	return err
}

func (t *storeTest) duplicateOfItsOwnTransactionIsTold() {
	first, fresh := t.draft("own"), t.draft("own")
	tx := t.begin()
	inserted, err := t.Store.Insert(t.ctx, tx, []processlog.Draft{first}, false)
	require.NoError(t, err)
	again, err := t.Store.Insert(t.ctx, tx, []processlog.Draft{fresh, first}, false)
	require.NoError(t, err)
	assert.False(t, again[0].Duplicate)
	assert.Equal(t, processlog.Inserted{ID: inserted[0].ID, Duplicate: true, BusinessType: "own", ContentMatches: true}, again[1])
	require.NoError(t, tx.Commit())
	assert.Zero(t, t.load(inserted[0].ID).Version)
}

func (t *storeTest) entryMayBeChangedByTheTransactionThatRecordsIt() {
	d := t.draft("own")
	tx := t.begin()
	inserted, err := t.Store.Insert(t.ctx, tx, []processlog.Draft{d}, false)
	require.NoError(t, err)
	_, err = t.Store.Change(t.ctx, tx, true, newChange(d.IdempotencyKey, processlog.ActionCancel))
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	row := t.load(inserted[0].ID)
	assert.Equal(t, processlog.Cancelled, row.State)
	assert.EqualValues(t, 1, row.Version)
}

func (t *storeTest) rolledBackActionOfAPersonLeavesNoTrace() {
	row := t.inState(processlog.Dead)
	for _, end := range []string{"rollback", "commit"} {
		tx := t.begin()
		_, err := t.Store.Change(t.ctx, tx, false, newChange(row.ID, processlog.ActionRequeue))
		require.NoError(t, err)
		if end == "commit" {
			require.NoError(t, tx.Commit())
			continue
		}
		require.NoError(t, tx.Rollback())
		assert.Equal(t, row.Version, t.load(row.ID).Version)
		history, err := t.Store.History(t.ctx, row.ID)
		require.NoError(t, err)
		assert.Empty(t, history)
	}
	history, err := t.Store.History(t.ctx, row.ID)
	require.NoError(t, err)
	assert.Len(t, history, 1)
}

func (t *storeTest) uncommittedWritesAreInvisibleToEveryRead() {
	row := t.insertOne("seen")
	tx := t.begin()
	_, err := t.Store.Insert(t.ctx, tx, []processlog.Draft{t.draft("unseen")}, false)
	require.NoError(t, err)
	_, err = t.Store.Change(t.ctx, tx, false, newChange(row.ID, processlog.ActionCancel))
	require.NoError(t, err)

	assert.Equal(t, processlog.Pending, t.load(row.ID).State)
	heads, err := t.Store.Heads(t.ctx)
	require.NoError(t, err)
	require.Len(t, heads, 1)
	assert.Equal(t, "seen", heads[0].BusinessType)
	due, err := t.Store.Due(t.ctx, "seen", 10)
	require.NoError(t, err)
	assert.Len(t, due, 1, "Due takes no locks, so it lists the held row too")
	scanned, err := t.Store.Scan(t.ctx, processlog.Window{BusinessType: "unseen", From: -time.Hour, To: time.Hour, Limit: 10})
	require.NoError(t, err)
	assert.Empty(t, scanned)
	page, err := t.Store.List(t.ctx, processlog.Filter{})
	require.NoError(t, err)
	assert.Len(t, page.Rows, 1)
	counts, err := t.Store.Count(t.ctx, nil, processlog.CountFilter{})
	require.NoError(t, err)
	assert.Equal(t, []processlog.Count{{BusinessType: "seen", State: processlog.Pending, N: 1}}, counts)
	require.NoError(t, tx.Commit())
	assert.Equal(t, processlog.Cancelled, t.load(row.ID).State)
}

func (t *storeTest) crashLosesOnlyWhatWasNotCommitted() {
	if t.Crash == nil {
		t.Skip("Harness.Crash is nil")
	}
	row := t.claim(t.insertOne("crash").ID, token(1), time.Hour)
	lost := t.draft("crash")
	tx := t.begin()
	_, err := t.Store.Insert(t.ctx, tx, []processlog.Draft{lost}, false)
	require.NoError(t, err)
	_, err = t.Store.Change(t.ctx, tx, false, newChange(row.ID, processlog.ActionCancel))
	require.NoError(t, err)
	t.Crash(t.T)
	require.Error(t, tx.Commit())
	t.requireAbsent(lost)
	kept := t.load(row.ID)
	assert.Equal(t, []any{row.Version, row.State, row.Token}, []any{kept.Version, kept.State, kept.Token})
	t.assertLease(time.Hour, kept.LeaseLeft)
	require.True(t, t.settle(token(2), outcome(row, processlog.Succeeded)).Applied, "no transaction holds the row any more")
}
