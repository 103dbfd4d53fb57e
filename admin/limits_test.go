package admin_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/processlog"
)

func having(rights ...admin.Right) admin.AccessFunc {
	return func(_ context.Context, _ admin.Actor, r admin.Right, _ admin.Subject) bool {
		for _, right := range rights {
			if r == right {
				return true
			}
		}
		return false
	}
}

func TestAuditLogShowsErrorsAsOtherViewsDo(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	host := b.admin(admin.Options{Access: everything})
	require.NoError(t, joined(host.Change(t.Context(), mei, admin.Change{Action: admin.SettleManually, Entries: []admin.Seen{{ID: b.dead.ID, Version: b.dead.Version}}, Why: why})))
	for want, access := range map[string]admin.Access{"no such card “…”": having(admin.SeeAuditLog), `no such card "` + canary + `"`: having(admin.SeeAuditLog, admin.SeeErrors)} {
		page, err := b.admin(admin.Options{Access: access}).AuditLog(t.Context(), mei, admin.AuditLogFilter{EntryID: b.dead.ID})
		require.NoError(t, err)
		require.Len(t, page.Records, 1)
		assert.Equal(t, want, page.Records[0].Before.LastError)
	}
}

func TestWhoMayTakeCasesGivesBackWhatIsHisAlone(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	takes := b.admin(admin.Options{Access: having(admin.SeeEntries, admin.TakeCase)})
	seen := func() []admin.SeenCase { return []admin.SeenCase{{EntryID: b.dead.ID, Version: b.caseOf().Version}} }
	bob := admin.Actor{ID: "bob"}
	require.NoError(t, joined(takes.TakeCases(t.Context(), bob, seen(), why)))
	require.ErrorIs(t, joined(takes.AssignCases(t.Context(), mei, seen(), "", why)), admin.ErrNotAllowed, "bob has it")
	require.Equal(t, "bob", b.caseOf().Owner)
	stale := []admin.SeenCase{{EntryID: b.dead.ID, Version: b.caseOf().Version - 1}}
	require.ErrorIs(t, joined(takes.AssignCases(t.Context(), bob, stale, "", why)), admin.ErrNotAllowed)
	require.NoError(t, joined(takes.AssignCases(t.Context(), bob, seen(), "", why)))
	require.Empty(t, b.caseOf().Owner)

	small := b.admin(admin.Options{Access: admin.AccessFunc(func(_ context.Context, _ admin.Actor, r admin.Right, on admin.Subject) bool {
		return r == admin.SeeEntries || on.Amount.Known() && on.Amount.Minor < 12900
	})})
	require.ErrorIs(t, joined(small.TakeCases(t.Context(), mei, seen(), why)), admin.ErrNotAllowed, "¥129.00")
	large := b.admin(admin.Options{Access: admin.AccessFunc(func(_ context.Context, _ admin.Actor, r admin.Right, on admin.Subject) bool {
		return r == admin.SeeEntries || on.Amount == compensator.Amount{Minor: 12900, Currency: "CNY"}
	})})
	require.NoError(t, joined(large.TakeCases(t.Context(), mei, seen(), why)))
}

func TestRefusalNamesTheEntryThatWasNamed(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	require.ErrorIs(t, b.admin(admin.Options{Access: mailOnly}).Note(t.Context(), mei, b.dead.ID, why), compensator.ErrNotFound)
	require.Len(t, b.auditLog(true), 1)
	assert.Equal(t, []any{b.dead.ID, ""}, []any{b.auditLog(true)[0].EntryID, b.auditLog(true)[0].BusinessType})
}

func TestReadOnlyAdminOffersNothingThatIsWrittenDown(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	d := b.admin(admin.Options{Access: everything, ReadOnly: true})
	var may []admin.Right
	for _, right := range admin.Rights {
		if d.May(t.Context(), mei, right, admin.Subject{Type: refundType}) {
			may = append(may, right)
		}
	}
	assert.Equal(t, []admin.Right{admin.SeeOverview, admin.SeeEntries, admin.SeeErrors, admin.SeeAuditLog}, may)
}

func TestDelayIsBounded(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	d := b.admin(admin.Options{Access: everything})
	for _, delay := range []time.Duration{-1, processlog.MaxDelay + 1} {
		_, err := d.Change(t.Context(), mei, admin.Change{Action: admin.Requeue, Entries: []admin.Seen{{ID: b.dead.ID, Version: b.dead.Version}}, Why: why, Delay: delay})
		var refused *compensator.FieldError
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, "delay", refused.Field)
	}
}

// A person may have paid manually, so a requeue might pay twice.
func TestWhatWasSettledManuallyIsDoneAgainByRight(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	settles := b.admin(admin.Options{Access: having(admin.SeeEntries, admin.SettleManually, admin.Requeue)})
	change := func(action admin.Right) error {
		e, err := b.c.Get(t.Context(), b.dead.ID)
		require.NoError(t, err)
		return joined(settles.Change(t.Context(), mei, admin.Change{Action: action, Entries: []admin.Seen{{ID: e.ID, Version: e.Version}}, Why: why}))
	}
	require.NoError(t, change(admin.SettleManually))
	require.ErrorIs(t, change(admin.Requeue), admin.ErrNotAllowed)
}

func TestSumsOfATypeThatTheAdminHasNotKnownOfAreShownToWhoMaySeeIt(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.store.sums = []processlog.CaseGroup{{BusinessType: "since", N: 1}, {BusinessType: mailType, N: 1}}
	groups, _, err := b.admin(admin.Options{Access: mailOnly}).Groups(t.Context(), mei)
	require.NoError(t, err)
	require.Len(t, groups, 1)
	assert.Equal(t, mailType, groups[0].Type)
}
