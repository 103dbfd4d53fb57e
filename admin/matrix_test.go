package admin_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/processlog"
)

var (
	mei = admin.Actor{ID: "mei"}
	why = admin.Why{Reason: "PSP is back", Ticket: "OPS-988"}
)

type deed struct {
	name   string
	method string // method of the Admin
	right  admin.Right
	with   []admin.Right // further rights that the deed needs
	writes bool          // whether the deed is recorded and a read-only Admin refuses it
	shows  string        // text that the answer contains only if the deed is allowed
	do     func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (answer any, err error)
}

func changing(action admin.Right, with []admin.Right, of func(b *bed) compensator.Entry) deed {
	return deed{name: string(action), method: "Change", right: action, with: append(with, admin.SeeEntries), writes: true,
		do: func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			e := of(b)
			answers, err := d.Change(ctx, a, admin.Change{Action: action, Entries: []admin.Seen{{ID: e.ID, Version: e.Version}}, Why: why, Again: true})
			if err != nil {
				return nil, err
			}
			return nil, answers[0]
		}}
}

// deadHash must be hidden, because it lets people guess a short content.
var deadHash = func() string {
	content, _ := json.Marshal(payment{"dies", canary, 12900})
	return fmt.Sprintf("%x", sha256.Sum256(content))[:16]
}()

func deadRefund(b *bed) compensator.Entry { return b.dead }

