package admin

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/harness"
)

var (
	discard  = slog.New(slog.DiscardHandler)
	literals = regexp.MustCompile(`[xX]'[0-9a-f]*'|\bcompensator_[a-z0-9]{12}\b|\b[0-9]+\b`)
)

func record(t *testing.T, c *compensator.Compensator, store *compensatortest.MemoryStore, orders *compensator.Type[harness.Order], id string) compensator.EntryID {
	t.Helper()
	e := orders.Entry(harness.Order{Number: 1}, compensator.Options{IdempotencyKey: compensator.IdempotencyKey(id)})
	return harness.RecordIn(t, c, store, e).ID()
}

func state(t *testing.T, store *compensatortest.MemoryStore, id compensator.EntryID) compensator.State {
	t.Helper()
	rows, err := store.Load(t.Context(), []compensator.EntryID{id})
	require.NoError(t, err)
	require.Len(t, rows, 1)
	return rows[0].State
}

func cases(t *testing.T, store *compensatortest.MemoryStore, id compensator.EntryID) []admin.Case {
	t.Helper()
	found, err := store.CasesOf(t.Context(), []compensator.EntryID{id})
	require.NoError(t, err)
	return found
}

// dying returns a Compensator whose refund entries become dead as long as the payment provider (PSP) is down.
func dying(t *testing.T, w *harness.World, cfg compensator.Config) (*compensator.Compensator, *compensator.Type[harness.Order], *harness.Calls, *atomic.Bool) {
	t.Helper()
	c := w.New(operated(cfg))
	var up atomic.Bool
	orders, ran := harness.HandleCounted(t, c, "refund", compensator.HandlerConfig[harness.Order]{MaxAttempts: 1}, func(*compensator.Entry, int) error {
		if up.Load() {
			return nil
		}
		return errors.New("PSP is down")
	})
	return c, orders, ran, &up
}

func openCases(t *testing.T, d *admin.Admin) (all []admin.Seen) {
	t.Helper()
	page, err := d.Entries(t.Context(), mei, admin.Filter{BusinessType: "refund", States: []compensator.State{compensator.Dead}, Limit: 1000})
	require.NoError(t, err)
	for _, e := range page.Entries {
		all = append(all, admin.Seen{ID: e.ID, Version: e.Version})
	}
	return all
}

// Failure: F120
func TestWhatIsRequeuedRunsAgainOnceAndItsCaseIsClosed(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c, orders, ran, up := dying(t, w, cfg)
		d := open(t, c)
		w.RecordMany(c, orders, 40, compensator.Options{})
		w.Run(c)
		w.WaitAllEnded()
		up.Store(true)
		was := openCases(t, d)
		require.Len(t, was, 40)
		answers, err := d.Change(t.Context(), mei, admin.Change{Action: admin.Requeue, Entries: was[:30], Why: why})
		require.NoError(t, err)
		for _, answer := range answers {
			require.NoError(t, answer)
		}
		for _, e := range was[:30] {
			w.WaitState(e.ID, compensator.Succeeded)
			require.Equal(t, 2, ran.Of(e.ID))
		}
		require.Equal(t, 30, w.Count("common_process_log_case WHERE closed_at>0"))
		require.Equal(t, 10, w.Count("common_process_log_case WHERE closed_at=0"))
		require.Equal(t, 30, w.Count("common_process_log_audit WHERE action='requeue' AND actor='mei' AND reason='[OPS-988] PSP is back'"))
		again, err := d.Change(t.Context(), mei, admin.Change{Action: admin.Requeue, Entries: was[:30], Why: why})
		require.NoError(t, err)
		for _, answer := range again {
			require.ErrorIs(t, answer, admin.ErrChanged, "a second press changes nothing")
		}
		require.Zero(t, w.Count("common_process_log_operation"), "nothing is written twice")
	})
}

