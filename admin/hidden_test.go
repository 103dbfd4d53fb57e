package admin_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/processlog"
)

var (
	everything = admin.AccessFunc(func(context.Context, admin.Actor, admin.Right, admin.Subject) bool { return true })
	mailOnly   = admin.AccessFunc(func(_ context.Context, _ admin.Actor, _ admin.Right, on admin.Subject) bool {
		return on.Type == mailType
	})
)

type page struct {
	types []string
	next  string
}

var lists = map[string]func(ctx context.Context, d *admin.Admin, cursor string) (page, error){
	"entries":           entriesBy(admin.Filter{}),
	"newest entries":    entriesBy(admin.Filter{Newest: true}),
	"dead entries":      entriesBy(admin.Filter{States: []compensator.State{compensator.Dead}}),
	"a batch":           entriesBy(admin.Filter{BatchID: "b-1"}),
	"a batch's dead":    entriesBy(admin.Filter{BatchID: "b-1", States: []compensator.State{compensator.Dead}, MaxRead: 1}),
	"begin of a batch":  entriesBy(admin.Filter{BatchID: "b", Prefix: true}),
	"begin of an order": entriesBy(admin.Filter{BusinessID: "o-", Prefix: true, States: []compensator.State{compensator.Dead}, MaxRead: 1}),
	"ended lately":      entriesBy(admin.Filter{EndedFrom: time.Unix(1, 0)}),
	"created lately":    entriesBy(admin.Filter{CreatedFrom: time.Unix(1, 0), MaxRead: 1}),
	"mail of a range":   entriesBy(admin.Filter{CreatedFrom: time.Unix(1, 0), BusinessType: mailType, MaxRead: 1}),
	"ended by a person": entriesBy(admin.Filter{CreatedFrom: time.Unix(1, 0), EndedBy: compensator.EndedByPermanent, MaxRead: 1}),
	"an export": func(ctx context.Context, d *admin.Admin, cursor string) (p page, err error) {
		found, err := d.Export(ctx, mei, admin.Filter{BatchID: "b-1", Limit: 1, Cursor: cursor}, why)
		for _, l := range found.Lines {
			p.types = append(p.types, l.Entry.BusinessType)
		}
		p.next = found.Next
		return p, err
	},
	"cases": func(ctx context.Context, d *admin.Admin, cursor string) (p page, err error) {
		found, err := d.Cases(ctx, mei, admin.CaseFilter{Limit: 1, Cursor: cursor})
		for _, c := range found.Cases {
			p.types = append(p.types, c.BusinessType)
		}
		p.next = found.Next
		return p, err
	},
	"trail": func(ctx context.Context, d *admin.Admin, cursor string) (p page, err error) {
		found, err := d.AuditLog(ctx, mei, admin.AuditLogFilter{Action: "note", Limit: 1, Cursor: cursor})
		for _, r := range found.Records {
			p.types = append(p.types, r.BusinessType)
		}
		p.next = found.Next
		return p, err
	},
}

func entriesBy(f admin.Filter) func(ctx context.Context, d *admin.Admin, cursor string) (page, error) {
	return func(ctx context.Context, d *admin.Admin, cursor string) (p page, err error) {
		f.Limit, f.Cursor = 1, cursor
		found, err := d.Entries(ctx, mei, f)
		for _, e := range found.Entries {
			p.types = append(p.types, e.BusinessType)
		}
		p.next = found.Next
		return p, err
	}
}

func crowded(t *testing.T, mails int) *bed {
	b := newBed(t)
	host := b.admin(admin.Options{Access: everything})
	for i := range mails {
		for _, name := range []string{refundType, mailType, refundType} {
			e := b.die(name, compensator.Options{IdempotencyKey: compensator.IdempotencyKey(fmt.Sprint(name, i, len(b.store.Rows()))), BatchID: "b-1", BusinessID: "o-all"})
			require.NoError(t, host.Note(t.Context(), admin.Actor{ID: "host"}, e.ID, why))
		}
	}
	return b
}

