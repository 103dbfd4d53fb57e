package desk_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/desk"
	"github.com/compensator-go/compensator/processlog"
)

// having is an Access of some rights, of any type.
func having(rights ...desk.Right) desk.AccessFunc {
	return func(_ context.Context, _ desk.Actor, r desk.Right, _ desk.Subject) bool {
		for _, right := range rights {
			if r == right {
				return true
			}
		}
		return false
	}
}

// TestTrailShowsErrorsAsOtherViewsDo: how an entry was before and after a change, error and all, is part of it.
func TestTrailShowsErrorsAsOtherViewsDo(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	host := b.desk(desk.Options{Access: everything})
	require.NoError(t, joined(host.Change(t.Context(), mei, desk.Change{Action: desk.SettleByHand, Entries: []desk.Seen{{ID: b.dead.ID, Version: b.dead.Version}}, Why: why})))
	for want, access := range map[string]desk.Access{"no such card “…”": having(desk.SeeTrail), `no such card "` + canary + `"`: having(desk.SeeTrail, desk.SeeErrors)} {
		page, err := b.desk(desk.Options{Access: access}).Trail(t.Context(), mei, desk.TrailFilter{EntryID: b.dead.ID})
		require.NoError(t, err)
		require.Len(t, page.Records, 1)
		assert.Equal(t, want, page.Records[0].Before.LastError)
	}
}

// TestWhoMayTakeCasesGivesBackWhatIsHisAlone, as he saw it; and takes what his limit lets him.
func TestWhoMayTakeCasesGivesBackWhatIsHisAlone(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	takes := b.desk(desk.Options{Access: having(desk.SeeEntries, desk.TakeCase)})
	seen := func() []desk.SeenCase { return []desk.SeenCase{{EntryID: b.dead.ID, Version: b.caseOf().Version}} }
	bob := desk.Actor{ID: "bob"}
	require.NoError(t, joined(takes.TakeCases(t.Context(), bob, seen(), why)))
	require.ErrorIs(t, joined(takes.AssignCases(t.Context(), mei, seen(), "", why)), desk.ErrNotAllowed, "bob has it")
	require.Equal(t, "bob", b.caseOf().Owner)
	stale := []desk.SeenCase{{EntryID: b.dead.ID, Version: b.caseOf().Version - 1}}
	require.ErrorIs(t, joined(takes.AssignCases(t.Context(), bob, stale, "", why)), desk.ErrNotAllowed)
	require.NoError(t, joined(takes.AssignCases(t.Context(), bob, seen(), "", why)))
	require.Empty(t, b.caseOf().Owner)

	small := b.desk(desk.Options{Access: desk.AccessFunc(func(_ context.Context, _ desk.Actor, r desk.Right, on desk.Subject) bool {
		return r == desk.SeeEntries || on.Amount.Known() && on.Amount.Minor < 12900
	})})
	require.ErrorIs(t, joined(small.TakeCases(t.Context(), mei, seen(), why)), desk.ErrNotAllowed, "¥129.00")
	large := b.desk(desk.Options{Access: desk.AccessFunc(func(_ context.Context, _ desk.Actor, r desk.Right, on desk.Subject) bool {
		return r == desk.SeeEntries || on.Amount == compensator.Amount{Minor: 12900, Currency: "CNY"}
	})})
	require.NoError(t, joined(large.TakeCases(t.Context(), mei, seen(), why)))
}

// TestRefusalNamesTheEntryThatWasNamed, also one that may not be seen.
func TestRefusalNamesTheEntryThatWasNamed(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	require.ErrorIs(t, b.desk(desk.Options{Access: mailOnly}).Note(t.Context(), mei, b.dead.ID, why), compensator.ErrNotFound)
	require.Len(t, b.trail(true), 1)
	assert.Equal(t, []any{b.dead.ID, ""}, []any{b.trail(true)[0].EntryID, b.trail(true)[0].BusinessType})
}

// TestReadOnlyDeskOffersNothingThatIsWrittenDown, to whoever may all.
func TestReadOnlyDeskOffersNothingThatIsWrittenDown(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	d := b.desk(desk.Options{Access: everything, ReadOnly: true})
	var may []desk.Right
	for _, right := range desk.Rights {
		if d.May(t.Context(), mei, right, desk.Subject{Type: refundType}) {
			may = append(may, right)
		}
	}
	assert.Equal(t, []desk.Right{desk.SeeOverview, desk.SeeEntries, desk.SeeErrors, desk.SeeTrail}, may)
}

// TestDelayIsBounded as the log bounds it, both ways.
func TestDelayIsBounded(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	d := b.desk(desk.Options{Access: everything})
	for _, delay := range []time.Duration{-1, processlog.MaxDelay + 1} {
		_, err := d.Change(t.Context(), mei, desk.Change{Action: desk.Requeue, Entries: []desk.Seen{{ID: b.dead.ID, Version: b.dead.Version}}, Why: why, Delay: delay})
		var refused *compensator.FieldError
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, "delay", refused.Field)
	}
}

// TestWhatWasSettledByHandIsDoneAgainByRight: somebody has paid by hand, and it may be paid twice.
func TestWhatWasSettledByHandIsDoneAgainByRight(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	settles := b.desk(desk.Options{Access: having(desk.SeeEntries, desk.SettleByHand, desk.Requeue)})
	change := func(action desk.Right) error {
		e, err := b.c.Get(t.Context(), b.dead.ID)
		require.NoError(t, err)
		return joined(settles.Change(t.Context(), mei, desk.Change{Action: action, Entries: []desk.Seen{{ID: e.ID, Version: e.Version}}, Why: why}))
	}
	require.NoError(t, change(desk.SettleByHand))
	require.ErrorIs(t, change(desk.Requeue), desk.ErrNotAllowed)
}

// TestSumsOfATypeThatTheDeskHasNotKnownOfAreShownToWhoMaySeeIt alone: the log may have one since.
func TestSumsOfATypeThatTheDeskHasNotKnownOfAreShownToWhoMaySeeIt(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.store.sums = []processlog.CaseGroup{{BusinessType: "since", N: 1}, {BusinessType: mailType, N: 1}}
	groups, _, err := b.desk(desk.Options{Access: mailOnly}).Groups(t.Context(), mei)
	require.NoError(t, err)
	require.Len(t, groups, 1)
	assert.Equal(t, mailType, groups[0].Type)
}
