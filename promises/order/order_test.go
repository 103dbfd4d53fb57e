package order

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/harness"
)

func account(e *compensator.Entry) string { return e.UserID }

type watch struct {
	t *testing.T

	mu      sync.Mutex
	running map[string]compensator.EntryID
	began   map[string][]compensator.EntryID // ids in the order of their starts, by ordering key; consecutive attempts of one entry count once
}

func newWatch(t *testing.T) *watch {
	return &watch{t: t, running: make(map[string]compensator.EntryID), began: make(map[string][]compensator.EntryID)}
}

func (w *watch) enter(e *compensator.Entry) (leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if other, beside := w.running[e.UserID]; beside {
		assert.Fail(w.t, "two of one key at once", "%s: %s beside %s", e.UserID, e.ID, other)
	}
	w.running[e.UserID] = e.ID
	if order := w.began[e.UserID]; len(order) == 0 || order[len(order)-1] != e.ID {
		w.began[e.UserID] = append(order, e.ID)
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.running, e.UserID)
	}
}

func (w *watch) order(key string) []compensator.EntryID {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]compensator.EntryID(nil), w.began[key]...)
}

func withKey(key string) compensator.Options { return compensator.Options{UserID: key} }

func serial(t *testing.T, c *compensator.Compensator, w *watch, cfg compensator.HandlerConfig[harness.Order], inner func(ctx context.Context, e *compensator.Entry) error) *compensator.Type[harness.Order] {
	t.Helper()
	cfg.Serial = account
	orders, err := compensator.Handle(t.Context(), c, "book", func(ctx context.Context, e *compensator.Entry, _ harness.Order) error {
		defer w.enter(e)()
		if inner == nil {
			return nil
		}
		return inner(ctx, e)
	}, &cfg)
	require.NoError(t, err)
	return orders
}

// Each transaction locks the account's row first, so that the ids follow the order of the commits.
// Failure: F112
func TestEntriesOfOneKeyRunOneAtATimeInTheOrderOfTheirIds(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		const accounts, each = 5, 12
		seen := newWatch(t)
		var orders []*compensator.Type[harness.Order]
		for range 3 {
			c := w.New(cfg)
			orders = append(orders, serial(t, c, seen, compensator.HandlerConfig[harness.Order]{Concurrency: 4}, nil))
			w.Run(c)
		}
		var mu [accounts]sync.Mutex
		want := make([][]compensator.EntryID, accounts)
		var recorders sync.WaitGroup
		for i := range accounts * each {
			recorders.Go(func() {
				mu[i%accounts].Lock()
				defer mu[i%accounts].Unlock()
				id := w.RecordThrough(cfg.DB, orders[i%len(orders)], i, withKey(strconv.Itoa(i%accounts)))
				want[i%accounts] = append(want[i%accounts], id)
			})
		}
		recorders.Wait()
		w.WaitAllEnded()
		for i := range want {
			require.Equal(t, want[i], seen.order(strconv.Itoa(i)))
		}
		require.Equal(t, accounts*each, w.Count("common_process_log WHERE state=1 AND process_count=0"))
		w.Eventually(func() bool { return w.Count("common_process_log_turns") == 0 }, "no positions are left")
	})
}

// Failure: F112
func TestManyOfOneRecordRunInOrder(t *testing.T) {
	t.Parallel()
	harness.InOppositeModes(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		seen := newWatch(t)
		c := w.New(cfg)
		orders := serial(t, c, seen, compensator.HandlerConfig[harness.Order]{}, nil)
		w.Run(c)
		var entries []compensator.NewEntry
		for i := range 60 {
			entry := orders.Entry(harness.Order{Number: i}, compensator.Options{UserID: "ann", IdempotencyKey: compensator.IdempotencyKey(fmt.Sprintf("%03d", i))})
			entries = append(entries, entry)
		}
		var receipt *compensator.Receipt
		w.InTx(cfg.DB, func(tx *sql.Tx) {
			var err error
			receipt, err = c.Record(t.Context(), tx, append(entries, entries[0])...)
			require.NoError(t, err)
		})
		receipt.Committed()
		var want []compensator.EntryID
		for _, r := range receipt.Entries[:60] {
			require.False(t, r.ID.IsZero(), "ids are known")
			want = append(want, r.ID)
		}
		w.WaitAllEnded()
		require.ElementsMatch(t, want, seen.order("ann"))
		for i, id := range seen.order("ann")[1:] {
			require.Positive(t, id.Compare(seen.order("ann")[i]), "in the order of ids")
		}
	})
}

