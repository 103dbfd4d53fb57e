package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/httpcall"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/processlog"
)

func operated(cfg compensator.Config) compensator.Config {
	cfg.Operations = &compensator.Operations{Types: map[string]compensator.CaseConfig{"refund": {Due: time.Hour,
		Amount: func(e *compensator.Entry) (compensator.Amount, error) {
			var o harness.Order
			err := e.Decode(&o)
			return compensator.Amount{Minor: int64(o.Number) * 100, Currency: "CNY"}, err
		}}}}
	return cfg
}

var everything = admin.AccessFunc(func(context.Context, admin.Actor, admin.Right, admin.Subject) bool { return true })

var (
	mei = admin.Actor{ID: "mei"}
	why = admin.Why{Reason: "PSP is back", Ticket: "OPS-988"}
)

func open(t *testing.T, c *compensator.Compensator) *admin.Admin {
	t.Helper()
	d, err := admin.New(c, admin.Options{Access: everything})
	require.NoError(t, err)
	return d
}

// Failure: F118
func TestEveryEntryThatDiesHasItsCaseAtOnce(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(operated(cfg))
		d := open(t, c)
		orders, _ := harness.HandleCounted(t, c, "refund", compensator.HandlerConfig[harness.Order]{MaxAttempts: 2, Retry: compensator.Fixed(100 * time.Millisecond)}, func(e *compensator.Entry, _ int) error {
			var o harness.Order
			if err := e.Decode(&o); err != nil || o.Number%3 == 0 {
				return err
			}
			return fmt.Errorf("POST /refund: status 503 for order %d at %v", o.Number*1009, time.Now())
		})
		w.RecordMany(c, orders, 60, compensator.Options{})
		w.Run(c)
		w.WaitAllEnded()
		require.Equal(t, 40, w.Count("common_process_log WHERE state=-2"))
		require.Equal(t, 40, w.Count("common_process_log_case c JOIN common_process_log l ON l.id=c.entry_id WHERE l.state=-2 AND c.closed_at=0 AND c.epoch=l.epoch AND c.business_id=l.business_id AND c.kind=1"))
		require.Equal(t, 40, w.Count("common_process_log_case"))
		groups, _, err := d.Groups(t.Context(), mei)
		require.NoError(t, err)
		require.Len(t, groups, 1, "they are alike")
		sum := int64(0)
		for i := range 60 {
			if i%3 != 0 {
				sum += int64(i) * 100
			}
		}
		assert.Equal(t, []compensator.Amount{{Minor: sum, Currency: "CNY"}}, groups[0].Sums)
		assert.Equal(t, 40, groups[0].N)
		assert.Contains(t, groups[0].Error, "status 503")
	})
}

// Failure: F119
func TestCaseSaysThatAnOutcomeIsUnknown(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(operated(w.QuickConfig()))
	hung, _ := harness.HandleCounted(t, c, "refund", compensator.HandlerConfig[harness.Order]{MaxAttempts: 2, Timeout: 200 * time.Millisecond, Retry: compensator.Fixed(100 * time.Millisecond)},
		func(e *compensator.Entry, call int) error { return errors.New("no") })
	slow, err := compensator.Handle(t.Context(), c, "transfer", func(ctx context.Context, e *compensator.Entry, _ harness.Order) error {
		if e.ProcessCount == 0 {
			<-ctx.Done()
			return ctx.Err()
		}
		return compensator.Permanent(errors.New("no such account"))
	}, &compensator.HandlerConfig[harness.Order]{Timeout: 200 * time.Millisecond, Retry: compensator.Fixed(100 * time.Millisecond)})
	require.NoError(t, err)
	known, unknown := w.Record(hung, 1, compensator.Options{}), w.Record(slow, 2, compensator.Options{})
	crashed := w.InsertDue("transfer", 7, 1)[0]
	w.Exec("UPDATE common_process_log SET delivery_count=4, content='{}' WHERE id=?", crashed.Row())
	w.Run(c)
	for id, kind := range map[compensator.EntryID]admin.CaseKind{known: admin.CaseDead, unknown: admin.CaseUnknown, crashed: admin.CaseUnknown} {
		w.WaitState(id, compensator.Dead)
		require.Equal(t, 1, w.Count("common_process_log_case WHERE entry_id=? AND kind=? AND closed_at=0", id.Row(), int(kind)), "%v", kind)
	}
	require.Equal(t, 1, w.Count("common_process_log_case WHERE entry_id=? AND amount=100 AND currency='CNY' AND due_at-opened_at BETWEEN 3600000 AND 3601000", known.Row()))
	require.Equal(t, 1, w.Count("common_process_log_case WHERE entry_id=? AND amount IS NULL AND due_at-opened_at BETWEEN 86400000 AND 86401000", unknown.Row()))
}