func TestRunningEntriesOfAllTypesAreThoseThatMayBeSeen(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	require.NoError(t, b.c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := b.types[mailType].Record(ctx, tx, payment{"waits", canary, 100}, compensator.Options{IdempotencyKey: "mail-pending"})
		return err
	}))
	mail, err := b.c.Get(t.Context(), compensator.IdempotencyKey("mail-pending"))
	require.NoError(t, err)
	for _, id := range []compensator.EntryID{mail.ID, b.pending.ID} {
		claimed, err := b.store.Claim(t.Context(), []processlog.Wanted{{ID: id}}, processlog.NewToken(), time.Hour, func(*processlog.Row) bool { return true })
		require.NoError(t, err)
		require.Len(t, claimed.Mine, 1)
	}
	all := admin.Filter{Leased: true}
	for name, c := range map[string]struct {
		access  admin.AccessFunc
		filter  admin.Filter
		want    []compensator.EntryID
		partial []string
	}{
		"everything":                     {everything, all, []compensator.EntryID{b.pending.ID, mail.ID}, nil},
		"mail only":                      {mailOnly, all, []compensator.EntryID{mail.ID}, nil},
		"mail only, hidden rows counted": {mailOnly, admin.Filter{Leased: true, Limit: 1}, []compensator.EntryID{mail.ID}, nil},
		"a full page":                    {everything, admin.Filter{Leased: true, Limit: 1}, []compensator.EntryID{b.pending.ID}, []string{mailType}},
	} {
		page, err := b.admin(admin.Options{Access: c.access}).EntryLines(t.Context(), mei, c.filter)
		require.NoError(t, err, name)
		var ids []compensator.EntryID
		for _, line := range page.Lines {
			require.NotNil(t, line.Lease, name)
			ids = append(ids, line.Entry.ID)
		}
		assert.Equal(t, c.want, ids, name)
		assert.Equal(t, c.partial, page.Partial, name)
	}
	d := b.admin(admin.Options{Access: everything})
	_, err = d.Export(t.Context(), mei, all, why)
	require.ErrorAs(t, err, new(*compensator.FieldError), "nothing in the file would say that entries are missing")
	_, err = d.Matching(t.Context(), mei, admin.Requeue, admin.Search{Filter: admin.Filter{Leased: true, States: []compensator.State{compensator.Retrying}}})
	require.ErrorAs(t, err, new(*compensator.FieldError))
}

// Failure: F122
func TestPagesAndCursorsAreOfWhatMayBeSeenAlone(t *testing.T) {
	t.Parallel()
	b := crowded(t, 3)
	d := b.admin(admin.Options{Access: mailOnly})
	for name, list := range lists {
		cursor, n := "", 0
		for more := true; more && n < 20; n++ {
			found, err := list(t.Context(), d, cursor)
			require.NoError(t, err, name)
			assert.Equal(t, []string{mailType}, found.types, "%s, page %d", name, n)
			cursor, more = found.next, found.next != ""
		}
		assert.GreaterOrEqual(t, n, 3, name)
		assert.Less(t, n, 20, name)
	}
	view, err := d.Entry(t.Context(), mei, b.otherDead.ID)
	require.NoError(t, err)
	assert.False(t, view.MoreSiblings)
	nobody := b.admin(admin.Options{Access: admin.AccessFunc(func(context.Context, admin.Actor, admin.Right, admin.Subject) bool { return false })})
	for name, list := range lists {
		found, err := list(t.Context(), nobody, "")
		if name == "an export" {
			require.ErrorIs(t, err, admin.ErrNotAllowed)
			err = nil
		}
		require.NoError(t, err, name)
		assert.Equal(t, page{}, found, name)
	}
}