func TestOtherKeysAndEntriesWithNoneRunBeside(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	c := w.New(w.QuickConfig())
	gate := harness.NewGate()
	orders := serial(t, c, newWatch(t), compensator.HandlerConfig[harness.Order]{}, func(ctx context.Context, e *compensator.Entry) error {
		if e.UserID == "ann" {
			return gate.Pass(ctx, e)
		}
		return nil
	})
	w.Run(c)
	first := w.Record(orders, 1, withKey("ann"))
	require.Equal(t, first, gate.Await(t))
	second := w.Record(orders, 2, withKey("ann"))
	bob, nobody := w.Record(orders, 3, withKey("bob")), w.Record(orders, 4, compensator.Options{})
	w.WaitState(bob, compensator.Succeeded)
	w.WaitState(nobody, compensator.Succeeded)
	passBy(w, w.DB, orders)
	require.Equal(t, compensator.Pending, w.State(second))
	require.Zero(t, w.Entry(c, second).Version, "it was not written")
	require.Zero(t, w.Entry(c, second).DeliveryCount, "it has not been delivered")
	gate.Open()
	w.WaitState(second, compensator.Succeeded)
}

// When passBy returns, the process has read every earlier entry, too.
func passBy(w *harness.World, db *sql.DB, orders *compensator.Type[harness.Order]) {
	w.T.Helper()
	w.WaitState(w.RecordThrough(db, orders, 100, withKey("somebody else")), compensator.Succeeded)
}

func awaitBlocked(w *harness.World, id compensator.EntryID) {
	w.T.Helper()
	w.Eventually(func() bool {
		return w.Count("common_process_log l JOIN common_process_log_turns t ON t.entry_id=l.id WHERE l.id=? AND t.parked>0 AND l.version>=t.parked", id.Row()) == 1
	}, "%s waits", id)
}

// Failure: F113
func TestWaitingFirstKeepsTheOthersWaiting(t *testing.T) {
	t.Parallel()
	harness.InOppositeModes(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		seen := newWatch(t)
		c := w.New(cfg)
		var calls harness.Calls
		var order sync.Map
		orders := serial(t, c, seen, compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(50 * time.Millisecond)}, func(_ context.Context, e *compensator.Entry) error {
			switch n := calls.Add(e.ID); {
			case e.BusinessID != "slow":
				order.Store(e.ID, true)
				return nil
			case n == 1:
				return harness.ErrSoldOut
			case n == 2:
				return compensator.Snooze(100 * time.Millisecond)
			case n == 3:
				return compensator.Unavailable(harness.ErrSoldOut)
			}
			order.Range(func(key, _ any) bool { return assert.Fail(t, "it was overtaken", "by %s", key) })
			return nil
		})
		opts := withKey("ann")
		opts.BusinessID, opts.Delay = "slow", 200*time.Millisecond
		first := w.RecordThrough(cfg.DB, orders, 1, opts)
		second, third := w.RecordThrough(cfg.DB, orders, 2, withKey("ann")), w.RecordThrough(cfg.DB, orders, 3, withKey("ann"))
		w.Run(c)
		w.WaitAllEnded()
		require.Equal(t, []compensator.EntryID{first, second, third}, seen.order("ann"))
		require.Equal(t, 4, calls.Of(first))
	})
}

// Failure: F113
func TestCompensationBlocksTheKey(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	seen, gate := newWatch(t), harness.NewGate()
	orders := serial(t, c, seen, compensator.HandlerConfig[harness.Order]{Compensate: func(ctx context.Context, e *compensator.Entry, _ harness.Order) error {
		defer seen.enter(e)()
		return gate.Pass(ctx, e)
	}}, func(_ context.Context, e *compensator.Entry) error {
		if e.BusinessID == "bad" {
			return compensator.Permanent(harness.ErrSoldOut)
		}
		return nil
	})
	w.Run(c)
	first := w.Record(orders, 1, compensator.Options{UserID: "ann", BusinessID: "bad"})
	require.Equal(t, first, gate.Await(t))
	second := w.Record(orders, 2, withKey("ann"))
	passBy(w, w.DB, orders)
	require.Equal(t, compensator.Compensating, w.State(first))
	gate.Open()
	w.WaitState(second, compensator.Succeeded)
	require.Equal(t, compensator.Compensated, w.State(first))
	require.Equal(t, []compensator.EntryID{first, second}, seen.order("ann"))
}