// If the case said "dead", a person might repeat a refund that has happened.
// Failure: F119
func TestCaseOfAnAttemptThatTimedOutIsUnknownWhateverItReturned(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(operated(w.QuickConfig()))
	down := errors.New("the bank does not answer")
	permanent := compensator.Permanent(errors.New("no such account"))
	cfg := compensator.HandlerConfig[harness.Order]{MaxAttempts: 1, MaxCompensateAttempts: 1, Timeout: 200 * time.Millisecond, Retry: compensator.Fixed(100 * time.Millisecond)}
	waited := cfg
	waited.MaxWait = time.Millisecond
	panics := cfg
	panics.MaxAttempts = 2
	panics.Retry = func(failures int) time.Duration { panic("no schedule") }
	undone := waited
	undone.Compensate = func(ctx context.Context, _ *compensator.Entry, _ harness.Order) error {
		<-ctx.Done()
		return compensator.Unavailable(down)
	}
	types := make(map[string]*compensator.Type[harness.Order])
	add := func(name string, cfg compensator.HandlerConfig[harness.Order], first func(ctx context.Context) error) {
		var calls harness.Calls
		orders, err := compensator.Handle(t.Context(), c, name, func(ctx context.Context, e *compensator.Entry, _ harness.Order) error {
			if calls.Add(e.ID) > 1 {
				return permanent
			}
			return first(ctx)
		}, &cfg)
		require.NoError(t, err)
		types[name] = orders
	}
	late := func(err error) func(context.Context) error {
		return func(ctx context.Context) error { <-ctx.Done(); return err }
	}
	add("unavailable after MaxWait", waited, late(compensator.Unavailable(down)))
	add("snoozed after MaxWait", waited, late(compensator.Snooze(time.Second)))
	add("permanent", cfg, late(permanent))
	add("snoozed, then permanent", cfg, late(compensator.Snooze(100*time.Millisecond)))
	add("unavailable, then permanent", cfg, late(compensator.RetryAfter(100*time.Millisecond, compensator.Unavailable(down))))
	add("its schedule panics, then permanent", panics, late(down))
	add("the compensation's", undone, func(context.Context) error { return permanent })
	var calls harness.Calls
	orders, err := compensator.HandleBatch(t.Context(), c, "a batch, then alone permanent", func(ctx context.Context, items []compensator.Item[harness.Order]) []error {
		for _, item := range items {
			calls.Add(item.Entry.ID)
		}
		if len(items) > 1 {
			<-ctx.Done()
		}
		return slices.Repeat([]error{permanent}, len(items))
	}, &compensator.BatchConfig[harness.Order]{MaxAttempts: cfg.MaxAttempts, Timeout: cfg.Timeout, Retry: cfg.Retry})
	require.NoError(t, err)
	types["a batch, then alone permanent"] = orders
	for _, orders := range types {
		w.RecordMany(c, orders, 2, compensator.Options{}) // Record both in one transaction, so that they share a batch.
	}
	w.Run(c)
	w.WaitAllEnded()
	for name := range types {
		assert.Equal(t, 2, w.Count("common_process_log_case c JOIN common_process_log l ON l.id=c.entry_id WHERE l.state=-2 AND l.business_type=? AND c.kind=? AND c.closed_at=0",
			name, int(admin.CaseUnknown)), name)
	}
}

// timesOutFirst registers a handler whose first attempt times out. The second and the third attempt return the result
// of the function in the parameter says.
func timesOutFirst(t *testing.T, c *compensator.Compensator, name string, says func(e *compensator.Entry) error) *compensator.Type[harness.Order] {
	t.Helper()
	var calls harness.Calls
	orders, err := compensator.Handle(t.Context(), c, name, func(ctx context.Context, e *compensator.Entry, _ harness.Order) error {
		if calls.Add(e.ID) == 1 {
			<-ctx.Done()
			return ctx.Err()
		}
		return says(e)
	}, &compensator.HandlerConfig[harness.Order]{MaxAttempts: 3, Timeout: 50 * time.Millisecond, Retry: compensator.Fixed(100 * time.Millisecond)})
	require.NoError(t, err)
	return orders
}

func requireUnchecked(t *testing.T, d *admin.Admin, id compensator.EntryID) {
	t.Helper()
	lines, err := d.Lines(t.Context(), mei, []compensator.EntryID{id})
	require.NoError(t, err)
	require.Len(t, lines, 1)
	assert.True(t, lines[0].OutcomeUnknown)
	view, err := d.Entry(t.Context(), mei, id)
	require.NoError(t, err)
	assert.True(t, view.OutcomeUnknown)
	ch := admin.Change{Action: admin.Requeue, Entries: []admin.Seen{{ID: id, Version: lines[0].Entry.Version}}, Why: why}
	var unchecked *admin.UncheckedError
	_, err = d.Change(t.Context(), mei, ch)
	require.ErrorAs(t, err, &unchecked)
	require.Equal(t, []compensator.EntryID{id}, unchecked.Unknown)
}

