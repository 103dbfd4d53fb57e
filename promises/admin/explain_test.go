package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/processlog"
)

type explained struct {
	*harness.World
	t     *testing.T
	c     *compensator.Compensator
	d     *admin.Admin
	types map[string]*compensator.Type[harness.Order]
	gate  *harness.Gate // blocks the handlers of the types "held" and "deaf"
	next  int
}

// waits allows two codes for an entry that waits for its next attempt. After a rebuild the queue holds only entries
// that are due soon. The code is next_queue if the queue holds the entry, and next_enqueue if not.
const waits = "next_queue|next_enqueue"

type explainCase struct {
	name  string
	of    func(x *explained) compensator.EntryID
	codes string // codes of Reasons, separated by spaces
	next  string // codes of Next; | separates alternatives
	says  string // text that is part of the sentences of Reasons and Next
}

func newExplained(t *testing.T, w *harness.World, cfg compensator.Config) *explained {
	x := &explained{World: w, t: t, types: make(map[string]*compensator.Type[harness.Order]), gate: harness.NewGate(), next: 5000}
	x.gate.OpenAtEnd(t)
	x.c = w.New(operated(cfg))
	x.d = open(t, x.c)
	hour := compensator.Fixed(time.Hour)
	serial := compensator.TypeConfig{Serial: func(e *compensator.Entry) string { return e.BusinessID }}
	x.handle("fails", compensator.HandlerConfig[harness.Order]{Retry: hour}, harness.ErrSoldOut)
	x.handle("exhausted", compensator.HandlerConfig[harness.Order]{MaxAttempts: 1}, harness.ErrSoldOut)
	x.handle("permanent", compensator.HandlerConfig[harness.Order]{}, compensator.Permanent(harness.ErrSoldOut))
	x.handle("away", compensator.HandlerConfig[harness.Order]{Retry: hour}, compensator.Unavailable(harness.ErrSoldOut))
	x.handle("undoes", compensator.HandlerConfig[harness.Order]{Retry: hour, Compensate: fails}, compensator.Permanent(harness.ErrSoldOut))
	x.handle("undone", compensator.HandlerConfig[harness.Order]{MaxCompensateAttempts: 1, Compensate: fails}, compensator.Permanent(harness.ErrSoldOut))
	x.handle("broken", compensator.HandlerConfig[harness.Order]{Retry: hour, Breaker: compensator.Breaker{Of: 1, Pause: time.Hour}}, compensator.Unavailable(harness.ErrSoldOut))
	x.handle("serial", compensator.HandlerConfig[harness.Order]{TypeConfig: serial, Retry: hour}, harness.ErrSoldOut)
	x.handle("serial dies", compensator.HandlerConfig[harness.Order]{TypeConfig: serial}, compensator.Permanent(harness.ErrSoldOut))
	x.handle("works", compensator.HandlerConfig[harness.Order]{}, nil)
	x.handle("paused", compensator.HandlerConfig[harness.Order]{}, nil)
	x.handle("paused for a time", compensator.HandlerConfig[harness.Order]{}, nil)
	x.handle("refused", compensator.HandlerConfig[harness.Order]{}, nil)
	x.handle("follows", compensator.HandlerConfig[harness.Order]{AfterBatch: func(e *compensator.Entry) string { return e.BusinessID }}, nil)
	psp := compensator.Limit{Rate: compensator.Rate{Starts: 1, Per: time.Hour}, Of: "psp"}
	x.handle("rated", compensator.HandlerConfig[harness.Order]{TypeConfig: compensator.TypeConfig{Limit: psp}}, nil)
	x.handle("tenants", compensator.HandlerConfig[harness.Order]{TypeConfig: compensator.TypeConfig{Limit: compensator.Limit{
		Rate: compensator.Rate{Starts: 2, Per: 24 * time.Hour}, Key: func(e *compensator.Entry) string { return e.UserID }}}}, nil)
	x.held("alone", compensator.HandlerConfig[harness.Order]{TypeConfig: compensator.TypeConfig{Limit: compensator.Limit{Concurrent: 1}}}, x.gate.Pass)
	x.held("held", compensator.HandlerConfig[harness.Order]{Concurrency: 1}, x.gate.Pass)
	x.held("crashed", compensator.HandlerConfig[harness.Order]{Concurrency: 3}, x.gate.Pass)
	x.held("deaf", compensator.HandlerConfig[harness.Order]{Timeout: 50 * time.Millisecond}, func(_ context.Context, e *compensator.Entry) error { return x.gate.PassIgnoringContext(e) })
	lingers, err := compensator.HandleBatch(t.Context(), x.c, "lingers", func(context.Context, []compensator.Item[harness.Order]) []error { return nil },
		&compensator.BatchConfig[harness.Order]{Lease: time.Hour, BatchWait: time.Hour, BatchSize: 50})
	require.NoError(t, err)
	x.types["lingers"] = lingers
	w.Exec("CREATE TRIGGER refuse BEFORE UPDATE ON common_process_log FOR EACH ROW IF NEW.business_type='refused' AND NEW.state<>OLD.state" +
		" THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT='the auditors say no'; END IF")
	require.NoError(t, x.d.Pause(t.Context(), mei, "paused", why))
	require.NoError(t, x.d.PauseWith(t.Context(), mei, "paused for a time", admin.PauseOptions{For: time.Hour}, why))
	t.Cleanup(func() { w.Exec("DELETE FROM common_process_log WHERE id>=5000 AND id<6000") }) // These rows are invalid, as rows of other programs may be.
	w.Run(x.c)
	return x
}

