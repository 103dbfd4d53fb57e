package admin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/processlog"
)

func attempted(cfg compensator.Config) compensator.Config {
	cfg = operated(cfg)
	cfg.Operations.Attempts = true
	return cfg
}

func view(t *testing.T, d *admin.Admin, id compensator.EntryID) admin.EntryView {
	t.Helper()
	v, err := d.Entry(t.Context(), mei, id)
	require.NoError(t, err)
	return v
}

func attemptsAre(t *testing.T, d *admin.Admin, id compensator.EntryID, want ...string) []admin.FailedAttempt {
	t.Helper()
	attempts := view(t, d, id).Attempts
	var got []string
	for _, a := range attempts {
		text := fmt.Sprintf("%s %d", a.Verdict, a.Number)
		if a.Compensating {
			text = "compensation " + text
		}
		if a.TimedOut {
			text += " timed out"
		}
		got = append(got, text)
	}
	assert.Equal(t, want, got)
	return attempts
}

func TestEachFailedAttemptIsKeptForPeople(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(attempted(cfg))
		d := open(t, c)
		retry := compensator.HandlerConfig[harness.Order]{MaxAttempts: 3, MaxCompensateAttempts: 2, Retry: compensator.Fixed(100 * time.Millisecond)}
		twice, _ := harness.HandleCounted(t, c, "refund", retry, func(_ *compensator.Entry, call int) error {
			switch call {
			case 1:
				return errors.New("card 4111 1111 1111 1111 is refused")
			case 2:
				return compensator.RetryAfter(100*time.Millisecond, compensator.Unavailable(errors.New("down")))
			}
			return nil
		})
		never, _ := harness.HandleCounted(t, c, "mail", retry, harness.FailAlways)
		at := retry
		at.Timeout = 100 * time.Millisecond
		at.Compensate = func(context.Context, *compensator.Entry, harness.Order) error { return errors.New("cannot undo") }
		var calls harness.Calls
		undone, err := compensator.Handle(t.Context(), c, "transfer", func(ctx context.Context, e *compensator.Entry, _ harness.Order) error {
			if calls.Add(e.ID) == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			return compensator.Permanent(errors.New("no such account"))
		}, &at)
		require.NoError(t, err)
		fine, _ := harness.HandleCounted(t, c, "fine", retry, nil)
		ids := map[string]compensator.EntryID{"twice": w.Record(twice, 1, compensator.Options{}), "never": w.Record(never, 2, compensator.Options{}),
			"undone": w.Record(undone, 3, compensator.Options{}), "fine": w.Record(fine, 4, compensator.Options{})}
		crashed := w.InsertDue("mail", 107, 1)[0]
		w.Exec("UPDATE common_process_log SET delivery_count=4 WHERE id=?", crashed.Row())
		w.Run(c)
		w.WaitAllEnded()

		attempts := attemptsAre(t, d, ids["twice"], "failed 1", "waits 2")
		host, err := os.Hostname()
		require.NoError(t, err)
		for i, a := range attempts {
			assert.Equal(t, fmt.Sprintf("%s:%d", host, os.Getpid()), a.Instance)
			assert.False(t, a.StartedAt.Before(a.DueAt), "no attempt is early")
			assert.False(t, a.NextAt.Before(a.StartedAt.Add(100*time.Millisecond)), "the retry schedule delays the next attempt")
			if i > 0 {
				assert.Equal(t, attempts[i-1].NextAt, a.DueAt)
			}
		}
		assert.NotContains(t, attempts[0].Error, "4111")
		assert.Contains(t, attempts[0].Error, "is refused")
		assert.Contains(t, attempts[1].Error, "down")
		attempts = attemptsAre(t, d, ids["never"], "failed 1", "failed 2", "exhausted 3")
		assert.Zero(t, attempts[2].NextAt)
		attempts = attemptsAre(t, d, ids["undone"], "failed 1 timed out", "permanent 2", "compensation failed 1", "compensation exhausted 2")
		assert.GreaterOrEqual(t, attempts[0].Took, 100*time.Millisecond)
		attempts = attemptsAre(t, d, crashed, "crashed 1")
		assert.Equal(t, 4, attempts[0].LostLeases)
		attemptsAre(t, d, ids["fine"])
		assert.Equal(t, 10, w.Count("common_process_log_attempt"), "a success stores none")
	})
}