// Failure: F113
func TestDeadFirstKeepsTheOthersWaitingForAPerson(t *testing.T) {
	t.Parallel()
	by := admin.AuditInfo{Actor: "ann", Reason: "because"}
	for name, end := range map[string]func(w *harness.World, c *compensator.Compensator, id compensator.EntryID) error{
		"settled by hand": func(w *harness.World, c *compensator.Compensator, id compensator.EntryID) error {
			return admin.Of(c).SettleManually(w.T.Context(), id, by)
		},
		"requeued": func(w *harness.World, c *compensator.Compensator, id compensator.EntryID) error {
			return admin.Of(c).Requeue(w.T.Context(), id, admin.RequeueOptions{AuditInfo: by})
		},
		"cancelled by a process that does not know the type": func(w *harness.World, _ *compensator.Compensator, id compensator.EntryID) error {
			return harness.ErrOf(w.New(w.QuickConfig()).Cancel(w.T.Context(), id)) // The running process does not learn of this change.
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t).WithRedis()
			c := w.New(w.QuickConfig())
			seen := newWatch(t)
			var calls harness.Calls
			orders := serial(t, c, seen, compensator.HandlerConfig[harness.Order]{}, func(_ context.Context, e *compensator.Entry) error {
				if calls.Add(e.ID) == 1 && e.BusinessID == "bad" {
					return compensator.Permanent(harness.ErrSoldOut)
				}
				return nil
			})
			w.Run(c)
			first := w.Record(orders, 1, compensator.Options{UserID: "ann", BusinessID: "bad"})
			w.WaitState(first, compensator.Dead)
			second := w.Record(orders, 2, withKey("ann"))
			passBy(w, w.DB, orders)
			require.NoError(t, end(w, c, first))
			w.WaitState(second, compensator.Succeeded)
			require.Equal(t, []compensator.EntryID{first, second}, seen.order("ann"))
		})
	}
}

// Failure: F113
func TestDeadFirstIsPassedWhereTheTypeSaysSo(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	c := w.New(w.QuickConfig())
	seen, gate := newWatch(t), harness.NewGate()
	var calls harness.Calls
	orders := serial(t, c, seen, compensator.HandlerConfig[harness.Order]{TypeConfig: compensator.TypeConfig{PassDead: true}}, func(ctx context.Context, e *compensator.Entry) error {
		switch {
		case e.BusinessID == "slow":
			return gate.Pass(ctx, e)
		case calls.Add(e.ID) == 1 && e.BusinessID == "bad":
			return compensator.Permanent(harness.ErrSoldOut)
		}
		return nil
	})
	w.Run(c)
	first := w.Record(orders, 1, compensator.Options{UserID: "ann", BusinessID: "bad"})
	second := w.Record(orders, 2, compensator.Options{UserID: "ann", BusinessID: "slow"})
	require.Equal(t, second, gate.Await(t))
	require.Equal(t, compensator.Dead, w.State(first))
	// The requeued entry must not run while another entry of the key is running.
	require.NoError(t, admin.Of(c).Requeue(t.Context(), first, admin.RequeueOptions{AuditInfo: admin.AuditInfo{Actor: "ann", Reason: "because"}}))
	awaitBlocked(w, first)
	gate.Open()
	w.WaitState(first, compensator.Succeeded)
	w.WaitState(second, compensator.Succeeded)
	require.Equal(t, []compensator.EntryID{first, second, first}, seen.order("ann"))
}

// The handler of a cancelled entry may continue for a while.
// Failure: F114
func TestCancelledEntriesLeaveTheirKey(t *testing.T) {
	t.Parallel()
	harness.InOppositeModes(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		orders, gate := harness.HandleGated(t, c, "book", compensator.HandlerConfig[harness.Order]{Concurrency: 3, TypeConfig: compensator.TypeConfig{Serial: account}}, nil)
		w.Run(c)
		first := w.RecordThrough(cfg.DB, orders, 0, withKey("ann"))
		require.Equal(t, first, gate.Await(t))
		behind, last := w.RecordThrough(cfg.DB, orders, 1, withKey("ann")), w.RecordThrough(cfg.DB, orders, 2, withKey("ann"))
		other := w.RecordThrough(cfg.DB, orders, 3, withKey("bob"))
		require.Equal(t, other, gate.Await(t), "those before it were looked at, and left alone")
		require.NoError(t, harness.ErrOf(c.Cancel(t.Context(), behind)))
		require.NoError(t, harness.ErrOf(c.Cancel(t.Context(), first)))
		require.Equal(t, last, gate.Await(t))
		gate.Open()
		w.WaitState(last, compensator.Succeeded)
	})
}