func fails(context.Context, *compensator.Entry, harness.Order) error { return harness.ErrSoldOut }

func (x *explained) handle(name string, cfg compensator.HandlerConfig[harness.Order], verdict error) {
	x.held(name, cfg, func(context.Context, *compensator.Entry) error { return verdict })
}

func (x *explained) held(name string, cfg compensator.HandlerConfig[harness.Order], run func(ctx context.Context, e *compensator.Entry) error) {
	typ, err := compensator.Handle(x.t.Context(), x.c, name, func(ctx context.Context, e *compensator.Entry, _ harness.Order) error { return run(ctx, e) }, &cfg)
	require.NoError(x.t, err)
	x.types[name] = typ
}

func (x *explained) put(name string, opts compensator.Options) compensator.EntryID {
	return x.Record(x.types[name], 1, opts)
}

func (x *explained) inserted(name, set string) compensator.EntryID {
	x.next++
	id := x.InsertDue(name, x.next, 1)[0]
	if set != "" {
		x.Exec("UPDATE common_process_log SET "+set+" WHERE id=?", id.Row())
	}
	return id
}

func (x *explained) ended(name string, state compensator.State) compensator.EntryID {
	id := x.put(name, compensator.Options{})
	x.WaitState(id, state)
	return id
}

func (x *explained) change(id compensator.EntryID, action admin.Right) compensator.EntryID {
	answers, err := x.d.Change(x.t.Context(), mei, admin.Change{Action: action, Entries: []admin.Seen{{ID: id, Version: x.Entry(x.c, id).Version}}, Why: why, Checked: true})
	require.NoError(x.t, err)
	require.NoError(x.t, answers[0])
	return id
}

// require checks the explanation of an entry. It asks again for some time, because the process may be about to claim
// or block the entry.
func (x *explained) require(of explainCase, d *admin.Admin, id compensator.EntryID) {
	x.t.Helper()
	var got, next, says string
	var found admin.Explanation
	deadline := time.Now().Add(harness.Timeout / 3)
	for {
		var err error
		found, err = d.Explain(x.t.Context(), mei, id)
		require.NoError(x.t, err)
		got, says = sentences(found.Reasons)
		var further string
		next, further = sentences(found.Next)
		says += further
		if got == of.codes && slices.Contains(strings.Split(of.next, "|"), next) || time.Now().After(deadline) {
			break
		}
		harness.Elapse(10 * time.Millisecond)
	}
	require.Equal(x.t, of.codes, got, "%s", says)
	require.Contains(x.t, strings.Split(of.next, "|"), next, "%s", says)
	require.Contains(x.t, says, of.says)
	require.Equal(x.t, id, found.ID)
	for _, r := range slices.Concat(found.Reasons, found.Next) {
		require.Contains(x.t, admin.ReasonCodes(), r.Code)
		require.NotRegexp(x.t, `[{}]|0001-01-01|<nil>`, r.String(), "each field that the sentence names is set")
	}
	x.t.Log(of.name + ":\n  " + strings.ReplaceAll(strings.TrimSpace(says), "\n", "\n  "))
}

func sentences(reasons []admin.Reason) (codes, says string) {
	for _, r := range reasons {
		codes += " " + r.Code
		says += r.String() + "\n"
	}
	return strings.TrimSpace(codes), says
}

