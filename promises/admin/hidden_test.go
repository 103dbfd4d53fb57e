package admin

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/harness"
)

// canary is a text in all fields of entries whose type the reader must not see.
const canary = "canary"

// Failure: F122
func TestWhoSeesSomeTypesFindsNoTraceOfOthers(t *testing.T) {
	t.Parallel()
	harness.InOppositeModes(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(operated(cfg))
		fails := func(_ context.Context, e *compensator.Entry, _ map[string]string) error {
			return compensator.Permanent(fmt.Errorf("no such account of %s", e.UserName))
		}
		var entries []compensator.NewEntry
		for _, name := range []string{"refund", "salary"} {
			_, err := compensator.Handle(t.Context(), c, name, fails, nil)
			require.NoError(t, err)
		}
		for i := range 18 {
			name, what := "salary", canary
			if i%3 == 1 {
				name, what = "refund", "open"
			}
			content, err := json.Marshal(map[string]string{"of": what})
			require.NoError(t, err)
			entries = append(entries, compensator.NewEntry{BusinessType: name, Content: content, Options: compensator.Options{IdempotencyKey: compensator.IdempotencyKey(fmt.Sprint(what, "-", i)), BatchID: "batch",
				BusinessID: "order", BusinessExtID: what, UserID: what, UserName: what, Headers: map[string]string{"x-of": what}}})
		}
		require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
			for _, e := range entries {
				if _, err := c.Record(ctx, tx, e); err != nil {
					return err
				}
			}
			return nil
		}))
		stop := w.Run(c)
		w.WaitAllEnded()
		require.NoError(t, stop())
		host := open(t, c)
		all, err := host.Entries(t.Context(), mei, admin.Filter{})
		require.NoError(t, err)
		require.Len(t, all.Entries, 18)
		visible := make(map[string]bool)
		for _, e := range all.Entries {
			require.NoError(t, host.Note(t.Context(), mei, e.ID, admin.Why{Reason: "about " + e.BusinessExtID}))
			visible[e.ID.String()] = e.BusinessType == "refund"
		}
		some, err := admin.New(c, admin.Options{Access: admin.AccessFunc(func(_ context.Context, _ admin.Actor, _ admin.Right, on admin.Subject) bool {
			return on.Type == "refund"
		})})
		require.NoError(t, err)
		traceless(t, some, visible)
	})
}

func traceless(t *testing.T, d *admin.Admin, visible map[string]bool) {
	ctx, bob := t.Context(), admin.Actor{ID: "bob"}
	entries := func(f admin.Filter) func(cursor string) (any, int, string, error) {
		return func(cursor string) (any, int, string, error) {
			f.Limit, f.Cursor = 1, cursor
			page, err := d.Entries(ctx, bob, f)
			return page, len(page.Entries), page.Next, err
		}
	}
	ever := time.Now().Add(-24 * time.Hour)
	for name, list := range map[string]func(cursor string) (answer any, rows int, next string, err error){
		"entries": entries(admin.Filter{}), "newest": entries(admin.Filter{Newest: true}),
		"dead": entries(admin.Filter{States: []compensator.State{compensator.Dead}}), "created": entries(admin.Filter{CreatedFrom: ever, MaxRead: 7}),
		"created, dead": entries(admin.Filter{CreatedFrom: ever, States: []compensator.State{compensator.Dead}, MaxRead: 7, Newest: true}),
		"a batch":       entries(admin.Filter{BatchID: "batch"}), "a batch's errors": entries(admin.Filter{BatchID: "batch", EndedBy: compensator.EndedByPermanent, MaxRead: 7}),
		"siblings": entries(admin.Filter{BusinessID: "order", BusinessType: "refund", MaxRead: 7}),
		"cases": func(cursor string) (any, int, string, error) {
			page, err := d.Cases(ctx, bob, admin.CaseFilter{Limit: 1, Cursor: cursor})
			return page, len(page.Cases), page.Next, err
		},
		"trail": func(cursor string) (any, int, string, error) {
			page, err := d.AuditLog(ctx, bob, admin.AuditLogFilter{Limit: 1, Cursor: cursor})
			return page, len(page.Records), page.Next, err
		},
	} {
		pages, cursor := 0, ""
		for more := true; more && pages < 20; pages++ {
			answer, rows, next, err := list(cursor)
			require.NoError(t, err, name)
			require.Equal(t, 1, rows, "%s, page %d", name, pages)
			requireUntold(t, answer, visible, name)
			cursor, more = next, next != ""
		}
		assert.Equal(t, 6, pages, name)
	}
	groups, _, err := d.Groups(ctx, bob)
	require.NoError(t, err)
	require.Len(t, groups, 1)
	assert.Equal(t, 6, groups[0].N)
	requireUntold(t, groups, visible, "groups")
	overview, err := d.Overview(ctx, bob)
	require.NoError(t, err)
	require.Len(t, overview.Types, 1)
	requireUntold(t, overview, visible, "overview")
	for id, may := range visible {
		ref, err := compensator.ParseEntryID(id)
		require.NoError(t, err)
		view, err := d.Entry(ctx, bob, ref)
		if !may {
			require.ErrorIs(t, err, compensator.ErrNotFound)
			assert.Equal(t, id+": "+compensator.ErrNotFound.Error(), err.Error())
			continue
		}
		require.NoError(t, err)
		assert.Len(t, view.Siblings, 5)
		assert.False(t, view.MoreSiblings)
		requireUntold(t, view, visible, "entry")
	}
}