// deeds names each right, and each method of an Admin that takes an Actor.
func deeds() []deed {
	requeueSucceeded := changing(admin.Requeue, []admin.Right{admin.Requeue}, func(b *bed) compensator.Entry { return b.succeeded })
	requeueSucceeded.name, requeueSucceeded.right = "requeue what succeeded", admin.RequeueSucceeded
	sees := []admin.Right{admin.SeeEntries}
	return []deed{
		{"overview", "Overview", admin.SeeOverview, nil, false, refundType, func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return answered(d.Overview(ctx, a))
		}},
		{"overview's errors", "Overview", admin.SeeErrors, []admin.Right{admin.SeeOverview}, false, canary, func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return answered(d.Overview(ctx, a))
		}},
		{"bulk action of another person", "Bulk", admin.SeeAuditLog, sees, false, "PSP is back", func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return answered(d.Bulk(ctx, a, b.bulk))
		}},
		{"periodic types", "Periodic", admin.SeeOverview, nil, false, `"type":"refund"`, func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return answered(d.Periodic(ctx, a))
		}},
		{"rest of a bulk action", "ContinueBulk", admin.Requeue, []admin.Right{admin.SeeEntries, admin.SeeAuditLog}, true, "", func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return nil, d.ContinueBulk(ctx, a, b.bulk)
		}},
		{"another trial", "TryAnother", admin.Requeue, []admin.Right{admin.SeeEntries, admin.SeeAuditLog}, true, "", func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return nil, d.TryAnother(ctx, a, b.bulk, b.bulk.Record)
		}},
		{"bulk action", "StartBulk", admin.Cancel, sees, true, "", func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			_, answers, err := d.StartBulk(ctx, a, admin.Change{Action: admin.Cancel, Entries: []admin.Seen{{ID: b.dead.ID, Version: b.dead.Version}}, Why: why}, admin.BulkOptions{})
			if err != nil {
				return nil, err
			}
			return nil, answers[0]
		}},
		{"all that match", "Matching", admin.SeeEntries, nil, false, `"n":1`, func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return answered(d.Matching(ctx, a, admin.Cancel, deadRefunds))
		}},
		{"action on all that match", "StartMatching", admin.Cancel, sees, true, "", func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			_, err := d.StartMatching(ctx, a, admin.Change{Action: admin.Cancel, Why: why}, deadRefunds, admin.BulkOptions{})
			return nil, err
		}},
		{"end of an action on all that match", "StopBulk", admin.Requeue, []admin.Right{admin.SeeEntries, admin.SeeAuditLog}, true, "", func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return nil, d.StopBulk(ctx, a, b.matching)
		}},
		{"rest of an action on all that match", "FinishBulk", admin.Requeue, []admin.Right{admin.SeeEntries, admin.SeeAuditLog}, true, "", func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return nil, d.FinishBulk(ctx, a, b.matching, func(admin.BulkProgress) {})
		}},
		{"entries", "Entries", admin.SeeEntries, nil, false, "o-refund", func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return answered(d.Entries(ctx, a, admin.Filter{}))
		}},
		{"entries of the type", "Entries", admin.SeeEntries, nil, false, "o-refund", func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return answered(d.Entries(ctx, a, admin.Filter{BusinessType: refundType, States: []compensator.State{compensator.Dead}}))
		}},
		{"entries of an error", "Entries", admin.SeeErrors, sees, false, "o-refund", func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return answered(d.Entries(ctx, a, admin.Filter{BusinessType: refundType, States: []compensator.State{compensator.Dead}, LastError: "8842"}))
		}},
		{"entries of a user", "Entries", admin.SeeContent, sees, false, "o-refund", func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return answered(d.Entries(ctx, a, admin.Filter{BusinessType: refundType, States: []compensator.State{compensator.Dead}, UserID: "7"}))
		}},
		{"entry", "Entry", admin.SeeEntries, nil, false, "o-refund", func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return answered(d.Entry(ctx, a, b.dead.ID))
		}},
		{"explanation", "Explain", admin.SeeEntries, nil, false, "dead_permanent", func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return answered(d.Explain(ctx, a, b.dead.ID))
		}},
		{"entry and explanation", "ExplainedEntry", admin.SeeEntries, nil, false, "dead_permanent", func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			view, explanation, err := d.ExplainedEntry(ctx, a, b.dead.ID)
			return answered([]any{view, explanation}, err)
		}},
		{"who paused it", "Explain", admin.SeeOverview, sees, false, "PSP is back", func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return answered(d.Explain(ctx, a, b.pending.ID))
		}},
		{"search", "Find", admin.SeeEntries, nil, false, "business", func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return answered(d.Find(ctx, a, "o-ref"))
		}},
		{"near ids", "Near", admin.SeeEntries, nil, false, "o-refund", func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return answered(d.Near(ctx, a, "o-refudn"))
		}},
		{"lines", "Lines", admin.SeeEntries, nil, false, "o-refund", func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return answered(d.Lines(ctx, a, []compensator.EntryID{b.dead.ID}))
		}},
		{"lines' errors", "Lines", admin.SeeErrors, sees, false, canary, func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return answered(d.Lines(ctx, a, []compensator.EntryID{b.dead.ID}))
		}},
		{"listed lines", "EntryLines", admin.SeeEntries, nil, false, "o-refund", func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return answered(d.EntryLines(ctx, a, admin.Filter{}))
		}},
		{"listed lines' errors", "EntryLines", admin.SeeErrors, sees, false, canary, func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return answered(d.EntryLines(ctx, a, admin.Filter{}))
		}},
		{"entry's error", "Entry", admin.SeeErrors, sees, false, canary, func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return answered(d.Entry(ctx, a, b.dead.ID))
		}},
		{"content's hash", "Entry", admin.SeeContent, sees, false, deadHash, func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return answered(d.Entry(ctx, a, b.dead.ID))
		}},
		{"entry's trail", "Entry", admin.SeeAuditLog, sees, false, "settled by nobody", func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return answered(d.Entry(ctx, a, b.dead.ID))
		}},
		{"groups", "Groups", admin.SeeEntries, nil, false, refundType, func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return some(d.Groups(ctx, a))
		}},
		{"groups' errors", "Groups", admin.SeeErrors, sees, false, canary, func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return some(d.Groups(ctx, a))
		}},
		{"cases", "Cases", admin.SeeEntries, nil, false, "o-refund", func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return answered(d.Cases(ctx, a, admin.CaseFilter{}))
		}},
		{"cases' errors", "Cases", admin.SeeErrors, sees, false, canary, func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return answered(d.Cases(ctx, a, admin.CaseFilter{}))
		}},
		{"groups of a failure", "GroupsOf", admin.SeeEntries, nil, false, refundType, func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return some(d.GroupsOf(ctx, a, "", b.caseOf().Fingerprint))
		}},
		{"errors of a failure", "GroupsOf", admin.SeeErrors, sees, false, canary, func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return some(d.GroupsOf(ctx, a, refundType, b.caseOf().Fingerprint))
		}},
		{"cases' lines", "CaseLines", admin.SeeEntries, nil, false, "o-refund", func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return answered(d.CaseLines(ctx, a, admin.CaseFilter{}))
		}},
		{"cases' lines' errors", "CaseLines", admin.SeeErrors, sees, false, canary, func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return answered(d.CaseLines(ctx, a, admin.CaseFilter{}))
		}},
		{"trail", "AuditLog", admin.SeeAuditLog, nil, false, refundType, func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return answered(d.AuditLog(ctx, a, admin.AuditLogFilter{}))
		}},
		{"paused", "Paused", admin.SeeOverview, nil, false, refundType, func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return answered(d.Paused(ctx, a))
		}},
		{"paused types of a page", "PausedOf", admin.SeeOverview, nil, false, refundType, func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return answered(d.PausedOf(ctx, a, refundType))
		}},
		{"what is limited", "Limited", admin.SeeOverview, nil, false, "", func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return d.Limited(ctx, a), nil
		}},
		{"limits", "Limits", admin.SeeOverview, nil, false, refundType, func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return answered(d.Limits(ctx, a))
		}},
		{"trend", "Trend", admin.SeeOverview, nil, false, refundType, func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return answered(d.Trend(ctx, a, admin.TrendHours, ""))
		}},
		{"instances", "Instances", admin.SeeOverview, nil, false, refundType, func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return answered(d.Instances(ctx, a))
		}},
		{"periodic types", "Periodic", admin.SeeOverview, nil, false, refundType, func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return answered(d.Periodic(ctx, a))
		}},
		{"types", "Types", admin.SeeOverview, nil, false, refundType, func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return answered(d.Types(ctx, a, admin.SeeOverview))
		}},
		{"types without a handler", "Unregistered", admin.SeeOverview, nil, false, "", func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return answered(d.Unregistered(ctx, a, refundType, mailType))
		}},
		{"what is broken", "Broken", admin.SeeOverview, nil, false, refundType, func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return d.Broken(ctx, a), nil
		}},
		{"reveal", "Reveal", admin.SeeContent, sees, true, canary, func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return answered(d.Reveal(ctx, a, b.dead.ID, why))
		}},
		{"export", "Export", admin.Export, sees, true, "o-refund", func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return answered(d.Export(ctx, a, admin.Filter{}, why))
		}},
		{"export of the type", "Export", admin.Export, sees, true, "o-refund", func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return answered(d.Export(ctx, a, admin.Filter{BusinessType: refundType}, why))
		}},
		changing(admin.Requeue, nil, deadRefund),
		requeueSucceeded,
		changing(admin.Compensate, nil, deadRefund),
		changing(admin.SettleManually, nil, deadRefund),
		changing(admin.Cancel, nil, deadRefund),
		changing(admin.Complete, nil, deadRefund),
		changing(admin.Reschedule, nil, func(b *bed) compensator.Entry { return b.pending }),
		{"take", "TakeCases", admin.TakeCase, sees, true, "", func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return nil, joined(d.TakeCases(ctx, a, []admin.SeenCase{{EntryID: b.dead.ID, Version: b.caseOf().Version}}, why))
		}},
		{"assign", "AssignCases", admin.AssignCase, sees, true, "", func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return nil, joined(d.AssignCases(ctx, a, []admin.SeenCase{{EntryID: b.dead.ID, Version: b.caseOf().Version}}, "bob", why))
		}},
		{"note", "Note", admin.NoteCase, sees, true, "", func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return nil, d.Note(ctx, a, b.dead.ID, why)
		}},
		{"pause", "Pause", admin.Pause, nil, true, "", func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return nil, d.Pause(ctx, a, mailOrRefund(b), why)
		}},
		{"pause with options", "PauseWith", admin.Pause, nil, true, "", func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return nil, d.PauseWith(ctx, a, mailOrRefund(b), admin.PauseOptions{For: time.Hour, Ahead: true}, why)
		}},
		{"change of a limit", "ChangeLimit", admin.ChangeLimit, nil, true, "", func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return nil, d.ChangeLimit(ctx, a, admin.Limit{Name: refundType}, admin.LimitValues{Concurrent: 7}, why)
		}},
		{"check of a type", "CheckType", admin.SeeEntries, nil, false, refundType, func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			if err := d.CheckType(ctx, a, refundType); err != nil {
				return nil, err
			}
			return refundType, nil
		}},
		{"resume", "Resume", admin.Pause, nil, true, "", func(ctx context.Context, d *admin.Admin, b *bed, a admin.Actor) (any, error) {
			return nil, d.Resume(ctx, a, admin.Paused{Type: refundType, Version: 1}, why)
		}},
	}
}

