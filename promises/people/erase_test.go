package people

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/processlog"
)

func everything(w *harness.World) string {
	w.T.Helper()
	var text sql.NullString
	require.NoError(w.T, w.DB.QueryRow("SELECT GROUP_CONCAT(CONCAT_WS('/',idempotent_id,user_name,content,headers,last_error) SEPARATOR '\n') FROM common_process_log").Scan(&text))
	var audit sql.NullString
	require.NoError(w.T, w.DB.QueryRow("SELECT GROUP_CONCAT(CONCAT_WS('/',actor,reason,before_state,after_state) SEPARATOR '\n') FROM common_process_log_audit").Scan(&audit))
	return text.String + "\n" + audit.String
}

// Failure: F126
func TestErasedEntryHoldsNothingPersonalAndStaysKnown(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	letters, err := compensator.Handle(t.Context(), c, "letter", func(_ context.Context, _ *compensator.Entry, address string) error {
		return compensator.Permanent(&compensator.FieldError{Field: "address", Reason: address + " is unknown"})
	}, &compensator.HandlerConfig[string]{TypeConfig: compensator.TypeConfig{RefuseOtherContent: true}})
	require.NoError(t, err)
	opts := compensator.Options{IdempotencyKey: "letter-1", BusinessID: "order-1", UserID: "u7", UserName: "Mei Chen", Headers: map[string]string{"to": "Mei Chen"}}
	write := func() *compensator.Receipt {
		var receipt *compensator.Receipt
		w.InTx(w.DB, func(tx *sql.Tx) {
			var err error
			receipt, err = letters.Record(t.Context(), tx, "Chen Street 1", opts)
			require.NoError(t, err)
		})
		return receipt
	}
	id := write().ID()
	w.Run(c)
	w.WaitState(id, compensator.Dead)
	require.NoError(t, admin.Of(c).Requeue(t.Context(), id, admin.RequeueOptions{AuditInfo: admin.AuditInfo{Actor: "ann", Reason: "Mrs Chen has called"}}))
	w.Eventually(func() bool { e := w.Entry(c, id); return e.State == compensator.Dead && e.Epoch == 1 }, "it dies again")
	before := w.Entry(c, id)
	require.Contains(t, everything(w), "Chen Street")
	require.Contains(t, everything(w), "Mrs Chen")

	by := admin.AuditInfo{Actor: "bob", Reason: "request 815"}
	result, err := admin.Of(c).Erase(t.Context(), compensator.IdempotencyKey("letter-1"), by)
	require.NoError(t, err)
	require.False(t, result.WasAlready)
	require.NotContains(t, everything(w), "Chen")
	after := w.Entry(c, id)
	require.True(t, after.Erased)
	require.Equal(t, []any{before.State, before.EndedBy, before.NextAt, before.CreatedAt, before.ProcessCount, compensator.IdempotencyKey("letter-1"), "order-1", "u7"},
		[]any{after.State, after.EndedBy, after.NextAt, after.CreatedAt, after.ProcessCount, after.IdempotencyKey, after.BusinessID, after.UserID})
	history, err := admin.Of(c).History(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, history, 2)
	require.Equal(t, []string{"ann", "", "bob", "request 815"}, []string{history[0].Actor, history[0].Reason, history[1].Actor, history[1].Reason})

	stored := w.Row(id)
	result, err = admin.Of(c).Erase(t.Context(), id, by)
	require.NoError(t, err)
	require.True(t, result.WasAlready)
	require.Equal(t, stored, w.Row(id), "a second time nothing is written")
	receipt := write()
	require.True(t, receipt.Duplicate(), "its idempotency key guards")
	require.True(t, receipt.Entries[0].ContentMatches, "what the content was nobody can say: the event is not refused")

	for _, dry := range []bool{true, false} {
		requeue := admin.RequeueOptions{AuditInfo: by, DryRun: dry}
		var refused *compensator.StateError
		require.ErrorAs(t, admin.Of(c).Requeue(t.Context(), id, requeue), &refused)
		require.True(t, refused.Erased)
		require.Contains(t, refused.Error(), "erased")
		answers, err := admin.Of(c).RequeueAll(t.Context(), []compensator.Entry{*after}, requeue)
		require.NoError(t, err)
		require.ErrorAs(t, answers[0], &refused)
		require.True(t, refused.Erased)
	}
	require.Equal(t, stored, w.Row(id))
	require.Nil(t, c.Health(t.Context()).History, "an erasure is no loss")
	require.NoError(t, harness.ErrOf(c.Cancel(t.Context(), id)), "its pending releases are dropped")
	require.False(t, strings.Contains(everything(w), "Chen"))
}