// In each test case the handler calls a payment service, and then the library loses the result of the call. If a person
// requeued the entry, the handler would pay a second time, because a requeue changes Entry.CallKey. So the admin pages
// must show that the outcome is unknown.
// Failure: F119
func TestOutcomeIsUnknownIfTheResultOfACallIsLost(t *testing.T) {
	t.Parallel()
	fail := errors.New("no such account")
	call := func(then func(context.Context, *compensator.ScopedTx) error) func(*testing.T, *compensator.Compensator, func() error, *compensator.HandlerConfig[harness.Order]) *compensator.Type[harness.Order] {
		return func(t *testing.T, c *compensator.Compensator, pay func() error, cfg *compensator.HandlerConfig[harness.Order]) *compensator.Type[harness.Order] {
			refund, err := compensator.HandleCall(t.Context(), c, "refund", func(context.Context, *compensator.Entry, harness.Order) (string, error) {
				return "receipt", pay()
			}, func(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, _ harness.Order, _ string) error {
				return then(ctx, tx)
			}, cfg)
			require.NoError(t, err)
			return refund.Type
		}
	}
	fails := call(func(context.Context, *compensator.ScopedTx) error { return fail })
	for name, handle := range map[string]func(*testing.T, *compensator.Compensator, func() error, *compensator.HandlerConfig[harness.Order]) *compensator.Type[harness.Order]{
		"then fails":              fails,
		"then panics":             call(func(context.Context, *compensator.ScopedTx) error { panic(fail) }),
		"then ends its goroutine": call(func(context.Context, *compensator.ScopedTx) error { runtime.Goexit(); return nil }),
		"then loses its connection": call(func(ctx context.Context, tx *compensator.ScopedTx) error {
			_, err := tx.ExecContext(ctx, "KILL CONNECTION_ID()")
			if err == nil {
				_, err = tx.ExecContext(ctx, "DO 1")
			}
			return err
		}),
		"then ends the transaction": call(func(ctx context.Context, tx *compensator.ScopedTx) error {
			_, err := tx.ExecContext(ctx, "ROLLBACK")
			return err
		}),
		"a middleware replaces the entry": func(t *testing.T, c *compensator.Compensator, pay func() error, cfg *compensator.HandlerConfig[harness.Order]) *compensator.Type[harness.Order] {
			cfg.Middleware = []compensator.Middleware{func(next compensator.HandlerFunc) compensator.HandlerFunc {
				return func(ctx context.Context, e *compensator.Entry) error {
					return next(ctx, &compensator.Entry{ID: e.ID, Content: e.Content})
				}
			}}
			return fails(t, c, pay, cfg)
		},
		"the result cannot be encoded": func(t *testing.T, c *compensator.Compensator, pay func() error, cfg *compensator.HandlerConfig[harness.Order]) *compensator.Type[harness.Order] {
			refund, err := compensator.HandleResult(t.Context(), c, "refund", func(context.Context, *compensator.Entry, harness.Order) (func(), error) {
				return func() {}, pay()
			}, cfg)
			require.NoError(t, err)
			return refund.Type
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t)
			c := w.New(operated(w.QuickConfig()))
			var paid atomic.Int64
			refund := handle(t, c, func() error {
				if paid.Add(1) > 1 {
					return compensator.Permanent(errors.New("409: paid already"))
				}
				return nil
			}, &compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(0)})
			id := w.Record(refund, 1, compensator.Options{})
			w.Run(c)
			w.WaitState(id, compensator.Dead)
			require.EqualValues(t, 2, paid.Load())
			require.Equal(t, "409: paid already", w.Entry(c, id).LastError)
			require.Equal(t, 1, w.Count("common_process_log_case WHERE closed_at=0 AND kind=?", int(admin.CaseUnknown)))
			requireUnchecked(t, open(t, c), id)
		})
	}
}