// The database assigns an id before the transaction commits.
// Failure: F112
func TestEntryCommittedLateRunsBesideNone(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		seen, gate := newWatch(t), harness.NewGate()
		orders := serial(t, c, seen, compensator.HandlerConfig[harness.Order]{}, func(ctx context.Context, e *compensator.Entry) error {
			if e.BusinessID == "slow" {
				return gate.Pass(ctx, e)
			}
			return nil
		})
		w.Run(c)
		tx, err := cfg.DB.Begin()
		require.NoError(t, err)
		receipt, err := orders.Record(t.Context(), tx, harness.Order{}, withKey("ann"))
		require.NoError(t, err)
		slow := w.RecordThrough(cfg.DB, orders, 1, compensator.Options{UserID: "ann", BusinessID: "slow"})
		require.Equal(t, slow, gate.Await(t))
		require.NoError(t, tx.Commit())
		receipt.Committed()
		late := receipt.ID()
		require.Negative(t, late.Compare(slow))
		awaitBlocked(w, late)
		third := w.RecordThrough(cfg.DB, orders, 2, withKey("ann"))
		passBy(w, cfg.DB, orders)
		gate.Open()
		w.WaitAllEnded()
		require.Equal(t, []compensator.EntryID{slow, late, third}, seen.order("ann"))
	})
}

// Failure: F113
func TestLostLeaseOfTheFirstLetsNobodyPass(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	seen, gate := newWatch(t), harness.NewGate()
	orders := serial(t, c, seen, compensator.HandlerConfig[harness.Order]{}, func(ctx context.Context, e *compensator.Entry) error {
		if e.BusinessID == "slow" {
			return gate.PassIgnoringContext(e)
		}
		return nil
	})
	gate.OpenAtEnd(t)
	w.Run(c)
	slow := w.Record(orders, 0, compensator.Options{UserID: "ann", BusinessID: "slow"})
	require.Equal(t, slow, gate.Await(t))
	w.EndLease(slow)
	second := w.Record(orders, 1, withKey("ann"))
	passBy(w, w.DB, orders)
	require.Equal(t, []compensator.EntryID{slow}, seen.order("ann"))
	gate.Open()
	w.WaitState(second, compensator.Succeeded)
}

// An entry without a position gets its position when it is first claimed.
// Failure: F114
func TestEntriesRecordedWithoutPositionsRunOneAtATime(t *testing.T) {
	t.Parallel()
	harness.InOppositeModes(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		seen := newWatch(t)
		ids := w.InsertDue("book", 1000, 25)
		w.Exec("UPDATE common_process_log SET user_id='ann'")
		for range 2 {
			c := w.New(cfg)
			serial(t, c, seen, compensator.HandlerConfig[harness.Order]{Concurrency: 3}, nil)
			w.Run(c)
		}
		w.WaitAllEnded()
		require.ElementsMatch(t, ids, seen.order("ann"), "each once, and none beside another")
	})
}

func TestBatchHoldsOneOfEachKey(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	seen := newWatch(t)
	orders, err := compensator.HandleBatch(t.Context(), c, "book", func(_ context.Context, items []compensator.Item[harness.Order]) []error {
		for _, item := range items {
			defer seen.enter(item.Entry)()
		}
		return nil
	}, &compensator.BatchConfig[harness.Order]{TypeConfig: compensator.TypeConfig{Serial: account}})
	require.NoError(t, err)
	want := make(map[string][]compensator.EntryID)
	for i := range 40 {
		key := strconv.Itoa(i % 8)
		want[key] = append(want[key], w.Record(orders, i, withKey(key)))
	}
	w.Run(c)
	w.WaitAllEnded()
	for key, ids := range want {
		require.Equal(t, ids, seen.order(key))
	}
}

func TestTransactionalHandlersRunInOrder(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	seen := newWatch(t)
	var orders *compensator.Type[harness.Order]
	for range 2 {
		c := w.New(w.QuickConfig())
		orders = harness.HandleTransactional(t, c, compensator.HandlerConfig[harness.Order]{TypeConfig: compensator.TypeConfig{Serial: account}}, func(_ context.Context, _ *compensator.ScopedTx, e *compensator.Entry) error {
			defer seen.enter(e)()
			return nil
		})
		w.Run(c)
	}
	var want []compensator.EntryID
	for i := range 20 {
		want = append(want, w.Record(orders, i, withKey("ann")))
	}
	w.WaitAllEnded()
	require.Equal(t, want, seen.order("ann"))
	require.Equal(t, 20, w.Count("effects"))
}

