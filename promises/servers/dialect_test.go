package servers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/testservers"
)

// sessions returns connection settings that users choose, by name.
func sessions(t *testing.T) map[string]map[string]string {
	list := map[string]map[string]string{
		"as it comes":             {},
		"found rows":              {"clientFoundRows": "true"},
		"interpolated, found":     {"interpolateParams": "true", "clientFoundRows": "true"},
		"far east":                {"parseTime": "true", "loc": "Asia/Shanghai", "time_zone": "'+08:00'"},
		"clocks disagree":         {"parseTime": "true", "loc": "America/New_York", "time_zone": "'+05:30'"},
		"west of the date line":   {"time_zone": "'-11:00'", "loc": "Pacific/Auckland"},
		"ansi quotes":             {"sql_mode": "'ANSI_QUOTES,PIPES_AS_CONCAT,IGNORE_SPACE,STRICT_TRANS_TABLES'"},
		"no backslash escapes":    {"interpolateParams": "true", "sql_mode": "'NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES'"},
		"traditional":             {"sql_mode": "'TRADITIONAL'"},
		"signed subtraction":      {"sql_mode": "'NO_UNSIGNED_SUBTRACTION,STRICT_TRANS_TABLES,NO_AUTO_VALUE_ON_ZERO,ONLY_FULL_GROUP_BY'"},
		"many statements":         {"multiStatements": "true", "rejectReadOnly": "true", "collation": "utf8mb4_unicode_ci"},
		"fractions the other way": {"sql_mode": "'STRICT_TRANS_TABLES,TIME_TRUNCATE_FRACTIONAL'"},
	}
	if testservers.SharedSQL(t).Flavor == "mariadb" {
		list["fractions the other way"] = map[string]string{"sql_mode": "'STRICT_TRANS_TABLES,TIME_ROUND_FRACTIONAL'"}
		list["simultaneous assignment"] = map[string]string{"sql_mode": "'STRICT_TRANS_TABLES,SIMULTANEOUS_ASSIGNMENT'"}
		list["like oracle"] = map[string]string{"sql_mode": "'ORACLE,STRICT_TRANS_TABLES'"}
	}
	return list
}

// Failure: F33, F53
func TestEveryPathWorksHoweverTheUsersSessionsAreSetUp(t *testing.T) {
	t.Parallel()
	for name, params := range sessions(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for kind, pool := range harness.Pools {
				w := harness.NewWorld(t).WithRedis()
				cfg := w.QuickConfig()
				cfg.DB = w.Open(pool(harness.WithParams(t, w.DSN, params)))
				t.Run(kind, func(t *testing.T) { sendEveryStatement(t, w, cfg) })
			}
		})
	}
}

// everyStatement makes the library send each of its statements at least once.
type everyStatement struct {
	*harness.World
	t      *testing.T
	c      *compensator.Compensator
	db     *sql.DB
	orders *compensator.Type[harness.Order]
	ran    *harness.Calls
}

func sendEveryStatement(t *testing.T, w *harness.World, cfg compensator.Config) {
	c := w.New(cfg)
	fails := func(e *compensator.Entry, call int) error {
		switch {
		case e.BusinessID == "permanent":
			return compensator.Permanent(errors.New("no such order"))
		case e.BusinessID == "twice" && call <= 2:
			return fmt.Errorf("failure %d", call)
		}
		return nil
	}
	orders, ran := harness.HandleCounted(t, c, "plain", compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(0)}, fails)
	l := &everyStatement{World: w, t: t, c: c, db: cfg.DB, orders: orders, ran: ran}
	l.registerOthers()
	stop := w.Run(c)
	l.dueIsExact()
	l.everyKindRuns()
	l.duplicatesAreAnswered()
	l.peopleAndServicesAct()
	w.WaitAllEnded() // Wait until no entry changes any more. An entry that changes state could be counted twice or not at all.
	l.everythingCanBeLookedUp()
	require.NoError(t, stop())
	_, err := admin.Of(c).Purge(t.Context(), time.Hour)
	require.NoError(t, err)
}