func keys(w *harness.World) string {
	w.T.Helper()
	var text sql.NullString
	require.NoError(w.T, w.DB.QueryRow("SELECT GROUP_CONCAT(turn_key) FROM common_process_log_turns").Scan(&text))
	return text.String
}

// A dead entry blocks its key by its position in the ordering table, also after Erase.
// Failure: F114
func TestErasureReachesTheOrderingKeyOnceItsEntryHasEnded(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	letters, err := compensator.Handle(t.Context(), c, "letter", func(_ context.Context, e *compensator.Entry, _ string) error {
		if e.BusinessID == "last" {
			return nil
		}
		return compensator.Permanent(errors.New("unknown"))
	}, &compensator.HandlerConfig[string]{TypeConfig: compensator.TypeConfig{Serial: func(e *compensator.Entry) string {
		var address string
		_ = e.Decode(&address)
		return address
	}}})
	require.NoError(t, err)
	put := func(address, id string) (entry compensator.EntryID) {
		w.InTx(w.DB, func(tx *sql.Tx) {
			receipt, err := letters.Record(t.Context(), tx, address, compensator.Options{BusinessID: id})
			require.NoError(t, err)
			entry = receipt.ID()
		})
		return entry
	}
	first, called, last := put("Chen Street 1", ""), put("Chen Street 1", ""), put("Chen Street 1", "last")
	stranger := w.New(w.QuickConfig()) // This instance does not know the type, so Cancel cannot delete the position.
	require.NoError(t, harness.ErrOf(stranger.Cancel(t.Context(), called)), "in the middle of its key")
	alone := put("Lin Street 2", "")
	w.Run(c)
	w.WaitState(first, compensator.Dead)
	w.WaitState(alone, compensator.Dead)

	standing := func(id compensator.EntryID) int {
		return w.Count("common_process_log_turns WHERE entry_id=?", id.Row())
	}
	require.Equal(t, []int{1, 1, 1}, []int{standing(first), standing(called), standing(alone)})
	for _, id := range []compensator.EntryID{called, alone, first} {
		require.NoError(t, harness.ErrOf(admin.Of(c).Erase(t.Context(), id, harness.ByMei)))
	}
	require.Zero(t, standing(called))
	require.Contains(t, keys(w), "Lin", "a dead entry keeps its position, also after it is erased")
	require.NoError(t, admin.Of(c).SettleManually(t.Context(), alone, harness.ByMei))
	require.NotContains(t, keys(w), "Lin")
	w.InTx(w.DB, func(tx *sql.Tx) { require.NoError(t, harness.ErrOf(c.CancelTx(t.Context(), tx, first))) })
	require.Zero(t, standing(first))
	w.WaitState(last, compensator.Succeeded)
	w.Eventually(func() bool { return keys(w) == "" }, "and the key has no positions")
}

// New does not require the ordering table, so a database without serial types may lack it.
// Failure: F114
func TestErasureNeedsNoTableOfPositions(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	w.Exec("DROP TABLE common_process_log_turns")
	c := w.New(w.QuickConfig())
	orders, err := compensator.Declare[harness.Order](t.Context(), c, "close_order", nil)
	require.NoError(t, err)
	id := inState(w, orders, compensator.Succeeded)
	require.NoError(t, harness.ErrOf(admin.Of(c).Erase(t.Context(), id, harness.ByMei)))
	require.True(t, w.Entry(c, id).Erased)
	id = inState(w, orders, compensator.Dead)
	w.Exec("UPDATE common_process_log SET compensate_count=0")
	require.NoError(t, harness.ErrOf(admin.Of(c).Erase(t.Context(), id, harness.ByMei)))
	w.InTx(w.DB, func(tx *sql.Tx) {
		w.WriteEffect(tx, "cancelled")
		require.NoError(t, harness.ErrOf(c.CancelTx(t.Context(), tx, id)))
	})
	require.Equal(t, compensator.Cancelled, w.Entry(c, id).State)
	require.Equal(t, 1, w.Count("effects"))
}