// Failure: F119
func TestOutcomeIsUnknownIfAPartnerDidNotAnswer(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"the client gives up":     func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"the connection breaks":   func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"a gateway got no answer": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGatewayTimeout) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t)
			c := w.New(operated(w.QuickConfig()))
			paid := make(chan struct{}, 10)
			partner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, err := io.Copy(io.Discard, r.Body)
				assert.NoError(t, err)
				paid <- struct{}{}
				answer(w, r)
			}))
			t.Cleanup(partner.Close)
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 200 * time.Millisecond}
			if name != "the client gives up" {
				client.Timeout = 0
			}
			refund, err := compensator.Handle(t.Context(), c, "refund", func(ctx context.Context, e *compensator.Entry, o harness.Order) error {
				return httpcall.PostJSON(ctx, client, partner.URL, e.CallKey(), o, nil)
			}, &compensator.HandlerConfig[harness.Order]{MaxAttempts: 1, MaxWait: time.Millisecond, Retry: compensator.Fixed(0)})
			require.NoError(t, err)
			id := w.Record(refund, 1, compensator.Options{})
			w.Run(c)
			w.WaitState(id, compensator.Dead)
			harness.Receive(t, paid)
			require.Equal(t, 1, w.Count("common_process_log_case WHERE closed_at=0 AND kind=?", int(admin.CaseUnknown)))
			requireUnchecked(t, open(t, c), id)
		})
	}
}

// Failure: F119
func TestOutcomeStaysUnknownThroughPlainFailures(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(operated(cfg))
		id := w.Record(timesOutFirst(t, c, "refund", func(*compensator.Entry) error { return errors.New("no such account") }), 1, compensator.Options{})
		w.Run(c)
		w.WaitState(id, compensator.Dead)
		require.Equal(t, "no such account", w.Entry(c, id).LastError)
		require.Equal(t, 1, w.Count("common_process_log_case WHERE closed_at=0 AND kind=?", int(admin.CaseUnknown)))
		requireUnchecked(t, open(t, c), id)
	})
}

// The log must remember the timeout, so that a case that is opened later shows it.
// Failure: F119
func TestOutcomeStaysUnknownOfEntriesThatDiedBeforeThereWereCases(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	without := w.New(w.QuickConfig())
	id := w.Record(timesOutFirst(t, without, "refund", func(*compensator.Entry) error { return errors.New("no such account") }), 1, compensator.Options{})
	stop := w.Run(without)
	w.WaitState(id, compensator.Dead)
	stop()
	with := w.New(operated(w.QuickConfig()))
	requireUnchecked(t, open(t, with), id) // no case exists yet
}

// Failure: F119
func TestOutcomeStaysUnknownAfterALostLease(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(operated(w.QuickConfig()))
	_, _ = harness.HandleCounted(t, c, "refund", compensator.HandlerConfig[harness.Order]{MaxAttempts: 2, Retry: compensator.Fixed(100 * time.Millisecond)}, harness.FailAlways)
	id := w.InsertDue("refund", 7, 1)[0]
	w.Exec("UPDATE common_process_log SET delivery_count=1, content='{}' WHERE id=?", id.Row())
	w.Run(c)
	w.WaitState(id, compensator.Dead)
	require.Equal(t, 2, w.Entry(c, id).ProcessCount)
	require.Equal(t, 1, w.Count("common_process_log_case WHERE closed_at=0 AND kind=?", int(admin.CaseUnknown)))
	requireUnchecked(t, open(t, c), id)
}