var explainCases = []explainCase{
	{"it has succeeded", func(x *explained) compensator.EntryID { return x.ended("works", compensator.Succeeded) }, "ended_handler", "next_nobody", "as succeeded"},
	{"a person cancelled it", func(x *explained) compensator.EntryID {
		return x.change(x.put("works", compensator.Options{Delay: time.Hour}), admin.Cancel)
	}, "ended_cancel", "next_nobody", "mei cancelled it"},
	{"a program cancelled it", func(x *explained) compensator.EntryID {
		id := x.put("works", compensator.Options{Delay: time.Hour})
		_, err := x.c.Cancel(x.t.Context(), id)
		require.NoError(x.t, err)
		return id
	}, "ended_cancel", "next_nobody", "A program cancelled it"},
	{"a program completed it", func(x *explained) compensator.EntryID {
		id := x.put("works", compensator.Options{Delay: time.Hour})
		_, err := x.c.Complete(x.t.Context(), id)
		require.NoError(x.t, err)
		return id
	}, "ended_complete", "next_nobody", "done elsewhere"},
	{"a person settled it", func(x *explained) compensator.EntryID {
		return x.change(x.ended("permanent", compensator.Dead), admin.SettleManually)
	}, "ended_person", "next_nobody", "mei settled it manually"},
	{"all attempts failed", func(x *explained) compensator.EntryID { return x.ended("exhausted", compensator.Dead) }, "dead_exhausted", "next_person next_case", "Failures: 1"},
	{"its handler gave up", func(x *explained) compensator.EntryID { return x.ended("permanent", compensator.Dead) }, "dead_permanent", "next_person next_case", "Nobody has taken its case"},
	{"somebody has its case", func(x *explained) compensator.EntryID {
		id := x.ended("permanent", compensator.Dead)
		page, err := x.d.Cases(x.t.Context(), mei, admin.CaseFilter{BusinessType: "permanent", Limit: 100})
		require.NoError(x.t, err)
		at := slices.IndexFunc(page.Cases, func(c admin.Case) bool { return c.EntryID == id })
		answers, err := x.d.TakeCases(x.t.Context(), mei, []admin.SeenCase{{EntryID: id, Version: page.Cases[at].Version}}, why)
		require.NoError(x.t, err)
		require.NoError(x.t, answers[0])
		return id
	}, "dead_permanent", "next_person next_owner", "mei has its case"},
	{"its compensation failed", func(x *explained) compensator.EntryID { return x.ended("undone", compensator.Dead) }, "dead_compensation", "next_person next_case", "Failed compensations: 1"},
	{"its process crashed", func(x *explained) compensator.EntryID {
		return x.inserted("nobody", "state=-2, ended_by='crash', next_at=UNIX_TIMESTAMP()*1000")
	}, "dead_crash", "next_person", "never returned"},

	{"it runs here", func(x *explained) compensator.EntryID { return x.put("held", compensator.Options{}) }, "running", "next_outcome next_lease_end", "as attempt 1"},
	{"all slots are in use", func(x *explained) compensator.EntryID {
		x.put("held", compensator.Options{})
		x.Eventually(func() bool {
			return x.Count("common_process_log WHERE business_type='held' AND delivery_count>0") == 1
		}, "the slot is taken")
		return x.put("held", compensator.Options{Delay: 100 * time.Millisecond})
	}, "slots", "next_queue", "Slots: 1"},
	{"its handler is stuck", func(x *explained) compensator.EntryID { return x.put("deaf", compensator.Options{}) }, "stuck", "next_outcome next_lease_end", "longer than its timeout"},
	{"its outcome is refused", func(x *explained) compensator.EntryID { return x.put("refused", compensator.Options{}) }, "storing problem", "next_outcome next_lease_end", "the auditors say no"},
	{"another process runs it", func(x *explained) compensator.EntryID {
		return x.inserted("nobody", "delivery_count=1, token=RANDOM_BYTES(16), lease_until=("+harness.NowMillis+")+3600000")
	}, "leased", "next_outcome next_lease_end", "Another process has it until"},

	{"its state does not exist", func(x *explained) compensator.EntryID { return x.inserted("nobody", "state=77") }, "invalid_state", "next_repair", "does not exist"},
	{"its due time is in another unit", func(x *explained) compensator.EntryID { return x.inserted("nobody", "next_at=1700000000000000") }, "invalid_due", "next_repair", "milliseconds"},
	{"its lease is nobody's", func(x *explained) compensator.EntryID {
		return x.inserted("nobody", "lease_until=("+harness.NowMillis+")+3600000")
	}, "invalid_lease", "next_repair", "must be 0"},

	{"it is due later", func(x *explained) compensator.EntryID {
		return x.put("works", compensator.Options{Delay: 5 * time.Minute})
	}, "not_due", "next_queue", "It is due at"},
	{"it is due much later", func(x *explained) compensator.EntryID {
		return x.put("works", compensator.Options{Delay: 24 * time.Hour})
	}, "not_due", "next_enqueue", "in the database"},
	{"it has failed", func(x *explained) compensator.EntryID { return x.put("fails", compensator.Options{}) }, "not_due_failed", waits, "after failure 1: sold out"},
	{"its compensation has failed", func(x *explained) compensator.EntryID { return x.put("undoes", compensator.Options{}) }, "not_due_compensation", waits, "after failed compensation 1: sold out"},
	{"the other side is away", func(x *explained) compensator.EntryID { return x.put("away", compensator.Options{}) }, "not_due_waits", waits, "did not count: sold out"},
	{"the breaker is open", func(x *explained) compensator.EntryID {
		x.put("broken", compensator.Options{})
		x.Eventually(func() bool { return len(x.d.Broken(x.t.Context(), mei)) > 0 }, "the breaker opens")
		return x.put("broken", compensator.Options{Delay: 50 * time.Millisecond})
	}, "breaker", "next_queue", "open in this process since"},
	{"its limit is used up", func(x *explained) compensator.EntryID {
		x.ended("rated", compensator.Succeeded)
		return x.put("rated", compensator.Options{})
	}, "limited_rate", "next_queue", "The limit psp allows no start now. Starts allowed in 1h0m0s: 1. The next is free at about "},
	{"the limit of its key is used up", func(x *explained) compensator.EntryID {
		x.WaitState(x.put("tenants", compensator.Options{UserID: "t7"}), compensator.Succeeded)
		return x.put("tenants", compensator.Options{UserID: "t7"})
	}, "limited_rate", "next_queue", "The limit tenants allows the key t7 no start now. Starts allowed in 24h0m0s: 2."},
	{"another entry has the only permit", func(x *explained) compensator.EntryID {
		x.put("alone", compensator.Options{})
		x.gate.Await(x.t)
		return x.put("alone", compensator.Options{})
	}, "limited_concurrent limit_holders", "next_queue", "The limit alone allows no further entry now. Entries allowed at once: 1.\nThese entries hold the permits: "},
	{"the type is paused", func(x *explained) compensator.EntryID { return x.put("paused", compensator.Options{}) }, "paused", "next_resume", "mei paused the type"},
	{"the type is paused for a time", func(x *explained) compensator.EntryID {
		return x.put("paused for a time", compensator.Options{})
	}, "paused_until", "next_pause_end", "or until somebody resumes the type"},
	{"an earlier entry of its key comes first", func(x *explained) compensator.EntryID {
		x.put("serial", compensator.Options{BusinessID: "a"})
		return x.put("serial", compensator.Options{BusinessID: "a", Delay: time.Hour})
	}, "blocked not_due_blocked", "next_blocker", "of the same ordering key comes first"},
	{"a dead entry of its key comes first", func(x *explained) compensator.EntryID {
		x.WaitState(x.put("serial dies", compensator.Options{BusinessID: "a"}), compensator.Dead)
		return x.put("serial dies", compensator.Options{BusinessID: "a", Delay: time.Hour})
	}, "blocked_dead not_due_blocked", "next_blocker_person", "it is dead"},
	{"its batch has not ended", func(x *explained) compensator.EntryID {
		x.put("works", compensator.Options{BatchID: "b", Delay: time.Hour})
		return x.put("follows", compensator.Options{BusinessID: "b"})
	}, "not_due after_batch", waits, "batch b has ended. Entries of the batch that have not ended: 1"},
	{"it waits for others", func(x *explained) compensator.EntryID {
		x.WaitComplete("lingers")
		return x.put("lingers", compensator.Options{})
	}, "lingers", "next_queue", "share the call"},
	{"its content cannot be decoded", func(x *explained) compensator.EntryID {
		var receipt *compensator.Receipt
		require.NoError(x.t, x.c.InTx(x.t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) (err error) {
			receipt, err = x.c.Record(ctx, tx, compensator.NewEntry{BusinessType: "away", Content: []byte(`{"Number":"many"}`)})
			return err
		}))
		return receipt.ID()
	}, "not_due_waits undecodable", waits, "This process cannot decode its content:"},
	{"its leases were lost", func(x *explained) compensator.EntryID { return x.inserted("nobody", "delivery_count=2") }, "lost_leases no_handler", "next_queue", "Number: 2"},
	{"few entries that lost a lease run at once", func(x *explained) compensator.EntryID {
		var ids []compensator.EntryID
		for range 3 {
			ids = append(ids, x.put("crashed", compensator.Options{Delay: time.Hour}))
		}
		x.Exec("UPDATE common_process_log SET delivery_count=1, next_at=1 WHERE business_type='crashed'")
		running := []compensator.EntryID{x.gate.Await(x.t), x.gate.Await(x.t)}
		return slices.DeleteFunc(ids, func(id compensator.EntryID) bool { return slices.Contains(running, id) })[0]
	}, "lost_leases suspects_run", waits + "|next_reconciler", "Number that run: 2."},
	{"no handler is here", func(x *explained) compensator.EntryID { return x.inserted("nobody", "") }, "no_handler", "next_queue", "This process has no handler for nobody"},
	{"its row is locked", func(x *explained) compensator.EntryID {
		id := x.put("works", compensator.Options{Delay: 2 * time.Second})
		x.t.Cleanup(x.LockRow(id))
		return id
	}, "due", "next_queue", "nothing that holds it back"},
}

