package people

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/harness"
)

// Every third entry has a different error.
func insertDead(w *harness.World, businessType string, n int) {
	w.T.Helper()
	ids := w.InsertDue(businessType, 1, n)
	w.Exec("UPDATE common_process_log SET state=-2, ended_by='exhausted', process_count=3, version=3+id%5, epoch=id%2,"+
		" last_error=IF(id%3=0, 'no such order', '100% sold out') WHERE business_type=?", businessType)
	require.Len(w.T, ids, n)
}

// soldOut selects the dead entries whose last error begins with "100% sold".
func soldOut(businessType string) admin.Filter {
	return admin.Filter{States: []compensator.State{compensator.Dead}, BusinessType: businessType, LastError: "100% sold", Limit: 1000}
}

// Failure: F120
func TestDeadEntriesOfOneErrorRunAgainAndAreKeptOneByOne(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		_, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
		insertDead(w, "close_order", 900)
		page, err := admin.Of(c).List(t.Context(), soldOut("close_order"))
		require.NoError(t, err)
		require.Len(t, page.Entries, 600)
		w.Run(c)
		opts := admin.RequeueOptions{AuditInfo: harness.ByMei, DryRun: true}
		answers, err := admin.Of(c).RequeueAll(t.Context(), page.Entries, opts)
		require.NoError(t, err)
		require.Len(t, answers, 600)
		require.Equal(t, 900, w.Count("common_process_log WHERE state=-2"), "a dry run")
		require.Zero(t, w.Count("common_process_log_audit"))

		opts.DryRun = false
		done, err := admin.Of(c).RequeueAll(t.Context(), page.Entries, opts)
		require.NoError(t, err)
		require.Equal(t, answers, done, "as it was foretold")
		for _, refusal := range done {
			require.NoError(t, refusal)
		}
		for _, e := range page.Entries {
			w.WaitState(e.ID, compensator.Succeeded)
			require.Equal(t, 1, ran.Of(e.ID))
		}
		require.Equal(t, 300, w.Count("common_process_log WHERE state=-2"), "those of another error")
		require.Equal(t, 600, w.Count("common_process_log_audit WHERE action='requeue' AND actor='mei'"))
		require.Equal(t, 600, w.Count("common_process_log WHERE state=1 AND epoch=1+id%2"))
	})
}

func deadEntries(w *harness.World, c *compensator.Compensator, n int) []compensator.Entry {
	w.T.Helper()
	insertDead(w, "close_order", n)
	filter := soldOut("close_order")
	filter.LastError = ""
	page, err := admin.Of(c).List(w.T.Context(), filter)
	require.NoError(w.T, err)
	require.Len(w.T, page.Entries, n)
	return page.Entries
}

// Failure: F120
func TestEntryThatChangedSinceItWasSeenIsNotRequeued(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	seen := deadEntries(w, c, 5)
	settled, cancelled, purged, locked, free := seen[0].ID, seen[1].ID, seen[2].ID, seen[3].ID, seen[4].ID
	require.NoError(t, admin.Of(c).Requeue(t.Context(), settled, admin.RequeueOptions{AuditInfo: harness.ByMei, Delay: time.Hour}))
	require.NoError(t, harness.ErrOf(c.Complete(t.Context(), settled)))
	require.NoError(t, harness.ErrOf(c.Cancel(t.Context(), cancelled)))
	w.Exec("DELETE FROM common_process_log WHERE id=?", purged.Row())
	release := w.LockRow(locked)
	defer release()
	before := w.Row(cancelled)
	for _, dry := range []bool{true, false} {
		answers, err := admin.Of(c).RequeueAll(t.Context(), seen, admin.RequeueOptions{AuditInfo: harness.ByMei, Delay: time.Hour, DryRun: dry})
		require.NoError(t, err)
		require.ErrorIs(t, answers[0], admin.ErrChanged)
		require.ErrorIs(t, answers[1], admin.ErrChanged)
		require.ErrorIs(t, answers[2], compensator.ErrNotFound)
		// Only a call that is no dry run takes locks, and so notices that another transaction holds the row.
		if !dry {
			require.ErrorIs(t, answers[3], compensator.ErrBusy)
		}
		require.NoError(t, answers[4])
	}
	require.Equal(t, before, w.Row(cancelled))
	require.Equal(t, compensator.Pending, w.State(free))
	require.Equal(t, compensator.Dead, w.State(locked))
}

func TestRequeueAllRefusesWhatItCannotBeAsked(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	one, by := deadEntries(w, c, 1), admin.RequeueOptions{AuditInfo: harness.ByMei}
	for name, call := range map[string]func() ([]error, error){
		"nobody": func() ([]error, error) { return admin.Of(c).RequeueAll(t.Context(), one, admin.RequeueOptions{}) },
		"1,001": func() ([]error, error) {
			return admin.Of(c).RequeueAll(t.Context(), make([]compensator.Entry, 1001), by)
		},
		"one twice": func() ([]error, error) { return admin.Of(c).RequeueAll(t.Context(), append(one, one...), by) },
		"a past delay": func() ([]error, error) {
			return admin.Of(c).RequeueAll(t.Context(), one, admin.RequeueOptions{AuditInfo: harness.ByMei, Delay: -1})
		},
	} {
		_, err := call()
		require.ErrorAs(t, err, new(*compensator.FieldError), name)
	}
	none, err := admin.Of(c).RequeueAll(t.Context(), nil, by)
	require.NoError(t, err)
	require.Empty(t, none)
	require.NoError(t, admin.Of(c).Requeue(t.Context(), one[0].ID, admin.RequeueOptions{AuditInfo: harness.ByMei, DryRun: true}))
	require.Equal(t, compensator.Dead, w.State(one[0].ID), "a dry run of one")
}

// Failure: F120
func TestRequeueAllThatCannotBeKeptChangesNothing(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	insertDead(w, "close_order", 450)
	filter := soldOut("close_order")
	filter.LastError = ""
	page, err := admin.Of(c).List(t.Context(), filter)
	require.NoError(t, err)
	// RequeueAll needs three statements here. The database refuses the audit records of the last one.
	w.Exec("ALTER TABLE common_process_log_audit ADD CONSTRAINT CHECK (entry_id<>" + page.Entries[440].ID.String() + ")")
	_, err = admin.Of(c).RequeueAll(t.Context(), page.Entries, admin.RequeueOptions{AuditInfo: harness.ByMei})
	require.Error(t, err)
	require.Equal(t, 450, w.Count("common_process_log WHERE state=-2"))
	require.Zero(t, w.Count("common_process_log_audit"))
}