// For an actor who sees all types, the Admin passes no types to the queries. To know which types there are, the Admin
// reads the list of types once, and uses it again for some seconds.
// Failure: F127
func TestWhoSeesAllAsksForNoTypes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // In a bubble no time passes during the queries.
		b := newBed(t)
		var types [][]string
		b.store.entries = func(f admin.Filter) {
			types = append(types, f.BusinessTypes)
			assert.True(t, f.Outline, "no content is read for a list")
		}
		b.store.cases = func(_ context.Context, f admin.CaseFilter) error { types = append(types, f.BusinessTypes); return nil }
		b.store.groups = func(of []string) { types = append(types, of) }
		b.store.auditLogs = func(f admin.AuditLogFilter) { types = append(types, f.BusinessTypes) }
		ask := func(d *admin.Admin) [][]string {
			types = nil
			_, err1 := d.Entries(t.Context(), mei, admin.Filter{})
			_, err2 := d.Cases(t.Context(), mei, admin.CaseFilter{})
			_, _, err3 := d.Groups(t.Context(), mei)
			_, err4 := d.AuditLog(t.Context(), mei, admin.AuditLogFilter{})
			require.NoError(t, errors.Join(err1, err2, err3, err4))
			return types
		}
		assert.Equal(t, [][]string{nil, nil, nil, nil}, ask(b.admin(admin.Options{Access: everything})))
		assert.EqualValues(t, 1, b.store.looked.Load(), "an Admin knows for a while which types there are")
		some := []string{mailType}
		assert.Equal(t, [][]string{some, some, some, some}, ask(b.admin(admin.Options{Access: mailOnly})))
	})
}

func TestListsKeepToTheTypesAskedFor(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	for _, of := range []struct {
		access admin.Access
		asked  string
		n      int
	}{{everything, mailType, 1}, {mailOnly, mailType, 1}, {mailOnly, refundType, 0}} {
		d, types := b.admin(admin.Options{Access: of.access}), []string{of.asked}
		entries, err1 := d.Entries(t.Context(), mei, admin.Filter{BusinessTypes: types})
		cases, err2 := d.Cases(t.Context(), mei, admin.CaseFilter{BusinessTypes: types})
		require.NoError(t, errors.Join(err1, err2))
		assert.Equal(t, []int{of.n, of.n}, []int{len(entries.Entries), len(cases.Cases)}, of.asked)
	}
	d, none := b.admin(admin.Options{Access: everything}), []string{}
	entries, err1 := d.Entries(t.Context(), mei, admin.Filter{BusinessTypes: none})
	cases, err2 := d.Cases(t.Context(), mei, admin.CaseFilter{BusinessTypes: none})
	auditLog, err3 := d.AuditLog(t.Context(), mei, admin.AuditLogFilter{BusinessTypes: none})
	require.NoError(t, errors.Join(err1, err2, err3))
	assert.Empty(t, entries.Entries, "an empty list of types finds nothing")
	assert.Empty(t, cases.Cases)
	assert.Empty(t, auditLog.Records)
}

// Failure: F127
func TestReadsOfAnAdminAreFourAtATimeForTwoSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		d := b.admin(admin.Options{Access: everything})
		_, err := d.Cases(t.Context(), mei, admin.CaseFilter{}) // This call makes the Admin read the types.
		require.NoError(t, err)
		asked := make(chan struct{}, 10)
		b.store.cases = func(ctx context.Context, _ admin.CaseFilter) error {
			asked <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}
		began, over := time.Now(), make(chan error, 10)
		for range 6 {
			go func() {
				_, err := d.Cases(t.Context(), mei, admin.CaseFilter{})
				over <- err
			}()
		}
		synctest.Wait()
		assert.Len(t, asked, 4)
		hasty, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = d.Cases(hasty, mei, admin.CaseFilter{})
		require.ErrorIs(t, err, context.DeadlineExceeded, "a read that waits for its place ends with its context only")
		for range 6 {
			require.ErrorIs(t, <-over, context.DeadlineExceeded)
		}
		assert.Equal(t, 4*time.Second, time.Since(began), "of the bubble's clock")
		assert.Len(t, asked, 6)

		began = time.Now()
		_, err = b.admin(admin.Options{Access: everything, ReadTime: time.Minute}).Cases(t.Context(), mei, admin.CaseFilter{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Minute, time.Since(began), "ReadTime of a program for one person")
	})
}