func mailOrRefund(b *bed) string {
	all := admin.AccessFunc(func(context.Context, admin.Actor, admin.Right, admin.Subject) bool { return true })
	_ = b.admin(admin.Options{Access: all}).Resume(b.t.Context(), admin.Actor{ID: "host"}, admin.Paused{Type: refundType, Version: 1}, why)
	return refundType
}

func answered[T any](v T, err error) (any, error) { return v, err }

func some[T any](v T, _ bool, err error) (any, error) { return v, err }

func prepared(t *testing.T) *bed {
	b := newBed(t)
	b.breaks(refundType, "none")
	all := admin.AccessFunc(func(context.Context, admin.Actor, admin.Right, admin.Subject) bool { return true })
	d := b.admin(admin.Options{Access: all})
	host := admin.Actor{ID: "host"}
	require.NoError(t, d.Note(t.Context(), host, b.dead.ID, admin.Why{Reason: "settled by nobody"}))
	require.NoError(t, d.Pause(t.Context(), host, refundType, why))
	counted := admin.Stat{At: time.Now().Truncate(time.Minute).Add(-5 * time.Minute), BusinessType: refundType}
	require.NoError(t, b.store.WriteStats(t.Context(), "A", counted.At, []admin.Stat{counted}))
	_, err := b.store.BeginMark(t.Context(), refundType)
	require.NoError(t, err)
	b.bulk.Secret = "0123456789abcdef"
	b.bulk.Record, _, err = b.store.ChangeBulk(t.Context(), nil, processlog.Change{Action: processlog.ActionRequeue}, processlog.BulkBatch{ID: admin.BulkID{Secret: "0123456789abcdef"}, Action: processlog.ActionRequeue, Actor: "ann", Reason: "[OPS-988] PSP is back",
		Entries: []processlog.BulkEntry{{ID: b.succeeded.ID, Version: b.succeeded.Version}}, Plan: json.RawMessage(fmt.Sprintf(`{"right":"requeue","total":2,"tries_first":true,"rest":[{"ID":"%s","Version":%d}]}`, b.dead.ID, b.dead.Version))})
	require.NoError(t, err)
	b.matching.Secret = "fedcba9876543210"
	b.matching.Record, _, err = b.store.ChangeBulk(t.Context(), nil, processlog.Change{Action: processlog.ActionRequeue}, processlog.BulkBatch{ID: b.matching, Action: processlog.ActionRequeue, Actor: "ann", Reason: "[OPS-988] PSP is back",
		Plan: json.RawMessage(`{"right":"requeue","total":2,"matching":{"search":{"filter":{"states":["dead"],"business_types":["refund"]}},"up_to":"99","cursor":"1","changed":0}}`)})
	require.NoError(t, err)
	_, err = b.store.BeginMark(t.Context(), refundType)
	require.NoError(t, err)
	require.NoError(t, b.store.WriteInstance(t.Context(), admin.Instance{Name: "api-1:17", Types: []admin.InstanceType{{Name: refundType, Slots: 5}}}, 0, false))
	return b
}