// Failure: F114
func TestDeclaredTypeRecordsPositions(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	recorder := w.New(w.QuickConfig())
	declared, err := compensator.Declare[harness.Order](t.Context(), recorder, "book", &compensator.TypeConfig{Serial: account})
	require.NoError(t, err)
	first := w.Record(declared, 1, compensator.Options{UserID: "ann", Delay: 200 * time.Millisecond})
	second := w.Record(declared, 2, withKey("ann"))
	require.Equal(t, 2, w.Count("common_process_log_turns WHERE turn_key='ann'"))
	seen := newWatch(t)
	c := w.New(w.QuickConfig())
	serial(t, c, seen, compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(c)
	w.WaitAllEnded()
	require.Equal(t, []compensator.EntryID{first, second}, seen.order("ann"))
}

// Failure: F116
func TestSerialTypeWithoutItsTableIsRefused(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	w.Exec("DROP TABLE common_process_log_turns")
	c := w.New(w.QuickConfig())
	var field *compensator.FieldError
	_, err := compensator.Declare[harness.Order](t.Context(), c, "book", &compensator.TypeConfig{Serial: account})
	require.ErrorAs(t, err, &field)
	require.Contains(t, err.Error(), "common_process_log_turns")
	_, err = compensator.Handle(t.Context(), c, "book", func(context.Context, *compensator.Entry, harness.Order) error { return nil }, &compensator.HandlerConfig[harness.Order]{TypeConfig: compensator.TypeConfig{Serial: account}})
	require.ErrorAs(t, err, &field)
	orders, _ := harness.HandleCounted(t, c, "plain", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(c)
	w.WaitState(w.Record(orders, 1, compensator.Options{}), compensator.Succeeded)
}

// Failure: F116
func TestPanicOfSerialRefusesTheRecord(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	orders, err := compensator.Handle(t.Context(), c, "book", func(context.Context, *compensator.Entry, harness.Order) error { return nil },
		&compensator.HandlerConfig[harness.Order]{TypeConfig: compensator.TypeConfig{Serial: func(e *compensator.Entry) string {
			if e.UserID == "" {
				panic("no user")
			}
			return e.UserID
		}}, Retry: compensator.Fixed(20 * time.Millisecond)})
	require.NoError(t, err)
	tx, err := w.DB.Begin()
	require.NoError(t, err)
	_, err = orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{})
	var field *compensator.FieldError
	require.ErrorAs(t, err, &field)
	require.Equal(t, "Serial", field.Field)
	require.ErrorIs(t, tx.Commit(), compensator.ErrNotRecorded)
	// Plain SQL writes an entry with an invalid key.
	bad := w.InsertDue("book", 1000, 1)[0]
	w.Run(c)
	w.WaitState(w.Record(orders, 1, withKey("ann")), compensator.Succeeded)
	w.Eventually(func() bool { return w.Entry(c, bad).LastError != "" }, "its problem is reported")
	require.Contains(t, w.Entry(c, bad).LastError, "no user")
	require.Zero(t, w.Entry(c, bad).ProcessCount)
}

// Failure: F116
func TestPassDeadNeedsSerial(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	_, err := compensator.Handle(t.Context(), w.New(w.QuickConfig()), "book", func(context.Context, *compensator.Entry, harness.Order) error { return nil }, &compensator.HandlerConfig[harness.Order]{TypeConfig: compensator.TypeConfig{PassDead: true}})
	var field *compensator.FieldError
	require.ErrorAs(t, err, &field)
	require.Equal(t, "PassDead", field.Field)
}

// Failure: F115
func TestNextOfAKeyIsNotified(t *testing.T) {
	t.Parallel()
	for name, instances := range map[string]int{"wheel": 1, "redis": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t)
			if name == "redis" {
				w.WithRedis()
			}
			cfg := w.QuickConfig()
			cfg.ReconcileInterval, cfg.PollInterval = time.Hour, time.Hour
			seen := newWatch(t)
			var types []*compensator.Type[harness.Order]
			for range instances {
				c := w.New(cfg)
				types = append(types, serial(t, c, seen, compensator.HandlerConfig[harness.Order]{}, nil))
				w.Run(c)
			}
			var recorders sync.WaitGroup
			for i := range 90 {
				recorders.Go(func() { w.Record(types[i%instances], i, withKey(strconv.Itoa(i%3))) })
			}
			recorders.Wait()
			w.WaitAllEnded()
		})
	}
}