// Failure: F127
func TestActionsWaitForNoReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		d := b.admin(admin.Options{Access: everything})
		_, err := d.Cases(t.Context(), mei, admin.CaseFilter{}) // This call makes the Admin read the types.
		require.NoError(t, err)
		b.store.cases = func(ctx context.Context, _ admin.CaseFilter) error { <-ctx.Done(); return ctx.Err() }
		for range 8 {
			go func() { _, _ = d.Cases(t.Context(), mei, admin.CaseFilter{}) }()
		}
		synctest.Wait()
		began := time.Now()
		require.NoError(t, d.Pause(t.Context(), mei, refundType, why))
		require.NoError(t, joined(d.TakeCases(t.Context(), mei, []admin.SeenCase{{EntryID: b.dead.ID, Version: b.caseOf().Version}}, why)))
		_, err = d.Reveal(t.Context(), mei, b.dead.ID, why)
		require.NoError(t, err)
		answers, err := d.Change(t.Context(), mei, admin.Change{Action: admin.Requeue, Entries: []admin.Seen{{ID: b.dead.ID, Version: b.dead.Version}}, Why: why})
		require.NoError(t, errors.Join(append(answers, err)...))
		assert.Equal(t, began, time.Now(), "of the bubble's clock")
		time.Sleep(time.Minute) // Wait until all reads have ended.
	})
}

// Failure: F127
func TestOverviewWaitsForNoServerThatIsSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.store.heads = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		began := time.Now()
		found, err := b.admin(admin.Options{Access: everything}).Overview(t.Context(), mei)
		require.NoError(t, err)
		assert.NotEmpty(t, found.Health.Database)
		assert.Equal(t, 2*time.Second, time.Since(began), "of the bubble's clock")
	})
}

// Failure: F122
func TestHiddenAndAbsentAreToldApartByNothing(t *testing.T) {
	t.Parallel()
	for _, broken := range []bool{false, true} {
		var told [2][]string
		for i := range told { // Compare the hidden refund with an entry that does not exist.
			b := newBed(t)
			d := b.admin(admin.Options{Access: admin.AccessFunc(func(_ context.Context, _ admin.Actor, right admin.Right, on admin.Subject) bool {
				return on.Type == mailType || on.Type == "" && right == admin.SeeAuditLog
			})})
			id, key := b.dead.ID, b.dead.IdempotencyKey
			if i == 1 {
				var err error
				key = "nobody"
				id, err = compensator.ParseEntryID("987654")
				require.NoError(t, err)
			}
			if broken {
				b.store.operates = func(processlog.Operation) error { return errors.New("no such table") }
			}
			tell := func(what string, err error) {
				told[i] = append(told[i], what+": "+strings.NewReplacer(id.String(), "#", string(key), "#").Replace(fmt.Sprintf("%T %v", err, err)))
			}
			_, err := d.Entry(t.Context(), mei, id)
			tell("entry", err)
			_, err = d.Reveal(t.Context(), mei, id, why)
			tell("reveal", err)
			tell("note", d.Note(t.Context(), mei, id, why))
			tell("note by its key", d.Note(t.Context(), mei, key, why))
			tell("take", joined(d.TakeCases(t.Context(), mei, []admin.SeenCase{{EntryID: id}}, why)))
			tell("assign", joined(d.AssignCases(t.Context(), mei, []admin.SeenCase{{EntryID: id}}, "bob", why)))
			answers, err := d.Change(t.Context(), mei, admin.Change{Action: admin.SettleManually, Entries: []admin.Seen{{ID: id}, {ID: b.otherDead.ID, Version: b.otherDead.Version}}, Why: why})
			tell("change", err)
			for _, answer := range answers {
				tell("answer", answer)
			}
			lines, err := d.Lines(t.Context(), mei, []compensator.EntryID{id})
			tell(fmt.Sprint(len(lines), " lines"), err)
			var records []string
			for _, r := range b.auditLog(true) {
				records = append(records, strings.Join([]string{r.Actor, r.Action, strings.ReplaceAll(r.EntryID.String(), id.String(), "#"), r.BusinessType, r.Subject, r.Reason}, " "))
			}
			slices.Sort(records) // Sort them, because records of one millisecond have no order.
			told[i] = append(told[i], records...)
			page, err := d.AuditLog(t.Context(), mei, admin.AuditLogFilter{})
			require.NoError(t, err)
			told[i] = append(told[i], fmt.Sprint(len(page.Records), " on record that he sees"))
			assert.Equal(t, broken, len(page.Records) == 0)
		}
		assert.Equal(t, told[1], told[0], "broken: %v", broken)
		assert.Greater(t, len(told[0]), 7)
	}
}