// Failure: F122
func TestEachRightAllowsWhatItSaysAndNothingElse(t *testing.T) {
	t.Parallel()
	for _, deed := range deeds() {
		wants := append(slices.Clone(deed.with), deed.right)
		accesses := map[string]admin.Options{
			"none":  {Access: admin.AccessFunc(func(context.Context, admin.Actor, admin.Right, admin.Subject) bool { return false })},
			"panic": {Access: admin.AccessFunc(func(context.Context, admin.Actor, admin.Right, admin.Subject) bool { panic("no") })},
			"wrong": {Access: admin.AccessFunc(func(_ context.Context, _ admin.Actor, r admin.Right, _ admin.Subject) bool { return r != deed.right })},
			"another type": {Access: admin.AccessFunc(func(_ context.Context, _ admin.Actor, _ admin.Right, on admin.Subject) bool {
				return on.Type == mailType
			})},
			"another actor": {Access: admin.AccessFunc(func(_ context.Context, a admin.Actor, _ admin.Right, _ admin.Subject) bool { return a.ID != "mei" })},
			"read only":     {ReadOnly: true, Access: admin.AccessFunc(func(context.Context, admin.Actor, admin.Right, admin.Subject) bool { return true })},
			"ok": {Access: admin.AccessFunc(func(_ context.Context, a admin.Actor, r admin.Right, on admin.Subject) bool {
				return a == mei && slices.Contains(wants, r) && (on.Type == refundType || on.Type == "" && r == admin.SeeOverview)
			})},
		}
		for name, opts := range accesses {
			t.Run(deed.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				b := prepared(t)
				if deed.method == "Pause" || deed.method == "PauseWith" {
					mailOrRefund(b)
				}
				before := b.standing()
				answer, err := deed.do(t.Context(), b.admin(opts), b, mei)
				text := asJSON(t, answer)
				allowed := name == "ok" || name == "read only" && !deed.writes
				if allowed {
					require.NoError(t, err)
					assert.Contains(t, text, deed.shows)
					if name == "ok" {
						assert.NotContains(t, text, "o-mail", "of another type")
					}
					if deed.writes {
						assert.NotEqual(t, before, b.standing(), "it is on record")
						assert.True(t, slices.ContainsFunc(b.auditLog(false), func(r admin.AuditLogRecord) bool {
							return r.Actor == "mei" && r.Reason == "[OPS-988] PSP is back"
						}))
					} else {
						assert.Equal(t, before, b.standing())
					}
					assert.Empty(t, b.auditLog(true))
					return
				}
				some := deed.name == "export" && name == "another type" // An export can be refused for some of its types, and not for the others.
				if !some {
					assert.Equal(t, before, b.standing(), "nothing has changed")
				}
				if deed.shows != "" {
					assert.NotContains(t, text, deed.shows)
				}
				if !deed.writes {
					return
				}
				recorded := refundType
				switch {
				case name == "read only":
					require.ErrorIs(t, err, admin.ErrReadOnly)
					assert.Empty(t, b.auditLog(true))
				case some: // Types without the right are left out.
					require.NoError(t, err)
				case name == "wrong":
					require.ErrorIs(t, err, admin.ErrNotAllowed)
					if deed.name == "export" || deed.method == "StopBulk" || deed.method == "FinishBulk" { // They name no entry.
						recorded = ""
					}
				case slices.Contains(deed.with, admin.SeeEntries) && deed.method != "Export" && deed.method != "StartMatching":
					require.ErrorIs(t, err, compensator.ErrNotFound, "as if it were not there")
					require.NotErrorIs(t, err, admin.ErrNotAllowed)
					recorded = "" // The record has no type, because a type would reveal that the entry exists.
				case deed.method == "ChangeLimit":
					require.ErrorIs(t, err, compensator.ErrNotFound, "a limit of hidden types is as if it were not there")
					recorded = ""
				default:
					require.ErrorIs(t, err, admin.ErrNotAllowed)
					recorded = ""
				}
				if name != "read only" && !some {
					refused := b.auditLog(true)
					require.Len(t, refused, 1, "the refusal is on record")
					assert.Equal(t, []any{"mei", recorded, "[OPS-988] PSP is back"}, []any{refused[0].Actor, refused[0].BusinessType, refused[0].Reason})
				}
			})
		}
	}
}