// Failure: F126
func TestEntryOnItsWayIsNotErased(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	orders, err := compensator.Declare[harness.Order](t.Context(), c, "close_order", nil)
	require.NoError(t, err)
	for _, state := range processlog.States {
		id := inState(w, orders, state)
		stored := w.Row(id)
		_, err := admin.Of(c).Erase(t.Context(), id, admin.AuditInfo{Actor: "bob"})
		require.ErrorAs(t, err, new(*compensator.FieldError), "why?")
		_, err = admin.Of(c).Erase(t.Context(), id, harness.ByMei)
		if state.Terminal() {
			require.NoError(t, err)
			continue
		}
		var refused *compensator.StateError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, compensator.StateError{ID: id, IdempotencyKey: w.Entry(c, id).IdempotencyKey, State: state, Action: processlog.ActionErase}, *refused)
		require.Equal(t, stored, w.Row(id))
	}
	_, err = admin.Of(c).Erase(t.Context(), compensator.IdempotencyKey("nobody's"), harness.ByMei)
	require.ErrorIs(t, err, compensator.ErrNotFound)
}

// If the database user has no right to change audit records, Erase must change nothing at all.
// Failure: F126
func TestErasureThatCannotReachTheRecordsChangesNothing(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	orders, err := compensator.Declare[harness.Order](t.Context(), c, "close_order", nil)
	require.NoError(t, err)
	id := inState(w, orders, compensator.Succeeded)
	require.NoError(t, admin.Of(c).Requeue(t.Context(), id, admin.RequeueOptions{AuditInfo: harness.ByMei}))
	require.NoError(t, harness.ErrOf(c.Cancel(t.Context(), id)))
	w.Exec("CREATE TRIGGER kept BEFORE UPDATE ON common_process_log_audit FOR EACH ROW SIGNAL SQLSTATE '45000'")
	stored := w.Row(id)
	_, err = admin.Of(c).Erase(t.Context(), id, harness.ByMei)
	require.Error(t, err)
	require.Equal(t, stored, w.Row(id))
	require.Equal(t, 1, w.Count("common_process_log_audit"))
}

// No call of the library can erase the audit records of a purged entry, because Erase needs the entry's row to lock.
func TestRecordsOfAPurgedEntryAreBlankedByTheStatementOfTheDocs(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	letters, err := compensator.Handle(t.Context(), c, "letter", func(_ context.Context, _ *compensator.Entry, address string) error {
		return compensator.Permanent(errors.New(address + " is unknown"))
	}, nil)
	require.NoError(t, err)
	var id compensator.EntryID
	w.InTx(w.DB, func(tx *sql.Tx) {
		receipt, err := letters.Record(t.Context(), tx, "Chen Street 1", compensator.Options{})
		require.NoError(t, err)
		id = receipt.ID()
	})
	stop := w.Run(c)
	w.WaitState(id, compensator.Dead)
	require.NoError(t, admin.Of(c).SettleManually(t.Context(), id, admin.AuditInfo{Actor: "ann", Reason: "Mrs Chen has called"}))
	require.NoError(t, stop())
	w.Exec("DELETE FROM common_process_log") // Delete like a purge, but at once.
	require.Contains(t, everything(w), "Mrs Chen")
	_, err = admin.Of(c).Erase(t.Context(), id, admin.AuditInfo{Actor: "bob", Reason: "request 815"})
	require.ErrorIs(t, err, compensator.ErrNotFound)

	page, err := os.ReadFile("../../docs/how-to/erase.md")
	require.NoError(t, err)
	_, statement, found := strings.Cut(string(page), "```sql\nUPDATE common_process_log_audit")
	require.True(t, found)
	statement, _, _ = strings.Cut(statement, ";")
	w.Exec("UPDATE common_process_log_audit" + strings.Replace(statement, "entry_id=42", "entry_id="+id.String(), 1))
	require.NotContains(t, everything(w), "Chen")
	history, err := admin.Of(c).History(t.Context(), id)
	require.NoError(t, err, "and they can still be read")
	require.Len(t, history, 1)
	require.Equal(t, []any{"ann", "", compensator.Dead, compensator.SettledManually}, []any{history[0].Actor, history[0].Reason, history[0].Before.State, history[0].After.State})
}