// Failure: F122
func TestSearchFindsOnlyWhatItsRightShows(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	for right, search := range map[admin.Right]admin.Filter{admin.SeeErrors: {LastError: "no such card"}, admin.SeeContent: {UserID: "7"}} {
		d := b.admin(admin.Options{Access: admin.AccessFunc(func(_ context.Context, _ admin.Actor, r admin.Right, on admin.Subject) bool {
			return r == admin.SeeEntries || r == right && on.Type != refundType
		})}) // Give the right for the empty type, too.
		search.CreatedFrom, search.Limit = time.Unix(1, 0), 1
		found, err := d.Entries(t.Context(), mei, search)
		require.NoError(t, err)
		require.Len(t, found.Entries, 1, "%s", right)
		assert.Equal(t, []any{mailType, ""}, []any{found.Entries[0].BusinessType, found.Next}, "%s", right)
		search.BusinessType = refundType
		_, err = d.Entries(t.Context(), mei, search)
		require.ErrorIs(t, err, admin.ErrNotAllowed, "%s", right)
	}
}

func TestRevealShowsTheErrorAsOtherViewsDo(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	for right, want := range map[admin.Right]string{admin.SeeErrors: "no such card “…”", "": `no such card "` + canary + `"`} {
		d := b.admin(admin.Options{Access: admin.AccessFunc(func(_ context.Context, _ admin.Actor, r admin.Right, _ admin.Subject) bool { return r != right })})
		e, err := d.Reveal(t.Context(), mei, b.dead.ID, why)
		require.NoError(t, err)
		assert.Equal(t, want, e.LastError, "without %q", right)
		assert.NotEmpty(t, e.Content)
	}
}

func TestGroupsThatMayNotBeAllAreToldToBeMore(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]bool{999: false, 1000: true} {
		b := newBed(t)
		for i := range n {
			b.store.sums = append(b.store.sums, processlog.CaseGroup{BusinessType: refundType, Fingerprint: processlog.Fingerprint{byte(i), byte(i >> 8), 1}, N: 1})
		}
		d := b.admin(admin.Options{Access: everything})
		groups, more, err := d.Groups(t.Context(), mei)
		require.NoError(t, err)
		assert.Equal(t, []any{n, want}, []any{len(groups), more})
		_, more, err = d.GroupsOf(t.Context(), mei, refundType, admin.Fingerprint{})
		require.NoError(t, err)
		assert.Equal(t, want, more)
	}
}

func TestTitleOfAFailureIsThatOfAllItsCases(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	d := b.admin(admin.Options{Access: everything})
	for _, order := range []string{"88123", "88124"} {
		text := "POST /refund: status 503 for order " + order
		b.store.sums = []processlog.CaseGroup{{BusinessType: refundType, Fingerprint: processlog.Fingerprint{1}, N: 2, Error: text}}
		groups, _, err := d.GroupsOf(t.Context(), mei, refundType, processlog.Fingerprint{1})
		require.NoError(t, err)
		require.Len(t, groups, 1)
		assert.Equal(t, []string{"POST /refund: status 503 for order #", text}, []string{groups[0].Title, groups[0].Error})
	}
}

func TestNoTypeIsPausedUnderANameThatNoneHas(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	nobody := admin.AccessFunc(func(context.Context, admin.Actor, admin.Right, admin.Subject) bool { return false })
	for _, access := range []admin.Access{everything, nobody} {
		d := b.admin(admin.Options{Access: access})
		for _, name := range []string{" refund", "refund ", "refund\n", "\u00a0refund", " ", ""} {
			for _, err := range []error{d.Pause(t.Context(), mei, name, why), d.Resume(t.Context(), mei, admin.Paused{Type: name, Version: 1}, why)} {
				var field *compensator.FieldError
				require.ErrorAs(t, err, &field, "%q", name)
				assert.Equal(t, "business type", field.Field)
			}
		}
	}
	settings, err := b.store.Settings(t.Context())
	require.NoError(t, err)
	assert.Empty(t, settings)
	assert.Empty(t, b.auditLog(true), "a mistyped name is not recorded")
}