func (l *everyStatement) registerOthers() {
	_, err := compensator.HandleTx(l.t.Context(), l.c, "transactional", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ harness.Order) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES (?)", e.BatchID)
		if e.BusinessID == "twice" && e.ProcessCount < 2 {
			return fmt.Errorf("failure %d", e.Attempt())
		}
		return err
	}, &compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(0)})
	require.NoError(l.t, err)
	_, err = compensator.HandleBatch(l.t.Context(), l.c, "batch", func(_ context.Context, items []compensator.Item[harness.Order]) []error {
		verdicts := make([]error, len(items))
		for i, item := range items {
			if item.Entry.BusinessID == "twice" && item.Entry.ProcessCount < 2 {
				verdicts[i] = fmt.Errorf("failure %d", item.Entry.Attempt())
			}
		}
		return verdicts
	}, &compensator.BatchConfig[harness.Order]{Retry: compensator.Fixed(0)})
	require.NoError(l.t, err)
	_, err = compensator.Handle(l.t.Context(), l.c, "undone", func(context.Context, *compensator.Entry, harness.Order) error { return errors.New("no") },
		&compensator.HandlerConfig[harness.Order]{MaxAttempts: 1, CompensateTx: func(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, _ harness.Order) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES ('undone')")
			return err
		}})
	require.NoError(l.t, err)
}

func (l *everyStatement) record(entries ...compensator.NewEntry) *compensator.Receipt {
	l.t.Helper()
	var receipt *compensator.Receipt
	l.InTx(l.db, func(tx *sql.Tx) {
		var err error
		receipt, err = l.c.Record(l.t.Context(), tx, entries...)
		require.NoError(l.t, err)
	})
	receipt.Committed()
	require.NoError(l.t, receipt.ResolveIDs(l.t.Context(), nil))
	return receipt
}

func (l *everyStatement) entry(businessType, kind string, opts compensator.Options) compensator.NewEntry {
	opts.BusinessID = kind
	return compensator.NewEntry{BusinessType: businessType, Content: []byte(`{"note":"it's \\ \"退款\" 😀"}`), Options: opts}
}

// serverNow reads the clock of the server in a session without the settings that the test tries.
func (l *everyStatement) serverNow() (ms int64) {
	require.NoError(l.t, l.DB.QueryRow("SELECT CAST(UNIX_TIMESTAMP(NOW(3))*1000 AS SIGNED)").Scan(&ms))
	return ms
}

// dueIsExact requires that an entry is due exactly when its delay has passed on the server's clock, rounded up to a
// millisecond.
func (l *everyStatement) dueIsExact() {
	const delay = 3_600_000
	before := l.serverNow()
	receipt := l.record(l.entry("plain", "later", compensator.Options{Delay: delay * time.Millisecond}))
	after := l.serverNow()
	entry, err := l.c.Get(l.t.Context(), receipt.ID())
	require.NoError(l.t, err)
	within := func(at time.Time, from, to int64, what string) {
		assert.GreaterOrEqual(l.t, at.UnixMilli(), from, what)
		assert.LessOrEqual(l.t, at.UnixMilli(), to, what)
		assert.Equal(l.t, time.UTC, at.Location(), what)
	}
	within(entry.NextAt, before+delay, after+delay+2, "due")
	within(entry.CreatedAt, before, after, "created")
	within(entry.UpdatedAt, before, after, "updated")
	require.NoError(l.t, harness.ErrOf(l.c.Complete(l.t.Context(), receipt.ID())))
}

func (l *everyStatement) everyKindRuns() {
	var all []compensator.NewEntry
	for _, businessType := range []string{"plain", "transactional", "batch", "undone"} {
		for i, kind := range []string{"at once", "twice"} {
			all = append(all, l.entry(businessType, kind, compensator.Options{BatchID: "life", Delay: time.Duration(i) * time.Millisecond}))
		}
	}
	receipt := l.record(all...)
	require.NoError(l.t, l.c.InTx(l.t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := l.c.Record(ctx, tx, l.entry("plain", "at once", compensator.Options{BatchID: "life"}))
		return err
	}))
	l.Eventually(func() bool {
		progress, err := l.c.Batch("life").Progress(l.t.Context())
		return assert.NoError(l.t, err) && progress.Finished() && progress.Total == len(all)+1
	}, "the batch ends")
	assert.Equal(l.t, 3, l.ran.Of(receipt.Entries[1].ID))
	assert.Equal(l.t, 3, l.Count("common_process_log WHERE state=1 AND process_count=2 AND business_id='twice' AND last_error=''"))
	assert.Equal(l.t, 2, l.Count("common_process_log WHERE state=2 AND business_type='undone'"))
	assert.Equal(l.t, 2, l.Count("effects WHERE what='life'"))
	assert.Equal(l.t, 2, l.Count("effects WHERE what='undone'"))
}