// When the process stops, the contexts of running handlers end. Such a handler may have had its effect, even if it
// returns an error.
// Failure: F119
func TestOutcomeOfAnAttemptThatAStopEndsIsUnknown(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		cfg = operated(cfg)
		cfg.StopTimeout = 3 * time.Second
		refused := compensator.Permanent(errors.New("no such account"))
		first, begun := true, make(chan string, 20)
		ends := map[string]chan struct{}{"by itself": make(chan struct{})}
		cut := map[string]error{
			"its context": context.Canceled, "a failure": errors.New("connection closed"), "snooze": compensator.Snooze(100 * time.Millisecond),
			"unavailable": compensator.Unavailable(errors.New("the bank does not answer")),
		}
		work := func(name string) func(ctx context.Context) error {
			return func(ctx context.Context) error {
				if !first {
					return refused
				}
				select {
				case begun <- name:
				default: // The entry "by itself" runs again and again, so begun may be full.
				}
				select {
				case <-ends[name]:
					return compensator.Snooze(100 * time.Millisecond)
				case <-ctx.Done():
				}
				return cmp.Or(cut[name], ctx.Err())
			}
		}
		settings := func() *compensator.HandlerConfig[harness.Order] {
			return &compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(100 * time.Millisecond), MaxCompensateAttempts: 1}
		}
		register := func(c *compensator.Compensator) map[string]*compensator.Type[harness.Order] {
			types := make(map[string]*compensator.Type[harness.Order])
			add := func(name string, typ *compensator.Type[harness.Order], err error) {
				require.NoError(t, err)
				types[name] = typ
			}
			for name := range cut {
				does := work(name)
				typ, err := compensator.Handle(t.Context(), c, name, func(ctx context.Context, _ *compensator.Entry, _ harness.Order) error { return does(ctx) }, settings())
				add(name, typ, err)
			}
			itself, called, batch, undone, inTx := work("by itself"), work("a call"), work("a batch"), work("a compensation"), work("a transaction")
			typ, err := compensator.Handle(t.Context(), c, "by itself", func(ctx context.Context, _ *compensator.Entry, _ harness.Order) error { return itself(ctx) }, settings())
			add("by itself", typ, err)
			result, err := compensator.HandleCall(t.Context(), c, "a call", func(ctx context.Context, _ *compensator.Entry, _ harness.Order) (int, error) { return 0, called(ctx) },
				func(context.Context, *compensator.ScopedTx, *compensator.Entry, harness.Order, int) error { return nil }, settings())
			require.NoError(t, err)
			types["a call"] = result.Type
			typ, err = compensator.HandleTx(t.Context(), c, "a transaction", func(ctx context.Context, _ *compensator.ScopedTx, _ *compensator.Entry, _ harness.Order) error {
				return inTx(ctx)
			}, settings())
			add("a transaction", typ, err)
			typ, err = compensator.HandleBatch(t.Context(), c, "a batch", func(ctx context.Context, items []compensator.Item[harness.Order]) []error {
				return slices.Repeat([]error{batch(ctx)}, len(items))
			}, nil)
			add("a batch", typ, err)
			undoes := settings()
			undoes.Compensate = func(ctx context.Context, _ *compensator.Entry, _ harness.Order) error { return undone(ctx) }
			typ, err = compensator.Handle(t.Context(), c, "a compensation", func(context.Context, *compensator.Entry, harness.Order) error { return refused }, undoes)
			add("a compensation", typ, err)
			return types
		}
		c := w.New(cfg)
		ids := make(map[string]compensator.EntryID)
		for name, typ := range register(c) {
			ids[name] = w.Record(typ, 1, compensator.Options{})
		}
		stop := w.Run(c)
		for running := make(map[string]bool); len(running) < len(ids); {
			running[<-begun] = true
		}
		close(ends["by itself"])
		require.NoError(t, stop())
		first = false
		c = w.New(cfg)
		register(c)
		w.Run(c)
		for name, id := range ids {
			w.WaitState(id, compensator.Dead)
			want := admin.CaseUnknown
			if name == "by itself" {
				want = admin.CaseDead
			}
			assert.Equal(t, 1, w.Count("common_process_log_case WHERE entry_id=? AND closed_at=0 AND kind=?", id.Row(), int(want)), name)
		}
		requireUnchecked(t, open(t, c), ids["its context"])
	})
}

// Failure: F119
func TestTextOfAHandlersErrorDecidesNothing(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(operated(w.QuickConfig()))
	orders, _ := harness.HandleCounted(t, c, "refund", compensator.HandlerConfig[harness.Order]{MaxAttempts: 2, Retry: compensator.Fixed(100 * time.Millisecond)}, func(*compensator.Entry, int) error {
		return fmt.Errorf("%w after 1s: no such account", compensator.ErrTimeout)
	})
	id := w.Record(orders, 1, compensator.Options{})
	w.Run(c)
	w.WaitState(id, compensator.Dead)
	require.Equal(t, 1, w.Count("common_process_log_case WHERE closed_at=0 AND kind=?", int(admin.CaseDead)))
	lines, err := open(t, c).Lines(t.Context(), mei, []compensator.EntryID{id})
	require.NoError(t, err)
	require.False(t, lines[0].OutcomeUnknown, "no attempt timed out")
}

// Failure: F118
func TestNoAmountIsMadeUp(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg := w.QuickConfig()
	cfg.Operations = &compensator.Operations{Types: map[string]compensator.CaseConfig{
		"panics": {Amount: func(*compensator.Entry) (compensator.Amount, error) { panic("no") }},
		"errs": {Amount: func(*compensator.Entry) (compensator.Amount, error) {
			return compensator.Amount{Minor: 7, Currency: "CNY"}, errors.New("no")
		}},
		"huge": {Amount: func(*compensator.Entry) (compensator.Amount, error) {
			return compensator.Amount{Minor: processlog.MaxAmount + 1, Currency: "CNY"}, nil
		}},
		"odd": {Amount: func(*compensator.Entry) (compensator.Amount, error) {
			return compensator.Amount{Minor: 7, Currency: "¥"}, nil
		}},
	}}
	c := w.New(cfg)
	var put []*compensator.Type[harness.Order]
	for name := range cfg.Operations.Types {
		orders, _ := harness.HandleCounted(t, c, name, compensator.HandlerConfig[harness.Order]{MaxAttempts: 1}, harness.FailAlways)
		put = append(put, orders)
	}
	w.Run(c)
	for i, orders := range put {
		w.WaitState(w.Record(orders, i, compensator.Options{}), compensator.Dead)
	}
	require.Equal(t, 4, w.Count("common_process_log_case WHERE amount IS NULL AND currency='' AND closed_at=0"))
}