// Failure: F124
func TestMistypedTypeIsNotPaused(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	d := b.admin(admin.Options{Access: everything})
	_, err := compensator.Handle(t.Context(), b.c, "invoice", func(context.Context, *compensator.Entry, payment) error { return nil }, nil)
	require.NoError(t, err)
	for typed, near := range map[string][]string{"refnud": {"refund"}, "REFUND": {"refund"}, "refunds_v2": {"refund"}, "mial": {"mail"}, "warehouse": nil} {
		var unknown *admin.UnknownTypeError
		err := d.Pause(t.Context(), mei, typed, why)
		require.ErrorAs(t, err, &unknown, typed)
		require.ErrorIs(t, err, compensator.ErrNotFound)
		assert.Equal(t, near, unknown.Near, typed)
		require.ErrorAs(t, d.CheckType(t.Context(), mei, typed), &unknown, typed)
	}
	var unknown *admin.UnknownTypeError
	blind := b.admin(admin.Options{Access: admin.AccessFunc(func(_ context.Context, _ admin.Actor, r admin.Right, on admin.Subject) bool {
		return r == admin.Pause || on.Type == mailType
	})})
	require.ErrorAs(t, blind.Pause(t.Context(), mei, "refnud", why), &unknown)
	assert.Empty(t, unknown.Near, "hidden types are not suggested")
	settings, err := b.store.Settings(t.Context())
	require.NoError(t, err)
	assert.Empty(t, settings)

	require.NoError(t, d.Pause(t.Context(), mei, "invoice", why))
	require.NoError(t, d.PauseWith(t.Context(), mei, "warehouse", admin.PauseOptions{Ahead: true}, why))
	paused, err := d.Paused(t.Context(), mei)
	require.NoError(t, err)
	assert.Len(t, paused, 2)
}

// Computing an amount reads content and calls a function of the service.
// Failure: F122
func TestNothingIsWeighedThatMayNotBeSeen(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	before := b.weighed.Load()
	d := b.admin(admin.Options{Access: mailOnly})
	lines, err := d.Lines(t.Context(), mei, []compensator.EntryID{b.pending.ID})
	require.NoError(t, err)
	require.Empty(t, lines)
	_, err = d.Change(t.Context(), mei, admin.Change{Action: admin.Cancel, Entries: []admin.Seen{{ID: b.pending.ID, Version: b.pending.Version}}, Why: why})
	require.NoError(t, err)
	assert.Equal(t, before, b.weighed.Load())
	lines, err = b.admin(admin.Options{Access: everything}).Lines(t.Context(), mei, []compensator.EntryID{b.pending.ID})
	require.NoError(t, err)
	assert.True(t, slices.ContainsFunc(lines, func(l admin.Line) bool { return l.Amount.Minor == 100 }))
	assert.Greater(t, b.weighed.Load(), before)
}

// Failure: F130
func TestOverviewIsThereForWhoSeesATypeWithNothingOpen(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	host, d := b.admin(admin.Options{Access: everything}), b.admin(admin.Options{Access: mailOnly})
	answers, err := host.Change(t.Context(), mei, admin.Change{Action: admin.SettleManually, Entries: []admin.Seen{{ID: b.otherDead.ID, Version: b.otherDead.Version}}, Why: why})
	require.NoError(t, errors.Join(append(answers, err)...))
	found, err := d.Overview(t.Context(), mei)
	require.NoError(t, err)
	assert.Empty(t, found.Types)
	assert.Nil(t, found.Health)
	require.NoError(t, d.Pause(t.Context(), mei, mailType, why))
	found, err = d.Overview(t.Context(), mei)
	require.NoError(t, err)
	require.Len(t, found.Types, 1)
	assert.Equal(t, mei.ID, found.Types[0].Paused.Actor)
	nobody := b.admin(admin.Options{Access: admin.AccessFunc(func(_ context.Context, _ admin.Actor, _ admin.Right, on admin.Subject) bool {
		return on.Type == "no such type"
	})})
	_, err = nobody.Overview(t.Context(), mei)
	require.ErrorIs(t, err, admin.ErrNotAllowed)
}