// Failure: F122
func TestMatrixHasEveryRightAndEveryMethod(t *testing.T) {
	t.Parallel()
	rights, methods := make(map[admin.Right]bool), make(map[string]bool)
	for _, deed := range deeds() {
		rights[deed.right], methods[deed.method] = true, true
	}
	for _, right := range admin.Rights {
		assert.True(t, rights[right], "no deed of %q", right)
	}
	of := reflect.TypeFor[*admin.Admin]()
	for i := range of.NumMethod() {
		method := of.Method(i)
		for j := range method.Type.NumIn() {
			if method.Type.In(j) == reflect.TypeFor[admin.Actor]() && method.Name != "May" && method.Name != "MayChangeLimit" && method.Name != "Offers" {
				assert.True(t, methods[method.Name], "no deed of %s", method.Name)
			}
		}
	}
}

// Failure: F122
func TestNothingIsSeenOfWhatIsMasked(t *testing.T) {
	t.Parallel()
	b := prepared(t)
	d := b.admin(admin.Options{Access: admin.AccessFunc(func(_ context.Context, _ admin.Actor, r admin.Right, _ admin.Subject) bool {
		return r != admin.SeeContent && r != admin.SeeErrors
	})})
	for _, deed := range deeds() {
		answer, err := deed.do(t.Context(), d, b, mei)
		text := asJSON(t, answer)
		if err != nil {
			text += err.Error()
		}
		assert.NotContains(t, text, canary, deed.name)
		assert.NotContains(t, text, "Y2FuYXJ5", deed.name) // "Y2FuYXJ5" is the beginning of canary in base64.
	}
	page, err := d.Entries(t.Context(), mei, admin.Filter{States: []compensator.State{compensator.Dead}})
	require.NoError(t, err)
	assert.Equal(t, "no such card “…”", page.Entries[0].LastError, "the error is masked")
}

