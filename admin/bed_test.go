package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/processlog"
)

// canary is the text of every field that an actor sees only with a special right. No id contains it.
const canary = "canary-8842177"

type payment struct {
	Order, Card string
	Minor       int64
}

type bed struct {
	t     *testing.T
	store *watched
	c     *compensator.Compensator

	types   map[string]*compensator.Type[payment]
	weighed atomic.Int64 // number of calls of the function that computes the amount of a refund

	dead, succeeded, pending compensator.Entry // entries of type refund; the type mail has entries in the same states
	otherDead                compensator.Entry

	// The next ids name two actions of the actor "ann". They are set only in a bed that the function prepared returns.
	bulk     admin.BulkID // requeue of bed.succeeded and bed.dead. Only bed.dead still waits for ContinueBulk
	matching admin.BulkID // requeue of all dead entries of type refund
}

const (
	refundType = "refund"
	mailType   = "mail"
)

// watched is a store in memory that calls the hooks of a test. A hook that is nil is not called. The hooks keeps and
// outlines make a case or a row look as if an older version of the library had stored it.
type watched struct {
	*compensatortest.MemoryStore
	entries   func(f admin.Filter)                                // called before List
	cases     func(ctx context.Context, f admin.CaseFilter) error // called before Cases
	heads     func(ctx context.Context) error                     // called before Heads
	operates  func(op processlog.Operation) error                 // called before Operate
	groups    func(businessTypes []string)                        // called before CaseGroups
	sums      []processlog.CaseGroup                              // if set, CaseGroups returns it instead of the log's sums
	auditLogs func(f admin.AuditLogFilter)                        // called before AuditLog
	batch     func(b processlog.BulkBatch) error                  // called before ChangeBulk
	looked    atomic.Int64                                        // number of calls of Types
	bulkReads atomic.Int64                                        // number of calls of Bulk
	loaded    atomic.Int64                                        // number of calls of Load, which reads contents
	keeps     func(c *admin.Case)                                 // changes each case that Cases and CasesOf return
	outlines  func(row *processlog.Row)                           // changes each row that Outlines returns
}

func (w *watched) Outlines(ctx context.Context, ids []compensator.EntryID) ([]processlog.Row, error) {
	rows, err := w.MemoryStore.Outlines(ctx, ids)
	if w.outlines != nil {
		for i := range rows {
			w.outlines(&rows[i])
		}
	}
	return rows, err
}

func (w *watched) Load(ctx context.Context, ids []compensator.EntryID) ([]processlog.Row, error) {
	w.loaded.Add(1)
	return w.MemoryStore.Load(ctx, ids)
}

func (w *watched) ChangeBulk(ctx context.Context, seen []processlog.Version, change processlog.Change, batch processlog.BulkBatch) (uint64, []processlog.Changed, error) {
	if w.batch != nil {
		if err := w.batch(batch); err != nil {
			return 0, nil, err
		}
	}
	return w.MemoryStore.ChangeBulk(ctx, seen, change, batch)
}

func (w *watched) Bulk(ctx context.Context, id processlog.BulkID) ([]processlog.BulkBatch, error) {
	w.bulkReads.Add(1)
	return w.MemoryStore.Bulk(ctx, id)
}

func (w *watched) List(ctx context.Context, f admin.Filter) (processlog.Page, error) {
	if w.entries != nil {
		w.entries(f)
	}
	return w.MemoryStore.List(ctx, f)
}

func (w *watched) Cases(ctx context.Context, f admin.CaseFilter) (admin.CasePage, error) {
	if w.cases != nil {
		if err := w.cases(ctx, f); err != nil {
			return admin.CasePage{}, err
		}
	}
	page, err := w.MemoryStore.Cases(ctx, f)
	return admin.CasePage{Cases: w.kept(page.Cases), Next: page.Next}, err
}

func (w *watched) CasesOf(ctx context.Context, ids []compensator.EntryID) ([]admin.Case, error) {
	cases, err := w.MemoryStore.CasesOf(ctx, ids)
	return w.kept(cases), err
}

func (w *watched) kept(cases []admin.Case) []admin.Case {
	if w.keeps != nil {
		for i := range cases {
			w.keeps(&cases[i])
		}
	}
	return cases
}

func (w *watched) Heads(ctx context.Context) ([]processlog.Head, error) {
	if w.heads != nil {
		if err := w.heads(ctx); err != nil {
			return nil, err
		}
	}
	return w.MemoryStore.Heads(ctx)
}

func (w *watched) Operate(ctx context.Context, op processlog.Operation) error {
	if w.operates != nil {
		if err := w.operates(op); err != nil {
			return err
		}
	}
	return w.MemoryStore.Operate(ctx, op)
}

func (w *watched) CaseGroups(ctx context.Context, businessTypes []string, failure processlog.Fingerprint) ([]processlog.CaseGroup, error) {
	if w.groups != nil {
		w.groups(businessTypes)
	}
	if w.sums != nil {
		return slices.Clone(w.sums), nil
	}
	return w.MemoryStore.CaseGroups(ctx, businessTypes, failure)
}

func (w *watched) AuditLog(ctx context.Context, f admin.AuditLogFilter) (admin.AuditLogPage, error) {
	if w.auditLogs != nil {
		w.auditLogs(f)
	}
	return w.MemoryStore.AuditLog(ctx, f)
}