func TestExplanationNamesTheReasonWhyAnEntryDoesNotRun(t *testing.T) {
	t.Parallel()
	for _, of := range explainCases {
		t.Run(strings.ReplaceAll(of.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t).WithRedis()
			x := newExplained(t, w, w.QuickConfig())
			x.require(of, x.d, of.of(x))
		})
	}
}

func TestExplanationBlamesNoSlotsForALimit(t *testing.T) {
	t.Parallel()
	for _, of := range explainCases {
		if !strings.HasPrefix(of.codes, "limited_") {
			continue
		}
		t.Run(strings.ReplaceAll(of.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t).WithRedis()
			x := newExplained(t, w, w.QuickConfig())
			id := of.of(x)
			x.require(of, x.d, id)
			for range 50 { // The process finds the limit used up again and again.
				found, err := x.d.Explain(t.Context(), mei, id)
				require.NoError(t, err)
				codes, says := sentences(found.Reasons)
				require.NotContains(t, codes, "slots", says)
			}
		})
	}
}

// explainingOnly opens the log in a process without handlers, as the command line does.
func (x *explained) explainingOnly(change func(cfg *compensator.Config)) *admin.Admin {
	cfg := operated(x.QuickConfig())
	change(&cfg)
	return open(x.t, x.New(cfg))
}

