package suite

import (
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

func (t *storeTest) committedDraftIsReadBackWhole() {
	d := t.draft("kinds")
	d.Content = []byte("\x00\xff{'\"`\\😀}")
	fields := reflect.ValueOf(&d).Elem()
	for i := range fields.NumField() {
		if field := fields.Field(i); field.Kind() == reflect.String && field.String() == "" {
			field.SetString("Änn 😀 " + fields.Type().Field(i).Name)
		}
	}
	d.MaxAttempts = 4
	d.Headers = []byte(`{"trace":"abc"}`)
	row := t.insert(d)[0]
	assert.Equal(t, d.Content, row.Content)
	for i := range fields.NumField() {
		if name := fields.Type().Field(i).Name; fields.Field(i).Kind() == reflect.String {
			assert.Equal(t, fields.Field(i).Interface(), reflect.ValueOf(row).FieldByName(name).Interface(), name)
		}
	}
	assert.Equal(t, 4, row.MaxAttempts)
	assert.Equal(t, map[string]string{"trace": "abc"}, row.Headers)
	assert.Equal(t, processlog.Pending, row.State)
	assert.Zero(t, row.Version)
	assert.Zero(t, row.DeliveryCount)
	assert.LessOrEqual(t, row.LeaseLeft, time.Duration(0))
	assert.LessOrEqual(t, row.DueIn, time.Duration(0))
	assert.WithinDuration(t, time.Now(), row.CreatedAt, time.Hour)
	empty := t.draft("kinds")
	empty.Content = nil
	assert.Empty(t, t.insert(empty)[0].Content)
}

func (t *storeTest) uncommittedEntryIsInvisible() {
	tx := t.begin()
	d := t.draft("hidden")
	inserted, err := t.Store.Insert(t.ctx, tx, []processlog.Draft{d}, false)
	require.NoError(t, err)
	require.False(t, inserted[0].ID.IsZero(), "the id of a single insert is known")
	own, err := t.Store.IDs(t.ctx, tx, []processlog.IdempotencyKey{d.IdempotencyKey})
	require.NoError(t, err)
	assert.Equal(t, inserted[0].ID, own[d.IdempotencyKey], "the transaction sees its own insert")
	if t.SingleWriter {
		require.NoError(t, tx.Commit())
		return
	}
	others, err := t.Store.IDs(t.ctx, nil, []processlog.IdempotencyKey{d.IdempotencyKey})
	require.NoError(t, err)
	assert.Empty(t, others)
	rows, err := t.Store.Load(t.ctx, []processlog.ID{inserted[0].ID})
	require.NoError(t, err)
	assert.Empty(t, rows)
	due, err := t.Store.Due(t.ctx, "hidden", 10)
	require.NoError(t, err)
	assert.Empty(t, due)
	found, err := t.Store.Claim(t.ctx, []processlog.Wanted{{ID: inserted[0].ID}}, token(1), time.Minute, all)
	require.NoError(t, err)
	assert.Empty(t, found.Mine)
}

func (t *storeTest) rolledBackEntryNeverWas() {
	tx := t.begin()
	d := t.draft("undone")
	inserted, err := t.Store.Insert(t.ctx, tx, []processlog.Draft{d}, false)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	rows, err := t.Store.Load(t.ctx, []processlog.ID{inserted[0].ID})
	require.NoError(t, err)
	assert.Empty(t, rows)
	assert.Equal(t, d.IdempotencyKey, t.insert(d)[0].IdempotencyKey, "its key is free again")
}

func (t *storeTest) insertRefusesAFinishedTransaction() {
	tx := t.begin()
	require.NoError(t, tx.Commit())
	d := t.draft("late")
	_, err := t.Store.Insert(t.ctx, tx, []processlog.Draft{d}, false)
	require.Error(t, err)
	ids, err := t.Store.IDs(t.ctx, nil, []processlog.IdempotencyKey{d.IdempotencyKey})
	require.NoError(t, err)
	assert.Empty(t, ids)
}

func (t *storeTest) manyDraftsKeepTheirOrder() {
	var drafts []processlog.Draft
	for i := range 1200 { // These are more rows than one statement holds.
		d := t.draft("many")
		d.IdempotencyKey = processlog.IdempotencyKey(fmt.Sprintf("%04d-%d", (i*7919)%1200, i)) // The keys are not in order.
		d.Content = fmt.Appendf(nil, "%d", i)
		drafts = append(drafts, d)
	}
	tx := t.begin()
	inserted, err := t.Store.Insert(t.ctx, tx, drafts, false)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	var keys []processlog.IdempotencyKey
	for _, d := range drafts {
		keys = append(keys, d.IdempotencyKey)
	}
	ids, err := t.Store.IDs(t.ctx, nil, keys)
	require.NoError(t, err)
	require.Len(t, ids, len(drafts))
	for i, in := range inserted {
		if !in.ID.IsZero() {
			require.Equal(t, ids[keys[i]], in.ID, "answer %d", i)
		}
	}
	for _, i := range []int{0, 1, 599, 1199} {
		assert.Equal(t, drafts[i].Content, t.load(ids[keys[i]]).Content)
	}
}

func (t *storeTest) duplicateChangesNothingAndIsTold() {
	first := t.insert(t.draft("first"))[0]
	dead := t.inState(processlog.Dead)
	same, other, typed, fresh, gone := t.draft("first"), t.draft("first"), t.draft("second"), t.draft("first"), t.draft("states")
	same.IdempotencyKey, other.IdempotencyKey, typed.IdempotencyKey, gone.IdempotencyKey = first.IdempotencyKey, first.IdempotencyKey, first.IdempotencyKey, dead.IdempotencyKey
	other.Content = []byte("different")
	for _, c := range []struct {
		name    string
		drafts  []processlog.Draft
		matches bool
		state   processlog.State
		was     processlog.Row
	}{
		{"alone", []processlog.Draft{same}, true, processlog.Pending, first},
		{"with other content", []processlog.Draft{other}, false, processlog.Pending, first},
		{"of another type", []processlog.Draft{typed}, true, processlog.Pending, first},
		{"among new ones", []processlog.Draft{same, fresh}, true, processlog.Pending, first},
		{"of a dead entry", []processlog.Draft{gone}, true, processlog.Dead, dead},
	} {
		tx := t.begin()
		inserted, err := t.Store.Insert(t.ctx, tx, c.drafts, false)
		require.NoError(t, err, c.name)
		require.NoError(t, tx.Commit(), c.name)
		got := inserted[0]
		assert.Equal(t, processlog.Inserted{ID: c.was.ID, Duplicate: true, BusinessType: c.was.BusinessType, State: c.state, ContentMatches: c.matches}, got, c.name)
		now := t.load(c.was.ID)
		assert.Equal(t, []any{c.was.Version, c.was.State, c.was.BusinessType, c.was.Content}, []any{now.Version, now.State, now.BusinessType, now.Content}, c.name)
	}
	ids, err := t.Store.IDs(t.ctx, nil, []processlog.IdempotencyKey{fresh.IdempotencyKey})
	require.NoError(t, err)
	assert.Len(t, ids, 1, "the new entry in the same insert as a duplicate exists")
}

func (t *storeTest) equalKeysAreEqualByteByByte() {
	for _, key := range []processlog.IdempotencyKey{"Abc", "abc", "ábc", "ABC", "😀", "😁", "ß", "ss"} {
		d := t.draft("keys")
		d.IdempotencyKey = key
		assert.Equal(t, key, t.insert(d)[0].IdempotencyKey)
	}
}

func (t *storeTest) entryInsertedWithALeaseHasItsToken() {
	d := t.draft("inserted")
	d.Lease, d.Token = time.Hour, token(7)
	row := t.insert(d)[0]
	assert.Equal(t, token(7), row.Token)
	assert.Equal(t, 1, row.DeliveryCount)
	assert.Zero(t, row.Version)
	t.assertLease(time.Hour, row.LeaseLeft)
	due, err := t.Store.Due(t.ctx, "inserted", 10)
	require.NoError(t, err)
	assert.Empty(t, due)
	found, err := t.Store.Claim(t.ctx, []processlog.Wanted{{ID: row.ID}}, token(8), time.Minute, all)
	require.NoError(t, err)
	assert.Len(t, found.Waiting, 1, "another process cannot claim the entry")
	found, err = t.Store.Claim(t.ctx, []processlog.Wanted{{ID: row.ID, Token: token(7)}}, token(8), time.Minute, all)
	require.NoError(t, err)
	require.Len(t, found.Mine, 1, "a claim with the entry's token can claim it")
	t.assertLease(time.Minute, t.load(row.ID).LeaseLeft)
	t.assertFollows(row, found.Mine[0])
}

func (t *storeTest) entryInsertedAsDoneHasSucceededAndNeverRuns() {
	done := t.draft("done")
	done.Done = true
	rows := t.insert(t.draft("done"), done, t.draft("done"))
	row := rows[1]
	assert.Equal(t, []any{processlog.Succeeded, processlog.EndedByComplete}, []any{row.State, row.EndedBy})
	assert.Equal(t, []any{uint64(0), 0, 0}, []any{row.Version, row.DeliveryCount, row.ProcessCount})
	due, err := t.Store.Due(t.ctx, "done", 10)
	require.NoError(t, err)
	assert.Len(t, due, 2, "the other entries of the insert are claimed")
	found, err := t.Store.Claim(t.ctx, []processlog.Wanted{{ID: row.ID}}, token(8), time.Minute, all)
	require.NoError(t, err)
	assert.Equal(t, []processlog.ID{row.ID}, found.Gone)
	again := t.draft("done")
	again.IdempotencyKey = row.IdempotencyKey
	tx := t.begin()
	inserted, err := t.Store.Insert(t.ctx, tx, []processlog.Draft{again}, false)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	assert.Equal(t, processlog.Succeeded, inserted[0].State)
}

// Two entries were inserted with a lease, and one of these leases has ended. The third entry never had a lease.
func (t *storeTest) deliveryOfTheCallersOwnIsCountedOnce() {
	running, ended, free := t.draft("own"), t.draft("own"), t.draft("own")
	running.Token, ended.Token, free.Token = token(7), token(7), token(7)
	running.Lease, ended.Lease = time.Minute, time.Millisecond
	rows := t.insert(running, ended, free)
	t.waitUntil(func() bool { return t.load(rows[1].ID).LeaseLeft <= 0 }, "the entry's lease ends")
	var want []processlog.Wanted
	for _, row := range rows {
		want = append(want, processlog.Wanted{ID: row.ID, Token: token(7)})
	}
	found, err := t.Store.Claim(t.ctx, want, token(8), time.Minute, all)
	require.NoError(t, err)
	require.Len(t, found.Mine, 3)
	for _, row := range found.Mine {
		stored := t.load(row.ID)
		assert.Equal(t, []any{uint64(1), 1, token(8)}, []any{row.Version, row.DeliveryCount, row.Token}, "answered")
		assert.Equal(t, []any{uint64(1), 1, token(8)}, []any{stored.Version, stored.DeliveryCount, stored.Token}, "stored")
	}
	t.release(token(8), rows[0].ID)
	assert.Zero(t, t.load(rows[0].ID).DeliveryCount, "no attempt has run yet")
}

func (t *storeTest) concurrentInsertsOfOneKeyMakeOneRow() {
	d := t.draft("race")
	var wg sync.WaitGroup
	created := make(chan processlog.ID, 8)
	for range cap(created) {
		wg.Go(func() {
			tx, err := t.Begin(t.ctx)
			if !assert.NoError(t, err) {
				return
			}
			defer func() { _ = tx.Rollback() }()
			inserted, err := t.Store.Insert(t.ctx, tx, []processlog.Draft{d}, false)
			if err != nil {
				return // The writer was the victim of a deadlock.
			}
			if assert.NoError(t, tx.Commit()) && !inserted[0].Duplicate {
				created <- inserted[0].ID
			}
		})
	}
	wg.Wait()
	close(created)
	var ids []processlog.ID
	for id := range created {
		ids = append(ids, id)
	}
	require.Len(t, ids, 1)
	t.load(ids[0])
}