// Failure: F122
func TestOpenBreakerIsToldToWhoMaySeeItsTypeAlone(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.breaks(refundType, "hunter2")
	open := b.c.Health(t.Context()).OpenBreakers[0]
	told := func(access admin.AccessFunc) map[string]*admin.Broken {
		found, err := b.admin(admin.Options{Access: access}).Overview(t.Context(), mei)
		require.NoError(t, err)
		breakers := make(map[string]*admin.Broken)
		for _, of := range found.Types {
			breakers[of.Type] = of.Broken
		}
		return breakers
	}
	full := &admin.Broken{Type: refundType, Since: open.Since, ProbeAt: open.ProbeAt, Error: `no answer about card "` + canary + `", password=…`}
	assert.Equal(t, map[string]*admin.Broken{refundType: full, mailType: nil}, told(everything))
	masked := &admin.Broken{Type: refundType, Since: open.Since, ProbeAt: open.ProbeAt, Error: "no answer about card “…”, password=…"}
	assert.Equal(t, map[string]*admin.Broken{refundType: masked, mailType: nil}, told(func(_ context.Context, _ admin.Actor, r admin.Right, _ admin.Subject) bool {
		return r == admin.SeeOverview
	}))
	assert.Equal(t, map[string]*admin.Broken{mailType: nil}, told(mailOnly), "as if there were none")
	page, err := admin.Of(b.c).List(t.Context(), admin.Filter{BusinessType: refundType})
	require.NoError(t, err)
	for _, e := range page.Entries {
		if e.State != compensator.Succeeded {
			_, err := b.c.Cancel(t.Context(), e.ID)
			require.NoError(t, err)
		}
	}
	assert.Equal(t, full, told(everything)[refundType])
}

// An export with an empty list of types is not refused, so it adds no record.
func TestExportThatIsRefusedIsOnRecord(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	having := func(rights ...admin.Right) *admin.Admin {
		return b.admin(admin.Options{Access: admin.AccessFunc(func(_ context.Context, _ admin.Actor, r admin.Right, _ admin.Subject) bool {
			return slices.Contains(rights, r)
		})})
	}
	looks, exports := having(admin.SeeEntries), having(admin.SeeEntries, admin.Export)
	for i, tried := range []struct {
		d      *admin.Admin
		filter admin.Filter
	}{
		{looks, admin.Filter{}},
		{looks, admin.Filter{BusinessType: refundType}},
		{looks, admin.Filter{BusinessTypes: []string{refundType}, States: []compensator.State{compensator.Dead}}},
		{having(admin.Export), admin.Filter{BusinessType: refundType}},
		{exports, admin.Filter{BusinessType: refundType, LastError: "card"}},
		{exports, admin.Filter{UserID: "7"}},
	} {
		page, err := tried.d.Export(t.Context(), mei, tried.filter, why)
		require.ErrorIs(t, err, admin.ErrNotAllowed, "%+v", tried.filter)
		assert.Empty(t, page)
		require.Len(t, b.auditLog(true), i+1, "%+v", tried.filter)
		assert.Equal(t, []string{"export", "[OPS-988] PSP is back"}, []string{b.auditLog(true)[0].Action, b.auditLog(true)[0].Reason})
	}
	_, err := looks.Export(t.Context(), mei, admin.Filter{BusinessTypes: []string{}}, why)
	require.NoError(t, err)
	assert.Len(t, b.auditLog(true), 6)
}