// TestCaseOpensWhenTheAnswerWasLost loses the answer to the statement that makes an entry dead.
// Failure: F118
func TestCaseOpensWhenTheAnswerWasLost(t *testing.T) {
	t.Parallel()
	for name, fault := range harness.CommitFaults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t)
			proxy, db := w.OpenProxied(true)
			cfg := operated(w.QuickConfig())
			cfg.DB = db
			c := w.New(cfg)
			orders, ran := harness.HandleCounted(t, c, "refund", compensator.HandlerConfig[harness.Order]{MaxAttempts: 1}, harness.FailAlways)
			fault.Match = harness.MatchNext(faultproxy.Contains("INSERT INTO `", "`common_process_log_case`"), faultproxy.Commit())
			trap := proxy.Arm(fault)
			w.Run(c)
			id := w.RecordThrough(db, orders, 1, compensator.Options{})
			w.Eventually(func() bool { return trap.Fired() > 0 }, "the fault")
			w.WaitState(id, compensator.Dead)
			w.Eventually(func() bool { return w.Count("common_process_log_case WHERE closed_at=0") == 1 }, "the case is open")
			require.Equal(t, 1, ran.Of(id))
		})
	}
}

// Failure: F123
func TestWhoDoesNotTurnItOnMeetsNoneOfIt(t *testing.T) {
	t.Parallel()
	harness.InOppositeModes(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		for _, table := range []string{"case", "operation", "setting"} {
			w.Exec("DROP TABLE common_process_log_" + table)
		}
		c := w.New(cfg)
		orders, _ := harness.HandleCounted(t, c, "refund", compensator.HandlerConfig[harness.Order]{MaxAttempts: 1}, harness.FailAlways)
		w.Run(c)
		id := w.Record(orders, 1, compensator.Options{})
		w.WaitState(id, compensator.Dead)
		require.NoError(t, admin.Of(c).Requeue(t.Context(), id, admin.RequeueOptions{AuditInfo: harness.ByMei, Delay: time.Hour}))
	})
}

// Failure: F123
func TestMissingTablesAreNamedWhereItIsTurnedOn(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	for _, table := range []string{"case", "setting"} {
		w.Exec("DROP TABLE common_process_log_" + table)
	}
	_, err := compensator.New(t.Context(), operated(w.QuickConfig()))
	var field *compensator.FieldError
	require.ErrorAs(t, err, &field)
	require.ErrorContains(t, err, "common_process_log_case")
	require.ErrorContains(t, err, "common_process_log_setting")
	require.NotContains(t, err.Error(), "common_process_log_operation")
}

// Failure: F123
func TestSuccessCostsTheSameStatements(t *testing.T) {
	t.Parallel()
	said := make(map[bool][]string)
	for _, on := range []bool{false, true} {
		w := harness.NewWorld(t)
		proxy, db := w.OpenProxied(true)
		cfg := w.QuickConfig()
		cfg.DB = db
		if on {
			cfg = operated(cfg)
			cfg.Operations.Instances = true
		}
		c := w.New(cfg)
		orders, _ := harness.HandleCounted(t, c, "refund", compensator.HandlerConfig[harness.Order]{MaxAttempts: 5, Lease: time.Minute}, func(_ *compensator.Entry, call int) error { return nil }) // With this lease no lease is renewed during the test.
		compensatortest.Call(t, c, orders, harness.Order{Number: 1}, compensator.Options{IdempotencyKey: "warms the pools up"})
		var mu sync.Mutex
		var texts []string
		proxy.Arm(faultproxy.Rule{Fault: faultproxy.Count, Match: func(r faultproxy.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			if r.Text != "" && !strings.HasPrefix(r.Text, "SELECT id, CAST(idempotent_id AS BINARY), state, version, epoch, token ") && // Leave out the statements of the rollback detector, which depend on the clock.
				!strings.Contains(r.Text, "`common_process_log_instance`") { // Also leave out the process's own row, which is written once a minute.
				texts = append(texts, literals.ReplaceAllString(r.Text, "?"))
			}
			return false
		}})
		for i := range 10 {
			require.Equal(t, compensator.Succeeded, compensatortest.Call(t, c, orders, harness.Order{Number: 2}, compensator.Options{IdempotencyKey: compensator.IdempotencyKey(fmt.Sprint("n", i))}).State)
		}
		mu.Lock()
		slices.Sort(texts)
		said[on] = texts
		mu.Unlock()
	}
	require.NotEmpty(t, said[false])
	require.Equal(t, said[false], said[true])
}