func TestTimelineTellsTheLifeOfAnEntryInOrder(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(attempted(w.QuickConfig()))
	d := open(t, c)
	orders, _ := harness.HandleCounted(t, c, "refund", compensator.HandlerConfig[harness.Order]{MaxAttempts: 2, Retry: compensator.Fixed(100 * time.Millisecond)},
		func(_ *compensator.Entry, call int) error {
			if call < 4 {
				return fmt.Errorf("failure %d", call)
			}
			return nil
		})
	id := w.Record(orders, 1, compensator.Options{})
	before := view(t, d, id).Timeline()
	require.Len(t, before, 2)
	assert.Equal(t, []admin.EventKind{admin.EventRecorded, admin.EventDue}, []admin.EventKind{before[0].Kind, before[1].Kind})
	w.Run(c)
	w.WaitState(id, compensator.Dead)
	e := view(t, d, id).Entry
	answers, err := d.Change(t.Context(), mei, admin.Change{Action: admin.Requeue, Entries: []admin.Seen{{ID: id, Version: e.Version}}, Why: why})
	require.NoError(t, err)
	require.NoError(t, answers[0])
	w.WaitState(id, compensator.Succeeded)

	v := view(t, d, id)
	var told []string
	for i, e := range v.Timeline() {
		text := string(e.Kind)
		switch e.Kind {
		case admin.EventFailed:
			text = fmt.Sprintf("%s %d of epoch %d: %s", e.Attempt.Verdict, e.Attempt.Number, e.Attempt.Epoch, e.Attempt.Error)
		case admin.EventAction:
			text = e.Action.Actor + " " + e.Action.Action
		case admin.EventEnded:
			text = e.State.String() + " by " + string(e.EndedBy)
		}
		told = append(told, text)
		if i > 0 {
			assert.False(t, e.At.Before(v.Timeline()[i-1].At))
		}
	}
	assert.Equal(t, []string{"recorded", "failed 1 of epoch 0: failure 1", "exhausted 2 of epoch 0: failure 2", "mei requeue",
		"failed 1 of epoch 1: failure 3", "succeeded by handler"}, told)

	w.Exec("DELETE FROM common_process_log_attempt WHERE entry_id=? AND epoch=1", id.Row())
	gap := view(t, d, id).Timeline()[1]
	assert.Equal(t, admin.EventUnrecorded, gap.Kind)
	assert.Equal(t, 1, gap.N, "a failure without a record is not passed over in silence")
}

func TestWithoutAttemptsTheirTableIsNotTouched(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	w.Exec("DROP TABLE common_process_log_attempt")
	_, err := compensator.New(t.Context(), attempted(w.QuickConfig()))
	var missing *compensator.FieldError
	require.ErrorAs(t, err, &missing)
	assert.Contains(t, missing.Error(), "common_process_log_attempt")
	assert.Contains(t, missing.Error(), "Operations.Attempts")

	c := w.New(operated(w.QuickConfig()))
	d := open(t, c)
	orders, _ := harness.HandleCounted(t, c, "refund", compensator.HandlerConfig[harness.Order]{MaxAttempts: 2, Retry: compensator.Fixed(100 * time.Millisecond)}, harness.FailAlways)
	id := w.Record(orders, 1, compensator.Options{})
	stop := w.Run(c)
	w.WaitState(id, compensator.Dead)
	require.NoError(t, stop())
	v := view(t, d, id)
	assert.False(t, v.AttemptsKept)
	assert.Empty(t, v.Attempts)
	_, err = admin.Of(c).Erase(t.Context(), id, admin.AuditInfo{Actor: "mei", Reason: "asked"})
	require.NoError(t, err)
	w.Exec("UPDATE common_process_log SET state=1, next_at=1")
	n, err := admin.Of(c).Purge(t.Context(), time.Minute)
	require.NoError(t, err)
	assert.Equal(t, 1, n)
}