func TestExplanationTellsWhatTheQueueHolds(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	x := &explained{World: w, t: t, next: 5000}
	var proxy *faultproxy.TCP
	d := x.explainingOnly(func(cfg *compensator.Config) {
		cfg.ReconcileInterval = time.Hour
		proxy = w.ThroughProxy(cfg)
	})
	id := w.RecordDelayed(w.New(w.QuickConfig()), 10*time.Millisecond)
	w.WaitInQueue(id)
	ask := func(name, codes, next, says string) {
		t.Helper()
		x.require(explainCase{name: name, codes: codes, next: next, says: says}, d, id)
	}
	ask("the queue has it", "no_handlers", "next_queue", "This program runs no handlers")
	require.NoError(t, w.Redis.ZAdd(t.Context(), w.DueKey("close_order"), redis.Z{Score: 4e15, Member: w.CompleteMark("close_order")}).Err())
	require.NoError(t, w.Redis.ZRem(t.Context(), w.DueKey("close_order"), id.String()).Err())
	ask("the queue has forgotten it", "no_handlers queue_forgot", "next_reconciler", "The queue does not have it")
	require.NoError(t, w.Redis.Del(t.Context(), w.DueKey("close_order")).Err())
	ask("the queue has lost the type", "no_handlers queue_lost", "next_reconciler", "has lost entries of the type")
	proxy.Refuse()
	ask("the queue is down", "no_handlers queue_down", "next_poll", "The queue cannot be used")
	d = x.explainingOnly(func(cfg *compensator.Config) { cfg.Redis = nil })
	ask("the queue is not known", "no_handlers queue_not_asked", "next_unknown", "no queue to ask")

	cfg := operated(w.QuickConfig())
	cfg.Redis = nil
	c := w.New(cfg)
	d = open(t, c)
	_, err := compensator.Handle(t.Context(), c, "another", fails, nil)
	require.NoError(t, err)
	ask("the database is the queue", "no_handler", "next_poll", "reads due entries from the database")
	_, err = compensator.Handle(t.Context(), c, "close_order", fails, nil)
	require.NoError(t, err)
	ask("Run is not at work", "not_running", "next_poll", "Run is not at work")
}

