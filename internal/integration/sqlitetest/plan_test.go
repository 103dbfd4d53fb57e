package sqlitetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/processlog"
)

// work calls every method that reads the log, with every kind of filter.
var work = map[string]func(t *testing.T, s processlog.Store) error{
	"due": func(t *testing.T, s processlog.Store) error {
		_, err := s.Due(t.Context(), "type 1", 10)
		return err
	},
	"scan": func(t *testing.T, s processlog.Store) error {
		w := processlog.Window{BusinessType: "type 1", State: compensator.Pending, From: -time.Hour, To: time.Hour, Limit: 5, Free: true}
		page, err := s.Scan(t.Context(), w)
		if err == nil && len(page) > 0 {
			w.After = page[len(page)-1]
			_, err = s.Scan(t.Context(), w)
		}
		return err
	},
	"claim, renew, settle": func(t *testing.T, s processlog.Store) error {
		token := processlog.Token{1}
		want := []processlog.Wanted{{ID: processlog.RowID(1)}, {ID: processlog.RowID(2)}, {ID: processlog.RowID(99999)}}
		claimed, err := s.Claim(t.Context(), want, token, time.Minute, func(*processlog.Row) bool { return true })
		if err != nil {
			return err
		}
		assert.Len(t, claimed.Mine, 2)
		assert.Len(t, claimed.Gone, 1)
		first, second := claimed.Mine[0], claimed.Mine[1]
		left, err := s.Renew(t.Context(), []processlog.Held{{ID: first.ID, Version: first.Version}, {ID: second.ID, Version: 99}}, time.Minute)
		if err != nil {
			return err
		}
		assert.Equal(t, processlog.Unrenewed{Lost: []compensator.EntryID{second.ID}}, left)
		settled, err := s.Settle(t.Context(), token, []processlog.Outcome{
			{ID: first.ID, IdempotencyKey: first.IdempotencyKey, To: compensator.Succeeded, EndedBy: compensator.EndedByHandler},
			{ID: second.ID, IdempotencyKey: second.IdempotencyKey, Version: second.Version, To: compensator.Retrying, ProcessCount: 1, After: time.Second, LastError: "it's \x00 \xff 退款"},
		})
		if err != nil {
			return err
		}
		assert.Equal(t, []processlog.Settled{{Applied: true}, {Applied: true}}, settled)
		rows, err := s.Load(t.Context(), []compensator.EntryID{second.ID})
		if err == nil && assert.Len(t, rows, 1) {
			assert.Equal(t, "it's \x00 \uFFFD 退款", rows[0].LastError)
		}
		return err
	},
	"change, resolve, history": func(t *testing.T, s processlog.Store) error {
		change := processlog.Change{Ref: compensator.IdempotencyKey("key 03"), Action: processlog.ActionCancel}
		if _, err := s.Change(t.Context(), nil, false, change); err != nil {
			return err
		}
		change = processlog.Change{Ref: processlog.RowID(4), Action: processlog.ActionRequeue, Actor: "ann", Reason: "退款"}
		_, err := s.Change(t.Context(), nil, false, change)
		assert.ErrorAs(t, err, new(*compensator.StateError))
		change.Ref = compensator.IdempotencyKey("key 03")
		if _, err := s.Change(t.Context(), nil, false, change); err != nil {
			return err
		}
		history, err := s.History(t.Context(), processlog.RowID(3))
		if assert.Len(t, history, 1) {
			assert.Equal(t, "退款", history[0].Reason)
			assert.Equal(t, compensator.Cancelled, history[0].Before.State)
			assert.Equal(t, compensator.Pending, history[0].After.State)
			assert.WithinDuration(t, time.Now(), history[0].At, time.Minute)
		}
		return err
	},
	"lists": func(t *testing.T, s processlog.Store) error {
		hour := time.Now().Add(time.Hour)
		for i, f := range []admin.Filter{
			{}, {BatchID: "b"}, {BusinessID: "o", States: []compensator.State{compensator.Dead}}, {BusinessExtID: "x", BusinessType: "type 1"},
			{States: []compensator.State{compensator.Pending}}, {BusinessType: "type 1"},
			{States: []compensator.State{compensator.Pending, compensator.Dead}, BusinessType: "type 1"},
			{States: []compensator.State{compensator.Pending}, BusinessType: "type 1", LastError: "it's 100%", EndedBy: compensator.EndedByCrash, UserID: "u", MaxRead: 5},
			{BatchID: "b", LastError: "x", MaxRead: 5}, {CreatedTo: hour, UserID: "u", MaxRead: 5},
			{CreatedTo: hour}, {CreatedFrom: hour.Add(-2 * time.Hour), CreatedTo: hour, States: []compensator.State{compensator.Pending}},
		} {
			for _, f.Newest = range []bool{false, true} {
				f.Limit, f.Cursor = 7, ""
				for range 3 {
					page, err := s.List(t.Context(), f)
					if err != nil {
						return fmt.Errorf("filter %d: %w", i, err)
					}
					f.Cursor = page.Next
				}
			}
		}
		return nil
	},
	"counts": func(t *testing.T, s processlog.Store) error {
		counts, err := s.Count(t.Context(), nil, admin.CountFilter{})
		assert.GreaterOrEqual(t, len(counts), 4)
		return err
	},
	"count of a batch": func(t *testing.T, s processlog.Store) error {
		counts, err := s.Count(t.Context(), nil, admin.CountFilter{BatchID: "b"})
		assert.NotEmpty(t, counts)
		return err
	},
	"purge": func(t *testing.T, s processlog.Store) error {
		_, err := s.Purge(t.Context(), "", compensator.Cancelled, 0, 10)
		return err
	},
	"purge of a type": func(t *testing.T, s processlog.Store) error {
		_, err := s.Purge(t.Context(), "type 1", compensator.Cancelled, 0, 10)
		return err
	},
	"ids": func(t *testing.T, s processlog.Store) error {
		ids, err := s.IDs(t.Context(), nil, []compensator.IdempotencyKey{"key 05", "key 06", "none"})
		assert.Len(t, ids, 2)
		return err
	},
}