// Failure: F125
func TestNoCaseKeepsAndNoAdminShowsWhatAScrubberTakesOut(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		const said = "card 4111 1111 1111 1111 of zhang@example.com at root:hunter2@tcp(db): order 7 of Zhang San"
		cfg = operated(cfg)
		cfg.Operations.Scrub = func(text string) string {
			if strings.Contains(text, "panic") {
				panic("a bug")
			}
			return strings.ReplaceAll(text, "Zhang San", "somebody")
		}
		c := w.New(cfg)
		typ, err := compensator.Handle(t.Context(), c, "refund", func(_ context.Context, _ *compensator.Entry, o harness.Order) error {
			return compensator.Permanent(errors.New(o.Note))
		}, nil)
		require.NoError(t, err)
		d := open(t, c)
		for note, want := range map[string]string{said: "card …1111 of …@example.com at root:…@tcp(db): order 7 of somebody", "panic at 4111 1111 1111 1111": "…", "status 503": "status 503"} {
			e := compensatortest.Call(t, c, typ, harness.Order{Note: note}, compensator.Options{})
			require.Equal(t, compensator.Dead, e.State)
			assert.Equal(t, note, w.Entry(c, e.ID).LastError, "the log is the application's")
			require.Equal(t, 1, w.Count("common_process_log_case WHERE entry_id=? AND error=?", e.ID.Row(), want), note)
			view, err := d.Entry(t.Context(), mei, e.ID)
			require.NoError(t, err)
			lines, err := d.Lines(t.Context(), mei, []compensator.EntryID{e.ID})
			require.NoError(t, err)
			shown, err := d.Reveal(t.Context(), mei, e.ID, why)
			require.NoError(t, err)
			for _, text := range []string{view.Entry.LastError, view.Case.Error, lines[0].Entry.LastError, lines[0].Case.Error, shown.LastError} {
				assert.Equal(t, want, text)
			}
		}
		cut := compensatortest.Call(t, c, typ, harness.Order{Note: "password=" + strings.Repeat("x", 970) + " card 4111 1111 1111 1111"}, compensator.Options{})
		require.True(t, strings.HasSuffix(w.Entry(c, cut.ID).LastError, " 4111 1111 1111 "), "the column cuts the number in two, and no rule knows such a part")
		require.Equal(t, 1, w.Count("common_process_log_case WHERE entry_id=? AND error='password=… card …1111'", cut.ID.Row()), "the case is made of the whole")
		page, err := d.Cases(t.Context(), mei, admin.CaseFilter{})
		require.NoError(t, err)
		groups, _, err := d.Groups(t.Context(), mei)
		require.NoError(t, err)
		entries, err := d.Entries(t.Context(), mei, admin.Filter{})
		require.NoError(t, err)
		answers, err := d.Change(t.Context(), mei, admin.Change{Action: admin.SettleManually, Entries: []admin.Seen{{ID: entries.Entries[0].ID, Version: entries.Entries[0].Version}}, Why: why})
		require.NoError(t, err)
		require.Equal(t, []error{nil}, answers)
		auditLog, err := d.AuditLog(t.Context(), mei, admin.AuditLogFilter{})
		require.NoError(t, err)
		require.True(t, slices.ContainsFunc(auditLog.Records, func(r admin.AuditLogRecord) bool { return r.Before != nil }), "the change is told")
		for _, secret := range []string{"4111 ", "zhang@", "hunter2", "Zhang San", "panic"} {
			assert.NotContains(t, fmt.Sprintf("%+v", []any{page, groups, entries}), secret)
			for _, r := range auditLog.Records {
				if r.Before != nil {
					assert.NotContains(t, r.Before.LastError+r.After.LastError, secret)
				}
			}
		}
	})
}