func TestRefusalMakesNoType(t *testing.T) {
	t.Parallel()
	for _, sees := range []bool{false, true} {
		b := newBed(t)
		d := b.admin(admin.Options{Access: admin.AccessFunc(func(_ context.Context, _ admin.Actor, r admin.Right, _ admin.Subject) bool {
			return sees && r == admin.SeeOverview
		})})
		for _, name := range []string{"no such type", refundType} {
			require.ErrorIs(t, d.Pause(t.Context(), mei, name, why), admin.ErrNotAllowed)
			require.ErrorIs(t, d.Resume(t.Context(), mei, admin.Paused{Type: name, Version: 1}, why), admin.ErrNotAllowed)
			_, err := d.Export(t.Context(), mei, admin.Filter{BusinessType: name}, why)
			require.ErrorIs(t, err, admin.ErrNotAllowed)
		}
		types, err := b.store.Types(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []string{mailType, refundType}, types)
		named := make(map[string]int)
		for _, r := range b.auditLog(true) {
			named[r.BusinessType+"/"+r.Subject]++
		}
		want := map[string]int{"/no such type": 3, "/refund": 3}
		if sees {
			want = map[string]int{"/no such type": 3, "refund/": 3}
		}
		assert.Equal(t, want, named)
	}
}

// The error of a driver may contain an address and a password.
func TestWhatServersSayIsShownAsErrorsAre(t *testing.T) {
	t.Parallel()
	for right, want := range map[admin.Right]string{"": "dial root:…@tcp(db:3306) for …@example.com: Error 1045", admin.SeeErrors: "dial root:…@tcp(db:#) for …@example.com: Error 1045"} {
		b := newBed(t)
		b.store.heads = func(context.Context) error {
			return errors.New("dial root:hunter2@tcp(db:3306) for mei@example.com: Error 1045")
		}
		d := b.admin(admin.Options{Access: admin.AccessFunc(func(_ context.Context, _ admin.Actor, r admin.Right, _ admin.Subject) bool { return r != right })})
		found, err := d.Overview(t.Context(), mei)
		require.NoError(t, err)
		assert.Contains(t, found.Health.Database, want, "without %q", right)
		assert.Empty(t, found.Health.Queue)
	}
}

func TestPauseOfATypeThatHasGoneIsInTheAuditLogOfWhoMaySeeIt(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	host := admin.Actor{ID: "host"}
	require.NoError(t, b.admin(admin.Options{Access: everything}).PauseWith(t.Context(), host, "gone", admin.PauseOptions{Ahead: true}, why))
	for range 1000 {
		require.NoError(t, b.store.Operate(t.Context(), processlog.Operation{Actor: "eve", Action: "note", BusinessType: mailType}))
	}
	d := b.admin(admin.Options{Access: admin.AccessFunc(func(_ context.Context, _ admin.Actor, _ admin.Right, on admin.Subject) bool {
		return on.Type != refundType
	})})
	page, err := d.AuditLog(t.Context(), mei, admin.AuditLogFilter{Actor: host.ID})
	require.NoError(t, err)
	require.Len(t, page.Records, 1)
	assert.Equal(t, []string{"pause", "gone"}, []string{page.Records[0].Action, page.Records[0].BusinessType})
}

func TestErrorsOfAttemptsAreMaskedAsOthersAre(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.breaks(refundType, canary)
	page, err := admin.Of(b.c).List(t.Context(), admin.Filter{BusinessType: refundType, States: []compensator.State{compensator.Pending, compensator.Retrying}})
	require.NoError(t, err)
	var down compensator.EntryID
	for _, e := range page.Entries {
		if e.LastError != "" {
			down = e.ID
		}
	}
	seen := func(rights ...admin.Right) (admin.EntryView, error) {
		access := admin.AccessFunc(func(_ context.Context, _ admin.Actor, r admin.Right, _ admin.Subject) bool {
			return slices.Contains(rights, r)
		})
		return b.admin(admin.Options{Access: access}).Entry(t.Context(), mei, down)
	}
	view, err := seen(admin.SeeEntries)
	require.NoError(t, err)
	require.Len(t, view.Attempts, 1)
	require.NotContains(t, view.Attempts[0].Error, canary, "without SeeErrors, quoted words are masked")
	require.Contains(t, view.Attempts[0].Error, "no answer about card")
	view, err = seen(admin.SeeEntries, admin.SeeErrors)
	require.NoError(t, err)
	require.Contains(t, view.Attempts[0].Error, `"`+canary+`"`)
	require.NotContains(t, view.Attempts[0].Error, "password="+canary, "a password was removed before the attempt was stored")
	_, err = seen(admin.SeeErrors)
	require.ErrorIs(t, err, compensator.ErrNotFound)
}