var words = regexp.MustCompile(`[A-Za-z0-9_-]{8,}`)

// A cursor may hold only ids of visible entries.
func requireUntold(t *testing.T, answer any, visible map[string]bool, what string) {
	t.Helper()
	text, err := json.Marshal(answer)
	require.NoError(t, err)
	assert.NotContains(t, string(text), canary, what)
	assert.NotContains(t, string(text), "salary", what)
	for _, word := range words.FindAllString(string(text), -1) {
		decoded, err := base64.RawURLEncoding.DecodeString(word)
		if err != nil || !strings.HasPrefix(string(decoded), "1.") {
			continue
		}
		assert.True(t, visible[string(decoded[strings.LastIndex(string(decoded), ".")+1:])], "%s: %s", what, decoded)
	}
}

// MySQL compares "refund " with a trailing space as equal to "refund".
func TestNameThatTheDatabaseTakesForAnotherShowsNothing(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c, orders, _, _ := dying(t, w, w.QuickConfig())
	for range 2 {
		w.Record(orders, 1, compensator.Options{})
	}
	stop := w.Run(c)
	w.Eventually(func() bool { return w.Count("common_process_log WHERE state=-2") == 2 }, "both are dead")
	require.NoError(t, stop())
	d, err := admin.New(c, admin.Options{Access: admin.AccessFunc(func(_ context.Context, _ admin.Actor, _ admin.Right, on admin.Subject) bool {
		return on.Type != "refund"
	})})
	require.NoError(t, err)
	for _, name := range []string{"refund", "refund ", "refund  "} {
		entries, err1 := d.Entries(t.Context(), mei, admin.Filter{BusinessType: name, Limit: 1})
		among, err2 := d.Entries(t.Context(), mei, admin.Filter{BusinessTypes: []string{name, "mail"}, Limit: 1})
		cases, err3 := d.Cases(t.Context(), mei, admin.CaseFilter{BusinessType: name, Limit: 1})
		auditLog, err4 := d.AuditLog(t.Context(), mei, admin.AuditLogFilter{BusinessTypes: []string{name}, Limit: 1})
		require.NoError(t, errors.Join(err1, err2, err3, err4))
		require.Equal(t, []any{admin.EntryPage{}, admin.EntryPage{}, admin.CasePage{}, admin.AuditLogPage{}}, []any{entries, among, cases, auditLog}, "%q", name)
		if err := d.Pause(t.Context(), mei, name, why); name == "refund" {
			require.ErrorIs(t, err, admin.ErrNotAllowed)
		} else {
			require.ErrorContains(t, err, "business type: starts or ends with a space")
		}
	}
	require.Zero(t, w.Count("common_process_log_setting"))
}