// The process that erases and purges has no Config.Operations.
// Failure: F126
func TestTextsOfOtherProcessesAreErasedAndPurged(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	keeps := w.New(attempted(w.QuickConfig()))
	orders, _ := harness.HandleCounted(t, keeps, "refund", compensator.HandlerConfig[harness.Order]{MaxAttempts: 2, Retry: compensator.Fixed(100 * time.Millisecond)}, harness.FailAlways)
	id := w.Record(orders, 1, compensator.Options{})
	stop := w.Run(keeps)
	w.WaitState(id, compensator.Dead)
	require.NoError(t, stop())
	require.NoError(t, open(t, keeps).Note(t.Context(), mei, id, admin.Why{Reason: "Mrs Chen has called"}))
	texts := func() int {
		return w.Count("common_process_log_attempt WHERE error<>''") + w.Count("common_process_log_case WHERE error<>''") +
			w.Count("common_process_log_operation WHERE reason<>'' AND entry_id=?", id.Row())
	}
	require.Equal(t, 4, texts())

	plain := w.New(w.QuickConfig())
	_, err := admin.Of(plain).Erase(t.Context(), id, admin.AuditInfo{Actor: "bob", Reason: "asked"})
	require.NoError(t, err)
	require.Zero(t, texts())
	purge := func() {
		w.Exec("UPDATE common_process_log SET state=1, next_at=1")
		n, err := admin.Of(plain).Purge(t.Context(), time.Minute)
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}
	purge()
	require.Zero(t, w.Count("common_process_log_attempt"))

	w.Exec("DROP TABLE common_process_log_attempt, common_process_log_case, common_process_log_operation")
	plain = w.New(w.QuickConfig())
	orders, err = compensator.Declare[harness.Order](t.Context(), plain, "refund", nil)
	require.NoError(t, err)
	id = w.Record(orders, 2, compensator.Options{})
	w.Exec("UPDATE common_process_log SET state=1")
	_, err = admin.Of(plain).Erase(t.Context(), id, admin.AuditInfo{Actor: "bob", Reason: "asked"})
	require.NoError(t, err)
	purge()
}

func TestErrorsOfAttemptsAreErasedAndPurged(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(attempted(w.QuickConfig()))
	d := open(t, c)
	orders, _ := harness.HandleCounted(t, c, "refund", compensator.HandlerConfig[harness.Order]{MaxAttempts: 2, Retry: compensator.Fixed(100 * time.Millisecond)}, harness.FailAlways)
	erased, stays := w.Record(orders, 1, compensator.Options{}), w.Record(orders, 2, compensator.Options{})
	stop := w.Run(c)
	w.WaitState(erased, compensator.Dead)
	w.WaitState(stays, compensator.Dead)
	require.NoError(t, stop())
	_, err := admin.Of(c).Erase(t.Context(), erased, admin.AuditInfo{Actor: "mei", Reason: "asked"})
	require.NoError(t, err)
	for _, a := range attemptsAre(t, d, erased, "failed 1", "exhausted 2") {
		assert.Empty(t, a.Error)
	}
	for _, a := range attemptsAre(t, d, stays, "failed 1", "exhausted 2") {
		assert.Equal(t, harness.ErrSoldOut.Error(), a.Error)
	}
	d, err = admin.New(c, admin.Options{Access: admin.AccessFunc(func(_ context.Context, _ admin.Actor, right admin.Right, _ admin.Subject) bool {
		return right == admin.SeeEntries
	})})
	require.NoError(t, err)
	require.Len(t, view(t, d, stays).Attempts, 2, "who sees the entry sees its attempts, with their errors masked")
	w.Exec("UPDATE common_process_log SET state=1, next_at=1")
	n, err := admin.Of(c).Purge(t.Context(), time.Minute)
	require.NoError(t, err)
	assert.Equal(t, 2, n)
	assert.Zero(t, w.Count("common_process_log_attempt"))
	assert.Equal(t, processlog.MaxAttemptsKept, 50, "the pages and the documentation say 50")
}