func TestAdminIsRefusedWithoutAccessAndWithoutOperations(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var field *compensator.FieldError
	_, err := admin.New(b.c, admin.Options{})
	require.ErrorAs(t, err, &field)
	assert.Equal(t, "Access", field.Field)
	yes := admin.AccessFunc(func(context.Context, admin.Actor, admin.Right, admin.Subject) bool { return true })
	_, err = admin.New(b.c, admin.Options{Access: yes, ReadTime: -1})
	require.ErrorAs(t, err, &field)
	assert.Equal(t, "ReadTime", field.Field)
	_, err = admin.New(nil, admin.Options{Access: yes})
	require.ErrorAs(t, err, &field)
	plain, err := compensator.New(t.Context(), compensator.Config{Store: b.store})
	require.NoError(t, err)
	defer func() { require.NoError(t, plain.Close()) }()
	_, err = admin.New(plain, admin.Options{Access: yes})
	require.ErrorAs(t, err, &field)
	assert.Equal(t, "Operations", field.Field)
}

// Failure: F122
func TestNobodyWithoutANameMayDoAnything(t *testing.T) {
	t.Parallel()
	b := prepared(t)
	d := b.admin(admin.Options{Access: admin.AccessFunc(func(context.Context, admin.Actor, admin.Right, admin.Subject) bool { return true })})
	before := b.standing()
	for _, nobody := range []admin.Actor{{}, {ID: " "}, {ID: "\xff"}, {ID: strings.Repeat("名", 192)}} {
		for _, deed := range deeds() {
			if deed.method == "Pause" || deed.method == "PauseWith" {
				continue // These deeds first resume the type as another actor, which changes the log.
			}
			answer, err := deed.do(t.Context(), d, b, nobody)
			if deed.shows != "" {
				assert.NotContains(t, asJSON(t, answer), deed.shows, deed.name)
			}
			assert.True(t, err != nil || !deed.writes || deed.method == "Export", "%s by %q", deed.name, nobody.ID)
		}
	}
	assert.Equal(t, before, b.standing())
}