// Failure: F120
func TestTwoPeopleAtOnceDoItOnce(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c, orders, _, _ := dying(t, w, w.QuickConfig())
	d := open(t, c)
	w.RecordMany(c, orders, 20, compensator.Options{})
	stop := w.Run(c)
	w.WaitAllEnded()
	require.NoError(t, stop())
	was := openCases(t, d)
	var wg sync.WaitGroup
	var done atomic.Int64
	for _, action := range []admin.Right{admin.Requeue, admin.SettleManually, admin.Cancel, admin.Complete} {
		wg.Go(func() {
			for busy := was; len(busy) > 0; {
				answers, err := d.Change(t.Context(), mei, admin.Change{Action: action, Entries: busy, Why: why, Delay: map[admin.Right]time.Duration{admin.Requeue: time.Hour}[action]})
				if !assert.NoError(t, err) {
					return
				}
				var locked []admin.Seen
				for i, answer := range answers {
					var refused *compensator.StateError
					switch {
					case answer == nil:
						done.Add(1)
					case errors.Is(answer, compensator.ErrBusy):
						locked = append(locked, busy[i])
					default:
						assert.True(t, errors.Is(answer, admin.ErrChanged) || errors.As(answer, &refused), "%v", answer)
					}
				}
				busy = locked
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 20, done.Load())
	require.Equal(t, 20, w.Count("common_process_log_audit"))
	require.Equal(t, 20, w.Count("common_process_log_case WHERE closed_at>0"))
}

// TestActionAndItsRecordAreThereTogetherOrNotAtAll breaks the connection during the COMMIT of an action.
// Failure: F121
func TestActionAndItsRecordAreThereTogetherOrNotAtAll(t *testing.T) {
	t.Parallel()
	for name, fault := range harness.CommitFaults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t)
			proxy, db := w.OpenProxied(true)
			cfg := w.QuickConfig()
			cfg.DB = db
			c, orders, _, _ := dying(t, w, cfg)
			d := open(t, c)
			w.RecordMany(c, orders, 3, compensator.Options{})
			stop := w.Run(c)
			w.WaitAllEnded()
			require.NoError(t, stop())
			was := openCases(t, d)
			fault.Match = harness.MatchNext(faultproxy.Contains("UPDATE `", "`common_process_log_case`"), faultproxy.Commit())
			trap := proxy.Arm(fault)
			_, err := d.Change(t.Context(), mei, admin.Change{Action: admin.SettleManually, Entries: was, Why: why})
			require.Error(t, err)
			w.Eventually(func() bool { return trap.Fired() > 0 }, "the fault")
			w.Eventually(func() bool {
				settled := w.Count("common_process_log WHERE state=4")
				return (settled == 0 || settled == 3) && settled == w.Count("common_process_log_audit") && settled == w.Count("common_process_log_case WHERE closed_at>0")
			}, "all or nothing")
			w.Eventually(func() bool {
				answers, err := d.Change(t.Context(), mei, admin.Change{Action: admin.SettleManually, Entries: was, Why: why})
				if !assert.NoError(t, err) {
					return false
				}
				for _, answer := range answers {
					assert.True(t, answer == nil || errors.Is(answer, admin.ErrChanged) || errors.Is(answer, compensator.ErrBusy), "%v", answer)
				}
				return !slices.ContainsFunc(answers, func(answer error) bool { return errors.Is(answer, compensator.ErrBusy) })
			}, "a transaction whose COMMIT was lost lets go of its rows")
			require.Equal(t, 3, w.Count("common_process_log WHERE state=4"))
			require.Equal(t, 3, w.Count("common_process_log_audit"), "each once")
		})
	}
}

// Failure: F121
func TestWhatCannotBeRecordedIsNotDone(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c, orders, _, _ := dying(t, w, w.QuickConfig())
	d := open(t, c)
	id := w.Record(orders, 1, compensator.Options{})
	stop := w.Run(c)
	w.WaitState(id, compensator.Dead)
	require.NoError(t, stop())
	w.Exec("DROP TABLE common_process_log_operation")
	e, err := d.Reveal(t.Context(), mei, id, why)
	require.Error(t, err)
	require.Empty(t, e.Content)
	require.Error(t, d.Pause(t.Context(), mei, "refund", why))
	require.Zero(t, w.Count("common_process_log_setting"))
	require.Error(t, joined(d.TakeCases(t.Context(), mei, []admin.SeenCase{{EntryID: id}}, why)))
	require.Zero(t, w.Count("common_process_log_case WHERE owner<>''"))
	nobody, err := admin.New(c, admin.Options{Access: admin.AccessFunc(func(_ context.Context, _ admin.Actor, r admin.Right, _ admin.Subject) bool { return r != admin.Requeue })})
	require.NoError(t, err)
	_, err = nobody.Change(t.Context(), mei, admin.Change{Action: admin.Requeue, Entries: []admin.Seen{{ID: id, Version: 2}}, Why: why})
	require.ErrorIs(t, err, admin.ErrNotAllowed)
}