func (l *everyStatement) duplicatesAreAnswered() {
	first := l.entry("plain", "at once", compensator.Options{IdempotencyKey: "it's \\ 1"})
	other := first
	other.Content = []byte("{}")
	known := l.record(first)
	fresh := l.entry("plain", "at once", compensator.Options{IdempotencyKey: "fresh"})
	again := l.record(fresh, first, other)
	assert.False(l.t, again.Duplicate())
	for i, matches := range map[int]bool{1: true, 2: false} {
		assert.True(l.t, again.Entries[i].Duplicate)
		assert.Equal(l.t, known.ID(), again.Entries[i].ID)
		assert.Equal(l.t, matches, again.Entries[i].ContentMatches)
	}
	strict := l.record(l.entry("plain", "at once", compensator.Options{IdempotencyKey: "stricT"}))
	tx := l.Begin(l.db)
	_, err := l.c.Record(l.t.Context(), tx, l.entry("plain", "at once", compensator.Options{IdempotencyKey: "stricT", FailOnDuplicate: true}))
	require.ErrorIs(l.t, err, compensator.ErrDuplicate)
	require.NoError(l.t, tx.Rollback())
	l.WaitState(strict.ID(), compensator.Succeeded)
}

func (l *everyStatement) peopleAndServicesAct() {
	ctx, later := l.t.Context(), compensator.Options{Delay: time.Hour}
	_, err := l.c.Cancel(ctx, l.record(l.entry("plain", "later", later)).ID())
	require.NoError(l.t, err)
	later.IdempotencyKey = "paid"
	l.record(l.entry("plain", "later", later))
	l.InTx(l.db, func(tx *sql.Tx) {
		require.NoError(l.t, harness.ErrOf(l.c.CompleteTx(ctx, tx, compensator.IdempotencyKey("paid"))))
	})
	later.IdempotencyKey = "moved"
	moved := l.record(l.entry("plain", "later", later))
	l.InTx(l.db, func(tx *sql.Tx) { require.NoError(l.t, l.c.RescheduleTx(ctx, tx, moved.ID(), 0)) })
	l.WaitState(moved.ID(), compensator.Succeeded)

	by := admin.AuditInfo{Actor: "ann 😀", Reason: "it's \"paid\" in \\cash"}
	dead := l.record(l.entry("plain", "permanent", compensator.Options{}), l.entry("plain", "permanent", compensator.Options{}))
	for _, e := range dead.Entries {
		l.WaitState(e.ID, compensator.Dead)
	}
	require.NoError(l.t, admin.Of(l.c).SettleManually(ctx, dead.Entries[0].ID, by))
	require.NoError(l.t, admin.Of(l.c).Requeue(ctx, dead.Entries[1].ID, admin.RequeueOptions{AuditInfo: by}))
	l.Eventually(func() bool { return l.ran.Of(dead.Entries[1].ID) == 2 }, "a requeued entry runs again")
	history, err := admin.Of(l.c).History(ctx, dead.Entries[0].ID)
	require.NoError(l.t, err)
	require.Len(l.t, history, 1)
	assert.Equal(l.t, by.Reason, history[0].Reason)
	assert.Equal(l.t, by.Actor, history[0].Actor)
}

func (l *everyStatement) everythingCanBeLookedUp() {
	ctx := l.t.Context()
	entry, err := l.c.Resolve(ctx, compensator.IdempotencyKey("paid"))
	require.NoError(l.t, err)
	assert.Equal(l.t, compensator.Succeeded, entry.State)
	assert.Equal(l.t, compensator.EndedByComplete, entry.EndedBy)
	assert.JSONEq(l.t, `{"note":"it's \\ \"退款\" 😀"}`, string(entry.Content))
	_, err = l.c.Resolve(ctx, compensator.IdempotencyKey("none"))
	assert.ErrorIs(l.t, err, compensator.ErrNotFound)

	var all []compensator.Entry
	filter := admin.Filter{Limit: 7, CreatedFrom: entry.CreatedAt.Add(-time.Hour), CreatedTo: entry.CreatedAt.Add(time.Hour)}
	for first := true; first || filter.Cursor != ""; first = false {
		page, err := admin.Of(l.c).List(ctx, filter)
		require.NoError(l.t, err)
		all, filter.Cursor = append(all, page.Entries...), page.Next
	}
	assert.Len(l.t, all, l.Count("common_process_log"))
	assert.True(l.t, slices.ContainsFunc(all, func(e compensator.Entry) bool { return e.ID == entry.ID }))
	counts, err := admin.Of(l.c).Count(ctx, admin.CountFilter{})
	require.NoError(l.t, err)
	total := 0
	for _, count := range counts {
		total += count.N
	}
	assert.Equal(l.t, len(all), total)
	health := l.c.Health(ctx)
	assert.NoError(l.t, health.Database)
	assert.NoError(l.t, health.Queue)
}