// Failure: F122
func TestRefusalsOfAMinuteAreBounded(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	d := b.admin(admin.Options{Access: admin.AccessFunc(func(_ context.Context, _ admin.Actor, r admin.Right, _ admin.Subject) bool {
		return r == admin.SeeEntries
	})})
	for range 25 {
		require.ErrorIs(t, d.Note(t.Context(), mei, b.dead.ID, why), admin.ErrNotAllowed)
	}
	require.ErrorIs(t, d.Note(t.Context(), admin.Actor{ID: "bob"}, b.dead.ID, why), admin.ErrNotAllowed)
	assert.Len(t, b.auditLog(true), 11)
}

// Access must get the amount also for an entry without a case.
// Failure: F122
func TestRightsAreAskedForWhatAnEntryIsWorth(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	d := b.admin(admin.Options{Access: admin.AccessFunc(func(_ context.Context, _ admin.Actor, r admin.Right, on admin.Subject) bool {
		return r == admin.SeeEntries || on.Amount.Known() && on.Amount.Minor < 1000 && on.Count == 3
	})})
	answers, err := d.Change(t.Context(), mei, admin.Change{Action: admin.Cancel, Why: why, Entries: []admin.Seen{
		{ID: b.dead.ID, Version: b.dead.Version}, {ID: b.pending.ID, Version: b.pending.Version}, {ID: b.otherDead.ID, Version: b.otherDead.Version}}})
	require.NoError(t, err)
	require.ErrorIs(t, answers[0], admin.ErrNotAllowed, "¥129.00")
	require.NoError(t, answers[1], "¥1.00")
	require.ErrorIs(t, answers[2], admin.ErrNotAllowed, "not known")
	assert.Len(t, b.auditLog(true), 1)
	assert.Equal(t, "2 of 3 entries", b.auditLog(true)[0].Subject)
}

func TestBadChangesAreRefusedWithTheirField(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	d := b.admin(admin.Options{Access: admin.AccessFunc(func(context.Context, admin.Actor, admin.Right, admin.Subject) bool { return true })})
	seen := []admin.Seen{{ID: b.dead.ID, Version: b.dead.Version}}
	many := make([]admin.Seen, admin.MaxEntries+1)
	for i := range many {
		id, err := compensator.ParseEntryID(strings.Repeat("9", 6) + string(rune('0'+i%10)) + time.Duration(i).String()[:1])
		_ = err
		many[i] = admin.Seen{ID: id, Version: uint64(i)}
	}
	for field, bad := range map[string]admin.Change{
		"action":  {Action: admin.Pause, Entries: seen, Why: why},
		"reason":  {Action: admin.Requeue, Entries: seen, Why: admin.Why{Reason: strings.Repeat("长", 1000), Ticket: "OPS-1"}},
		"ticket":  {Action: admin.Requeue, Entries: seen, Why: admin.Why{Reason: "x", Ticket: "OPS 1]"}},
		"entries": {Action: admin.Requeue, Entries: append(seen, seen...), Why: why},
		"delay":   {Action: admin.Cancel, Entries: seen, Why: why, Delay: time.Second},
	} {
		_, err := d.Change(t.Context(), mei, bad)
		var refused *compensator.FieldError
		require.ErrorAs(t, err, &refused, field)
		assert.Equal(t, field, refused.Field)
	}
	for _, bad := range []admin.Change{{Action: admin.Requeue, Why: why}, {Action: admin.Requeue, Why: why, Entries: many}, {Action: admin.Requeue, Entries: seen}} {
		_, err := d.Change(t.Context(), mei, bad)
		var refused *compensator.FieldError
		require.ErrorAs(t, err, &refused)
	}
	assert.Empty(t, b.auditLog(false))
}