func TestCaseIsFollowedFromItsDeathToItsEnd(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c, orders, _, _ := dying(t, w, w.QuickConfig())
	d := open(t, c)
	id := w.Record(orders, 129, compensator.Options{BusinessID: "o-5581"})
	stop := w.Run(c)
	w.WaitState(id, compensator.Dead)
	require.NoError(t, stop())
	overview, err := d.Overview(t.Context(), mei)
	require.NoError(t, err)
	require.Equal(t, []admin.StateCount{{State: compensator.Dead, N: 1}}, overview.Types[0].Counts)
	page, err := d.Cases(t.Context(), mei, admin.CaseFilter{Unowned: true})
	require.NoError(t, err)
	require.Len(t, page.Cases, 1)
	found := page.Cases[0]
	require.NoError(t, joined(d.TakeCases(t.Context(), mei, []admin.SeenCase{{EntryID: id, Version: found.Version}}, why)))
	require.ErrorIs(t, joined(d.TakeCases(t.Context(), admin.Actor{ID: "bob"}, []admin.SeenCase{{EntryID: id, Version: found.Version}}, why)), admin.ErrChanged)
	require.NoError(t, d.Note(t.Context(), mei, id, admin.Why{Reason: "问过银行了"}))
	e, err := d.Reveal(t.Context(), mei, id, why)
	require.NoError(t, err)
	require.Contains(t, string(e.Content), "129")
	view, err := d.Entry(t.Context(), mei, id)
	require.NoError(t, err)
	require.Empty(t, view.Entry.Content)
	require.Equal(t, []any{compensator.Amount{Minor: 12900, Currency: "CNY"}, "mei"}, []any{view.Amount, view.Case.Owner})
	answers, err := d.Change(t.Context(), mei, admin.Change{Action: admin.SettleManually, Entries: []admin.Seen{{ID: id, Version: view.Entry.Version}}, Why: why})
	require.NoError(t, err)
	require.NoError(t, answers[0])
	view, err = d.Entry(t.Context(), mei, id)
	require.NoError(t, err)
	require.False(t, view.Case.ClosedAt.IsZero())
	var did []string
	for _, r := range view.AuditLog {
		did = append(did, r.Actor+" "+r.Action)
	}
	require.Equal(t, []string{"mei settle by hand", "mei see content", "mei note", "mei take case"}, did)
	require.ErrorIs(t, joined(d.TakeCases(t.Context(), mei, []admin.SeenCase{{EntryID: id, Version: view.Case.Version}}, why)), compensator.ErrNotFound, "it is closed")
}

// Package admin must find the second entry without reading contents, although the ordering key is computed from the
// content.
func TestWhoStandsBehindWhatAdminHasSettledRunsAtOnce(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg := operated(w.QuickConfig())
	cfg.ReconcileInterval, cfg.PollInterval = time.Hour, time.Hour // without a notification the next entry would wait for an hour
	c := w.New(cfg)
	d := open(t, c)
	orders, err := compensator.Handle(t.Context(), c, "refund", func(_ context.Context, _ *compensator.Entry, o harness.Order) error {
		if o.Number == 1 {
			return compensator.Permanent(errors.New("no such account"))
		}
		return nil
	}, &compensator.HandlerConfig[harness.Order]{TypeConfig: compensator.TypeConfig{Serial: func(e *compensator.Entry) string {
		var o harness.Order
		if e.Decode(&o) != nil {
			return "nobody's"
		}
		return "account"
	}}})
	require.NoError(t, err)
	w.Run(c)
	first := w.Record(orders, 1, compensator.Options{})
	w.WaitState(first, compensator.Dead)
	second := w.Record(orders, 2, compensator.Options{})
	require.Equal(t, 2, w.Count("common_process_log_turns"), "it stands behind the first")
	answers, err := d.Change(t.Context(), mei, admin.Change{Action: admin.SettleManually, Entries: openCases(t, d), Why: why})
	require.NoError(t, err)
	require.Equal(t, []error{nil}, answers)
	w.WaitState(second, compensator.Succeeded)
}

// Erase and TakeCases must lock the entry first and the case second.
// Failure: F126
func TestErasureLocksInTheOrderOfWhoeverTakesTheCase(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c, orders, _, _ := dying(t, w, w.QuickConfig())
	d := open(t, c)
	id := w.Record(orders, 1, compensator.Options{})
	stop := w.Run(c)
	w.WaitState(id, compensator.Dead)
	require.NoError(t, stop())
	require.NoError(t, d.Note(t.Context(), mei, id, why))
	held := w.Begin(w.DB)
	_, err := held.Exec("UPDATE common_process_log_case SET owner='bob' WHERE entry_id=?", id.Row())
	require.NoError(t, err)
	erased := make(chan error, 1)
	go func() {
		_, err := admin.Of(c).Erase(context.Background(), id, harness.ByMei)
		erased <- err
	}()
	w.WaitLocked(1)
	_, err = held.Exec("INSERT INTO common_process_log_operation (`at`, actor, `action`, refused, entry_id, business_type, subject, reason) VALUES (0,'bob','take case',0,?,'order','bob','of Mrs. Li')", id.Row())
	require.NoError(t, err, "the owner of the case does not wait")
	require.NoError(t, held.Commit())
	require.NoError(t, <-erased)
	require.Equal(t, 2, w.Count("common_process_log_operation WHERE entry_id=? AND reason=''", id.Row()))
}

func joined(answers []error, err error) error { return errors.Join(append(answers, err)...) }