// PassDead in the type's configuration decides whether a dead entry blocks the next entry of its key. A process without
// this configuration does not know whether the entry is blocked.
func TestExplanationSaysWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	x := newExplained(t, w, w.QuickConfig())
	w.WaitState(x.put("serial dies", compensator.Options{BusinessID: "a"}), compensator.Dead)
	id := x.put("serial dies", compensator.Options{BusinessID: "a", Delay: time.Hour})
	x.require(explainCase{"known", nil, "blocked_dead not_due_blocked", "next_blocker_person", ""}, x.d, id)
	stranger := x.explainingOnly(func(*compensator.Config) {})
	x.require(explainCase{"unknown", nil, "blocked_dead_perhaps not_due_blocked", "next_blocker_person", "unless the type sets PassDead"}, stranger, id)
}

// Failure: F21
func TestExplanationTellsThatTheDatabaseWentBack(t *testing.T) {
	t.Parallel()
	for _, stop := range []bool{false, true} {
		w := harness.NewWorld(t).WithRedis()
		x := &explained{World: w, t: t}
		cfg := operated(w.QuickConfig())
		cfg.StopOnLoss = stop
		c := w.New(cfg)
		orders, _ := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
		w.Run(c)
		waits := w.Record(orders, 1, compensator.Options{Delay: time.Hour})
		var ids []compensator.EntryID
		for i := range 20 {
			ids = append(ids, w.Record(orders, 2+i, compensator.Options{}))
		}
		w.Eventually(func() bool { return w.Count("common_process_log WHERE state=1") == len(ids) }, "all succeed")
		w.Exec("DELETE FROM common_process_log WHERE state=1")
		code, next := "history_lost not_due", "next_enqueue"
		if stop {
			code, next = "history_lost_stopped not_due", "next_accept"
		}
		x.require(explainCase{"the database went back", nil, code, next, "rolled back to an earlier state"}, open(t, c), waits)
	}
}

func TestExplanationKeepsToTheRightsOfItsReader(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	x := newExplained(t, w, w.QuickConfig())
	failed, paused := x.put("fails", compensator.Options{}), x.put("paused", compensator.Options{})
	settled := x.change(x.ended("permanent", compensator.Dead), admin.SettleManually)
	x.require(explainCase{"failed", nil, "not_due_failed", waits, ""}, x.d, failed)
	seeing := func(rights ...admin.Right) *admin.Admin {
		d, err := admin.New(x.c, admin.Options{ReadOnly: true, Access: admin.AccessFunc(func(_ context.Context, _ admin.Actor, right admin.Right, _ admin.Subject) bool {
			return slices.Contains(rights, right)
		})})
		require.NoError(t, err)
		return d
	}
	_, err := seeing(admin.SeeOverview).Explain(t.Context(), mei, failed)
	require.ErrorIs(t, err, compensator.ErrNotFound)
	d := seeing(admin.SeeEntries)
	before := w.Row(paused)
	x.require(explainCase{"paused", nil, "paused_by_somebody", "next_resume", "The type is paused."}, d, paused)
	require.Equal(t, before, w.Row(paused))
	x.require(explainCase{"settled", nil, "ended_person", "next_nobody", "A person settled it manually"}, d, settled)
	x.put("works", compensator.Options{BatchID: "b", Delay: time.Hour})
	follows := x.put("follows", compensator.Options{BusinessID: "b"})
	x.require(explainCase{"follows", nil, "not_due after_some_batch", waits, "the batch that it follows"}, d, follows)
	x.require(explainCase{"follows", nil, "not_due after_batch", waits, "batch b has ended"}, seeing(admin.SeeEntries, admin.SeeContent), follows)
	x.WaitState(x.put("tenants", compensator.Options{UserID: "t7"}), compensator.Succeeded)
	limited := x.put("tenants", compensator.Options{UserID: "t7"})
	// The key of a limit may come from the content. So without SeeContent, the sentence does not name the key.
	x.require(explainCase{"limited", nil, "limited_rate", "next_queue", "The limit tenants allows no start now. Starts allowed in 24h0m0s: 2."}, d, limited)
	x.require(explainCase{"limited", nil, "limited_rate", "next_queue", "allows the key t7 no start now"}, seeing(admin.SeeEntries, admin.SeeContent), limited)
	away := x.put("away", compensator.Options{})
	x.require(explainCase{"away", nil, "not_due_waits", waits, "did not count: sold out"}, d, away)
	x.require(explainCase{"settled", nil, "ended_person", "next_nobody", "mei settled it manually"}, seeing(admin.SeeEntries, admin.SeeAuditLog), settled)
	_, err = d.Explain(t.Context(), mei, processlog.RowID(1<<40))
	require.ErrorIs(t, err, compensator.ErrNotFound)
}