// Failure: F120
func TestManyCasesAreTakenAtOnce(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var count int
	d := b.admin(admin.Options{Access: admin.AccessFunc(func(_ context.Context, a admin.Actor, r admin.Right, on admin.Subject) bool {
		count = max(count, on.Count)
		return r == admin.SeeEntries || a != mei || on.Type == mailType
	})})
	seen := func(e compensator.Entry) admin.SeenCase {
		view, err := d.Entry(t.Context(), mei, e.ID)
		require.NoError(t, err)
		return admin.SeenCase{EntryID: e.ID, Version: view.Case.Version}
	}
	all := []admin.SeenCase{seen(b.dead), seen(b.otherDead), {EntryID: b.pending.ID}}
	answers, err := d.TakeCases(t.Context(), mei, all, why)
	require.NoError(t, err)
	require.ErrorIs(t, answers[0], admin.ErrNotAllowed)
	require.NoError(t, answers[1])
	require.ErrorIs(t, answers[2], compensator.ErrNotFound)
	assert.Equal(t, 3, count)
	require.Len(t, b.auditLog(true), 1)
	assert.Equal(t, []any{"2 of 3 entries", b.dead.ID}, []any{b.auditLog(true)[0].Subject, b.auditLog(true)[0].EntryID})
	owners := func() []string {
		page, err := d.Cases(t.Context(), mei, admin.CaseFilter{})
		require.NoError(t, err)
		require.Len(t, page.Cases, 2)
		return []string{page.Cases[0].BusinessType + " " + page.Cases[0].Owner, page.Cases[1].BusinessType + " " + page.Cases[1].Owner}
	}
	assert.ElementsMatch(t, []string{"refund ", "mail mei"}, owners())

	did := len(b.auditLog(false))
	require.NoError(t, joined(d.TakeCases(t.Context(), mei, all[1:2], why)), "a second press changes nothing")
	assert.Len(t, b.auditLog(false), did)

	bob := admin.Actor{ID: "bob"}
	answers, err = d.AssignCases(t.Context(), bob, all[:2], "eve", why)
	require.NoError(t, err)
	require.NoError(t, answers[0])
	require.ErrorIs(t, answers[1], admin.ErrChanged, "mei has it")
	require.NoError(t, joined(d.AssignCases(t.Context(), mei, []admin.SeenCase{seen(b.otherDead)}, "", why)), "she gives back what is hers")
	assert.ElementsMatch(t, []string{"refund eve", "mail "}, owners())

	for _, bad := range [][]admin.SeenCase{nil, {all[0], all[0]}, make([]admin.SeenCase, admin.MaxEntries+1)} {
		_, err := d.TakeCases(t.Context(), bob, bad, why)
		var refused *compensator.FieldError
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, "entries", refused.Field)
	}
	_, err = d.AssignCases(t.Context(), bob, all, strings.Repeat("x", 192), why)
	var refused *compensator.FieldError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, "owner", refused.Field)
}

func joined(answers []error, err error) error { return errors.Join(append(answers, err)...) }