func (w *watched) Types(ctx context.Context) ([]string, error) {
	w.looked.Add(1)
	return w.MemoryStore.Types(ctx)
}

func newBed(t *testing.T) *bed {
	store, b := &watched{MemoryStore: compensatortest.NewMemoryStore()}, &bed{t: t, types: make(map[string]*compensator.Type[payment])}
	c, err := compensator.New(t.Context(), compensator.Config{Store: store, Queue: compensatortest.NewMemoryQueue().Client(), Logger: slog.New(slog.DiscardHandler),
		Operations: &compensator.Operations{Attempts: true, Statistics: true, Instances: true, Types: map[string]compensator.CaseConfig{
			refundType: {Amount: func(e *compensator.Entry) (compensator.Amount, error) {
				b.weighed.Add(1)
				var p payment
				err := e.Decode(&p)
				return compensator.Amount{Minor: p.Minor, Currency: "CNY"}, err
			}},
		}}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	b.store, b.c = store, c
	for _, name := range []string{refundType, mailType} {
		secret := map[string]string{refundType: canary, mailType: "another's"}[name]
		typ, err := compensator.Handle(t.Context(), c, name, func(_ context.Context, e *compensator.Entry, p payment) error {
			switch p.Order {
			case "dies":
				return compensator.Permanent(errors.New("no such card " + `"` + secret + `"`))
			case "tries":
				return errors.New("not yet")
			case "down":
				return compensator.Unavailable(errors.New("no answer about card " + `"` + secret + `", password=` + p.Card))
			}
			return nil
		}, &compensator.HandlerConfig[payment]{TypeConfig: compensator.TypeConfig{Limit: compensator.Limit{Concurrent: 1000}}, Breaker: compensator.Breaker{Of: 1, Pause: time.Hour}})
		require.NoError(t, err)
		b.types[name] = typ
		opts := func(id string) compensator.Options {
			return compensator.Options{IdempotencyKey: compensator.IdempotencyKey(name + id), BusinessID: "o-" + name, UserName: secret, UserID: "7", Headers: map[string]string{"who": secret}}
		}
		dead := compensatortest.Call(t, c, typ, payment{"dies", secret, 12900}, opts("-dead"))
		require.Equal(t, compensator.Dead, dead.State)
		if name == mailType {
			b.otherDead = dead
			continue
		}
		b.dead = dead
		b.succeeded = compensatortest.Call(t, c, typ, payment{"lives", canary, 100}, opts("-succeeded"))
		require.Equal(t, compensator.Succeeded, b.succeeded.State)
		require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
			receipt, err := typ.Record(ctx, tx, payment{"waits", canary, 100}, opts("-pending"))
			if err != nil {
				return err
			}
			id := receipt.ID()
			b.pending.ID = id
			return nil
		}))
		e, err := c.Get(t.Context(), b.pending.ID)
		require.NoError(t, err)
		b.pending = *e
	}
	return b
}

func (b *bed) die(businessType string, opts compensator.Options) compensator.Entry {
	b.t.Helper()
	return compensatortest.Call(b.t, b.c, b.types[businessType], payment{"dies", canary, 12900}, opts)
}

func (b *bed) breaks(businessType, password string) {
	b.t.Helper()
	compensatortest.Call(b.t, b.c, b.types[businessType], payment{"down", password, 12900}, compensator.Options{IdempotencyKey: compensator.IdempotencyKey(businessType + "-down")})
	require.Len(b.t, b.c.Health(b.t.Context()).OpenBreakers, 1)
}

func (b *bed) admin(opts admin.Options) *admin.Admin {
	b.t.Helper()
	d, err := admin.New(b.c, opts)
	require.NoError(b.t, err)
	return d
}

func (b *bed) caseOf() admin.Case {
	cases, err := b.store.CasesOf(b.t.Context(), []compensator.EntryID{b.dead.ID})
	require.NoError(b.t, err)
	require.Len(b.t, cases, 1)
	return cases[0]
}

// standing returns the cases, settings, limits, versions of the entries and audit records as one text. A test compares
// the texts before and after a call. The text leaves out the audit records of refused actions.
func (b *bed) standing() string {
	var cases []admin.Case
	for _, row := range b.store.Rows() {
		of, err := b.store.CasesOf(b.t.Context(), []compensator.EntryID{row.ID})
		require.NoError(b.t, err)
		cases = append(cases, of...)
	}
	settings, err := b.store.Settings(b.t.Context())
	require.NoError(b.t, err)
	for i := range settings {
		settings[i].ReadAt = time.Time{} // It changes with each read.
	}
	limits, err := b.store.Limits(b.t.Context(), "")
	require.NoError(b.t, err)
	var versions []string
	for _, row := range b.store.Rows() {
		versions = append(versions, fmt.Sprint(row.ID, row.State, row.Version, row.Epoch))
	}
	return asJSON(b.t, []any{cases, settings, limits, versions, b.auditLog(false)})
}

func (b *bed) auditLog(refused bool) (found []admin.AuditLogRecord) {
	page, err := b.store.AuditLog(b.t.Context(), admin.AuditLogFilter{Limit: 1000})
	require.NoError(b.t, err)
	for _, r := range page.Records {
		if r.Refused == refused {
			found = append(found, r)
		}
	}
	return found
}

func asJSON(t *testing.T, v any) string {
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}