// A process without the type's settings cannot compute the entry's key.
func TestExplanationOfALimitNeedsNoHandler(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		x := &explained{World: w, t: t, types: make(map[string]*compensator.Type[harness.Order]), gate: harness.NewGate()}
		x.gate.OpenAtEnd(t)
		x.c = w.New(operated(cfg))
		limited := func(limit compensator.Limit) compensator.HandlerConfig[harness.Order] {
			return compensator.HandlerConfig[harness.Order]{TypeConfig: compensator.TypeConfig{Limit: limit}}
		}
		hour := compensator.Rate{Starts: 1, Per: time.Hour}
		x.held("both", limited(compensator.Limit{Rate: hour, Concurrent: 1, Of: "psp"}), x.gate.Pass)
		x.handle("tenants", limited(compensator.Limit{Rate: hour, Key: func(e *compensator.Entry) string { return e.UserID }}), nil)
		x.handle("free", limited(compensator.Limit{Concurrent: 5}), nil)
		w.Run(x.c)
		first := x.put("both", compensator.Options{})
		x.gate.Await(t)
		w.WaitState(x.put("tenants", compensator.Options{UserID: "t7"}), compensator.Succeeded)
		w.WaitState(x.put("free", compensator.Options{}), compensator.Succeeded)
		both, tenant := x.put("both", compensator.Options{}), x.put("tenants", compensator.Options{UserID: "t7"})
		stranger := x.explainingOnly(func(of *compensator.Config) { of.Redis = cfg.Redis })
		says := func(id compensator.EntryID, codes, text string) {
			t.Helper()
			x.require(explainCase{"limited", nil, codes, "next_queue|next_unknown", text}, stranger, id)
		}
		rest := " no_handlers"
		if cfg.Redis == nil {
			rest += " queue_not_asked"
		}
		says(both, "limited_rate limited_concurrent limit_holders"+rest, "These entries hold the permits: "+first.String()+".")
		says(tenant, "limit_key_unknown"+rest, "The limit tenants holds for each key")
		limits, err := stranger.Limits(t.Context(), mei)
		require.NoError(t, err)
		free, psp, tenants := admin.LimitValues{Concurrent: 5}, admin.LimitValues{Interval: time.Hour, Burst: 1, Concurrent: 1}, admin.LimitValues{Interval: time.Hour, Burst: 1}
		require.WithinRange(t, limits[1].FreeAt, time.Now(), time.Now().Add(time.Hour))
		require.Equal(t, []admin.Limit{
			{Name: "free", Types: []string{"free"}, LimitValues: free, Program: free},
			{Name: "psp", Types: []string{"both"}, LimitValues: psp, Program: psp, UsedUp: true, FreeAt: limits[1].FreeAt},
			{Name: "tenants", Types: []string{"tenants"}, Keyed: true, LimitValues: tenants, Program: tenants},
		}, limits)
		d, err := admin.New(x.c, admin.Options{Access: admin.AccessFunc(func(_ context.Context, _ admin.Actor, right admin.Right, on admin.Subject) bool {
			return on.Type == "free"
		})})
		require.NoError(t, err)
		limits, err = d.Limits(t.Context(), mei)
		require.NoError(t, err)
		require.Len(t, limits, 1, "the others are of types that the actor may not see")
	})
}