func TestEveryReadIsServedByAnIndex(t *testing.T) {
	t.Parallel()
	for name, calls := range work {
		dsn := newFile(t, wal...)
		require.NoError(t, compensator.Migrate(t.Context(), open(t, dsn)))
		db, sent := record(t, dsn)
		s := openStore(t, db)
		var drafts []processlog.Draft
		for i := range 60 {
			d := draft(fmt.Sprintf("key %02d", i+1))
			d.BusinessType, d.BatchID, d.BusinessID, d.BusinessExtID = fmt.Sprintf("type %d", i%4), "b", "o", "x"
			drafts = append(drafts, d)
		}
		insert(t, s, drafts...)
		sent.take()
		require.NoError(t, calls(t, s), name)
		statements := sent.take()
		require.NotEmpty(t, statements)
		for _, statement := range statements {
			if !statement.reads() {
				continue
			}
			before := ""
			for _, step := range statement.plan(t, db) {
				// A statement must not sort the rows of one range of an index. Only a statement that collects rows from
				// many ranges may sort these rows. The text of such a statement gives the rows a name with "AS heads".
				if strings.Contains(step, "TEMP B-TREE FOR ORDER BY") {
					assert.Contains(t, statement.text, " AS heads ", name)
					assert.NotContains(t, before, "common_process_log_due", "%s: %s", name, statement.text)
				}
				before = step
				assert.False(t, strings.HasPrefix(step, "SCAN common_process_log"), "%s: %s\n%s", name, step, statement.text)
				if strings.Contains(step, "common_process_log_due") && !strings.Contains(statement.text, "SELECT MIN(business_type)") {
					assert.Contains(t, step, "(state=? AND business_type=?", "%s: %s", name, statement.text)
				}
				if strings.Contains(step, "AUTOMATIC") {
					assert.Fail(t, step, statement.text)
				}
			}
		}
	}
}

func TestListPagesHoldEveryEntryOnce(t *testing.T) {
	t.Parallel()
	_, s := newLog(t, wal...)
	var drafts []processlog.Draft
	for i := range 230 {
		d := draft(fmt.Sprintf("key %d", i))
		d.BusinessType, d.BatchID = fmt.Sprintf("type %d", i%130), "b"
		drafts = append(drafts, d)
	}
	insert(t, s, drafts...)
	for _, f := range []admin.Filter{
		{}, {BatchID: "b"}, {States: []compensator.State{compensator.Pending}}, {CreatedTo: time.Now().Add(time.Hour)},
	} {
		for _, f.Newest = range []bool{false, true} {
			f.Limit, f.Cursor = 60, ""
			seen := make(map[compensator.EntryID]bool)
			for more := true; more; more = f.Cursor != "" {
				page, err := s.List(t.Context(), f)
				require.NoError(t, err)
				for _, e := range page.Rows {
					assert.False(t, seen[e.ID])
					seen[e.ID] = true
				}
				f.Cursor = page.Next
			}
			assert.Len(t, seen, len(drafts), "%+v", f)
		}
	}
	counts, err := s.Count(t.Context(), nil, admin.CountFilter{AtMost: 1})
	require.NoError(t, err)
	assert.Len(t, counts, 130)
	more := 0
	for _, c := range counts {
		assert.Equal(t, 1, c.N)
		if c.More {
			more++
		}
	}
	assert.Equal(t, 100, more)
}