// An entry may have no case because it died before Config.Operations was set.
// Failure: F126
func TestPurgeTakesNoDeadEntryWhileItWaitsForSomebody(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		dies := func(c *compensator.Compensator) compensator.Entry {
			typ, err := compensator.Handle(t.Context(), c, "refund", func(context.Context, *compensator.Entry, harness.Order) error {
				return compensator.Permanent(errors.New("no such card"))
			}, nil)
			require.NoError(t, err)
			return compensatortest.Call(t, c, typ, harness.Order{Number: 129}, compensator.Options{})
		}
		without, with := w.New(cfg), w.New(operated(cfg))
		before, since := dies(without), dies(with)
		w.Exec("UPDATE common_process_log SET next_at=next_at-3600000")
		purge := func(c *compensator.Compensator, states ...compensator.State) int {
			n, err := admin.Of(c).Purge(t.Context(), 30*time.Minute, states...)
			require.NoError(t, err)
			return n
		}
		assert.Zero(t, purge(with, compensator.Dead))
		assert.Zero(t, w.Count("common_process_log_audit"), "no note of a purge that there was not")
		assert.Zero(t, purge(with, compensator.Cancelled, compensator.Dead))
		require.Equal(t, []compensator.State{compensator.Dead, compensator.Dead}, []compensator.State{w.State(before.ID), w.State(since.ID)})
		require.Equal(t, 1, w.Count("common_process_log_case WHERE closed_at=0"))
		answers, err := open(t, with).Change(t.Context(), mei, admin.Change{Action: admin.Cancel, Entries: []admin.Seen{{ID: since.ID, Version: since.Version}}, Why: why})
		require.NoError(t, err)
		require.NoError(t, answers[0])
		w.Exec("UPDATE common_process_log SET next_at=next_at-3600000")
		assert.Equal(t, 1, purge(with, compensator.Cancelled, compensator.Dead), "what somebody has cancelled goes as any")
		assert.Equal(t, 1, purge(without, compensator.Dead), "and where nobody keeps cases a dead one that is named")
		assert.Zero(t, w.Count("common_process_log"))
	})
}

// A service has ended one entry, so its open case must be closed. The other died before Config.Operations was set, so
// it must get a case.
// Failure: F118
func TestMaintenanceFindsWhatIsMissing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := compensatortest.NewMemoryStore()
		die := func(on *compensator.Operations) (*compensator.Compensator, *compensator.Type[harness.Order], func()) {
			c, err := compensator.New(t.Context(), compensator.Config{Store: store, Operations: on, Logger: discard})
			require.NoError(t, err)
			orders, _ := harness.HandleCounted(t, c, "refund", compensator.HandlerConfig[harness.Order]{MaxAttempts: 1}, harness.FailAlways)
			stop := compensatortest.Run(t, c)
			return c, orders, func() { stop(); require.NoError(t, c.Close()) }
		}
		c, orders, stop := die(nil)
		old := record(t, c, store, orders, "old")
		synctest.Wait()
		time.Sleep(3 * time.Hour)
		stop()
		require.Equal(t, compensator.Dead, state(t, store, old))
		require.Empty(t, cases(t, store, old))

		c, orders, stop = die(operated(compensator.Config{}).Operations)
		_, _, stopOther := die(operated(compensator.Config{}).Operations)
		id := record(t, c, store, orders, "new")
		time.Sleep(4 * time.Minute)
		require.True(t, cases(t, store, old)[0].ClosedAt.IsZero(), "the first round finds all")
		require.Equal(t, compensator.Amount{Minor: 100, Currency: "CNY"}, cases(t, store, old)[0].Amount)
		require.True(t, cases(t, store, id)[0].ClosedAt.IsZero())
		_, err := c.Cancel(t.Context(), id)
		require.NoError(t, err)
		require.True(t, cases(t, store, id)[0].ClosedAt.IsZero(), "a service's cancellation writes nothing to it")
		time.Sleep(4 * time.Minute)
		require.False(t, cases(t, store, id)[0].ClosedAt.IsZero())
		require.True(t, cases(t, store, old)[0].ClosedAt.IsZero())
		stop()
		stopOther()
	})
}

// The next process that opens cases starts two minutes after the scheduled time of a round.
func TestRoundOfCasesThatBeginsLateStillOpensThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := compensatortest.NewMemoryStore()
		run := func(on *compensator.Operations) (orders *compensator.Type[harness.Order], c *compensator.Compensator, stop func()) {
			c, err := compensator.New(t.Context(), compensator.Config{Store: store, Operations: on, Logger: discard})
			require.NoError(t, err)
			orders, _ = harness.HandleCounted(t, c, "refund", compensator.HandlerConfig[harness.Order]{MaxAttempts: 1}, harness.FailAlways)
			end := compensatortest.Run(t, c)
			return orders, c, func() { end(); require.NoError(t, c.Close()) }
		}
		with := operated(compensator.Config{}).Operations
		_, _, stop := run(with)
		time.Sleep(4 * time.Minute)
		stop()
		orders, c, stop := run(nil)
		id := record(t, c, store, orders, "dead")
		synctest.Wait()
		stop()
		require.Empty(t, cases(t, store, id))
		time.Sleep(time.Until(time.Now().Truncate(3 * time.Minute).Add(8 * time.Minute))) // two minutes after the time of a round
		_, c, stop = run(with)
		time.Sleep(30 * time.Second)
		require.Len(t, cases(t, store, id), 1)
		require.Empty(t, c.Health(t.Context()).Problems)
		stop()
	})
}