func TestExplanationSaysThatOutcomesCannotBeStored(t *testing.T) {
	t.Parallel()
	const limit = processlog.MaxRows // refused outcomes of one type
	newHeld := func(t *testing.T, n int) *explained {
		w := harness.NewWorld(t)
		x := &explained{World: w, t: t, types: make(map[string]*compensator.Type[harness.Order]), gate: harness.NewGate()}
		x.c = w.New(operated(w.QuickConfig()))
		x.d = open(t, x.c)
		x.held("pay", compensator.HandlerConfig[harness.Order]{Concurrency: n, Lease: time.Hour}, x.gate.Pass)
		w.Run(x.c)
		w.InsertDue("pay", 1, n)
		for range n {
			x.gate.Await(t)
		}
		return x
	}
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		x := newHeld(t, limit)
		x.Exec("CREATE TRIGGER refuse BEFORE UPDATE ON common_process_log FOR EACH ROW IF NEW.state=1 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT='the auditors say no'; END IF")
		x.gate.Open()
		x.Eventually(func() bool {
			problems := x.c.Health(t.Context()).Problems
			return len(problems) == 1 && strings.Count(problems[0].Error, ",") > 0 && strings.Contains(problems[0].Error, fmt.Sprintf("%d more", limit-strings.Count(problems[0].Error, ",")))
		}, "all outcomes are refused")
		x.require(explainCase{codes: "outcomes_refused problem", next: "next_poll", says: "the database refuses to store 500 outcomes of the type"}, x.d, x.put("pay", compensator.Options{}))
	})
	t.Run("backlogged", func(t *testing.T) {
		t.Parallel()
		x := newHeld(t, 8*limit)
		// Each write of an outcome waits until the test gives the lock back.
		x.Exec("CREATE TRIGGER wait BEFORE UPDATE ON common_process_log FOR EACH ROW BEGIN IF NEW.state=1 THEN DO GET_LOCK(DATABASE(), 600); DO RELEASE_LOCK(DATABASE()); END IF; END")
		conn, err := x.DB.Conn(t.Context())
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close()) }()
		_, err = conn.ExecContext(t.Context(), "DO GET_LOCK(DATABASE(), 0)")
		require.NoError(t, err)
		defer func() {
			_, err := conn.ExecContext(t.Context(), "DO RELEASE_LOCK(DATABASE())")
			require.NoError(t, err)
		}()
		x.gate.Open()
		var next compensator.EntryID
		x.Eventually(func() bool {
			next = x.put("pay", compensator.Options{})
			found, err := x.d.Explain(t.Context(), mei, next)
			require.NoError(t, err)
			return found.Reasons[0].Code == "outcomes_wait"
		}, "the process stops claiming")
		x.require(explainCase{codes: "outcomes_wait", next: "next_poll", says: "This process claims nothing since "}, x.d, next)
	})
}

func TestExplanationNamesTheProcessThatDoesNotClaim(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	x := &explained{World: w, t: t, next: 5000}
	c := w.New(listed(w.QuickConfig(), "pages"))
	d := open(t, c)
	opened, err := compensator.OpenStore(t.Context(), w.DB, compensator.DefaultTable)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, opened.Close()) })
	store := opened.(processlog.Operations)
	id, suspect := x.inserted("pay", ""), x.inserted("pay", "delivery_count=1")
	i := processlog.Instance{ID: processlog.NewInstanceID(), Name: "api-1", Types: []processlog.InstanceType{{Name: "mail"}, {Name: "pay", Slots: 5}}}
	for _, of := range []struct {
		hold       processlog.ClaimHold
		id         compensator.EntryID
		code, says string
	}{
		{processlog.ClaimHold{Reason: processlog.HeldByBacklog, N: 2100, For: time.Hour}, id, " outcomes_wait_in", "api-1 claims nothing since "},
		{processlog.ClaimHold{Reason: processlog.HeldByRefusals, N: 500, For: time.Hour}, id, " outcomes_refused_in", "api-1 claims no entry of the type since "},
		{processlog.ClaimHold{Reason: processlog.HeldBySuspects, N: 2, LostLeases: 1}, suspect, " suspects_run_in", "api-1 starts no further one. Number that run: 2."},
		{processlog.ClaimHold{Reason: processlog.HeldBySuspects, N: 1, LostLeases: 2}, suspect, "", "Number of other processes that have one: 1."},
		{processlog.ClaimHold{Reason: processlog.HeldBySuspects, N: 2, LostLeases: 1}, id, "", "Number of other processes that have one: 1."},
		{processlog.ClaimHold{Reason: "of a later version"}, id, "", "Number of other processes that have one: 1."},
	} {
		i.Types[1].Hold = &of.hold
		require.NoError(t, store.WriteInstance(t.Context(), i, time.Hour, false))
		codes := "in_processes" + of.code
		if of.id == suspect {
			codes = "lost_leases " + codes
		}
		x.require(explainCase{name: string(of.hold.Reason), codes: codes + " queue_not_asked", next: "next_unknown", says: of.says}, d, of.id)
		found, err := d.Explain(t.Context(), mei, of.id)
		require.NoError(t, err)
		if last := found.Reasons[len(found.Reasons)-2]; of.code != "" {
			all := named(t, c)
			require.Equal(t, all["api-1"].SeenAt.Add(-of.hold.For), last.At, "by the database's clock")
		}
	}
	w.Exec("UPDATE common_process_log_instance SET seen_at=seen_at-300000 WHERE name='api-1'")
	x.require(explainCase{name: "gone", codes: "no_process queue_not_asked", next: "next_unknown"}, d, id)
}
