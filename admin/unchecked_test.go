package admin_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/compensatortest"
)

// transfers registers a type whose handler blocks until its time limit.
func transfers(t *testing.T, b *bed, attempts int) *compensator.Type[payment] {
	t.Helper()
	typ, err := compensator.Handle(t.Context(), b.c, fmt.Sprint("transfer-", attempts), func(ctx context.Context, _ *compensator.Entry, p payment) error {
		if p.Order == "refused" {
			return compensator.Permanent(errors.New("no such account"))
		}
		<-ctx.Done()
		return errors.Join(context.Cause(ctx), errors.New("account 8842 does not answer"))
	}, &compensator.HandlerConfig[payment]{Timeout: 20 * time.Millisecond, MaxAttempts: attempts})
	require.NoError(t, err)
	return typ
}

// attempted ignores an attempt that times out before its handler begins.
func attempted(t *testing.T, b *bed, typ *compensator.Type[payment], order, key string) compensator.Entry {
	t.Helper()
	e := compensatortest.Call(t, b.c, typ, payment{Order: order}, compensator.Options{IdempotencyKey: compensator.IdempotencyKey(key)})
	for e.State == compensator.Pending {
		compensatortest.Elapse(t, b.c, time.Minute)
		e = compensatortest.Attempt(t, b.c, e.ID)
	}
	return e
}

// Failure: F119
func TestUnknownOutcomeWaitsForSomebodysWord(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	once, often := transfers(t, b, 1), transfers(t, b, 9)
	n := 0
	call := func(typ *compensator.Type[payment]) compensator.EntryID {
		n++
		return attempted(t, b, typ, "hangs", fmt.Sprint("hangs-", n)).ID
	}
	dead := func() compensator.EntryID { return call(once) }
	states := map[string]func() compensator.EntryID{
		"dead":     dead,
		"retrying": func() compensator.EntryID { return call(often) },
		"cancelled": func() compensator.EntryID {
			id := dead()
			_, err := b.c.Cancel(t.Context(), id)
			require.NoError(t, err)
			return id
		},
		"dead, of a lost attempt before the last": func() compensator.EntryID {
			n++
			id := attempted(t, b, once, "refused", fmt.Sprint("refused-", n)).ID
			keeps := b.store.keeps
			b.store.keeps = func(c *admin.Case) {
				if keeps != nil {
					keeps(c)
				}
				if c.EntryID == id {
					c.Kind = admin.CaseUnknown
				}
			}
			return id
		},
	}
	blind := b.admin(admin.Options{Access: admin.AccessFunc(func(_ context.Context, _ admin.Actor, r admin.Right, _ admin.Subject) bool {
		return r != admin.SeeErrors
	})})
	acted := 0
	for state, of := range states {
		for _, action := range changes {
			id := of()
			lines, err := blind.Lines(t.Context(), mei, []compensator.EntryID{id})
			require.NoError(t, err)
			require.True(t, lines[0].OutcomeUnknown, state)
			page, err := blind.EntryLines(t.Context(), mei, admin.Filter{BusinessType: lines[0].Entry.BusinessType, Limit: 100})
			require.NoError(t, err)
			for _, line := range page.Lines {
				assert.True(t, line.OutcomeUnknown || line.Entry.ID != id, "%s in a list", state)
			}
			view, err := blind.Entry(t.Context(), mei, id)
			require.NoError(t, err)
			require.True(t, view.OutcomeUnknown, state)
			known := b.die(mailType, compensator.Options{IdempotencyKey: compensator.IdempotencyKey(fmt.Sprint("known-", n))})
			ch := admin.Change{Action: action, Why: why, Again: true, Entries: []admin.Seen{{ID: known.ID, Version: known.Version}, {ID: id, Version: lines[0].Entry.Version}}}
			before := b.standing()
			answers, err := blind.Change(t.Context(), mei, ch)
			var refused *admin.UncheckedError
			if action == admin.Reschedule || !blind.Offers(t.Context(), mei, action, lines[0]) {
				require.NoError(t, err, "%s of %s asks nothing", action, state)
				continue
			}
			require.ErrorAs(t, err, &refused, "%s of %s", action, state)
			assert.Nil(t, answers)
			assert.Equal(t, []compensator.EntryID{id}, refused.Unknown, "%s of %s", action, state)
			assert.Empty(t, refused.Finished)
			assert.Contains(t, err.Error(), id.String())
			assert.Equal(t, before, b.standing(), "no entry was changed, not even one of known outcome")
			ch.Checked = true
			require.NoError(t, joined(blind.Change(t.Context(), mei, ch)), "%s of %s", action, state)
			acted++
		}
	}
	assert.Equal(t, 5+5+5+2, acted, "dead both ways, retrying and cancelled")
}

// Failure: F119
func TestAttemptUnderWayIsOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	begun, goes := make(chan struct{}, 1), make(chan struct{})
	slow, err := compensator.Handle(t.Context(), b.c, "slow", func(context.Context, *compensator.Entry, payment) error {
		begun <- struct{}{}
		<-goes
		return nil
	}, nil)
	require.NoError(t, err)
	var id compensator.EntryID
	require.NoError(t, b.c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		receipt, err := slow.Record(ctx, tx, payment{}, compensator.Options{IdempotencyKey: "slow"})
		if err == nil {
			id = receipt.ID()
		}
		return err
	}))
	d := b.admin(admin.Options{Access: everything})
	line := func() admin.Line {
		lines, err := d.Lines(t.Context(), mei, []compensator.EntryID{id})
		require.NoError(t, err)
		require.Len(t, lines, 1)
		return lines[0]
	}
	waiting := line()
	assert.False(t, waiting.OutcomeUnknown)
	compensatortest.Run(t, b.c)
	<-begun
	assert.True(t, line().OutcomeUnknown)
	ch := admin.Change{Action: admin.Cancel, Entries: []admin.Seen{{ID: id, Version: waiting.Entry.Version}}, Why: why}
	require.ErrorIs(t, joined(d.Change(t.Context(), mei, ch)), admin.ErrChanged)
	ch.Entries[0].Version = line().Entry.Version
	var refused *admin.UncheckedError
	require.ErrorAs(t, joined(d.Change(t.Context(), mei, ch)), &refused)

	// The running attempt keeps its lease.
	later := admin.Change{Action: admin.Reschedule, Entries: ch.Entries, Why: why, Delay: time.Hour}
	require.NoError(t, joined(d.Change(t.Context(), mei, later)))
	require.Zero(t, line().Entry.DeliveryCount)
	assert.True(t, line().OutcomeUnknown)
	view, err := d.Entry(t.Context(), mei, id)
	require.NoError(t, err)
	assert.True(t, view.OutcomeUnknown)
	ch.Entries[0].Version = line().Entry.Version
	for _, action := range []admin.Right{admin.Cancel, admin.Complete} {
		ch.Action = action
		require.ErrorAs(t, joined(d.Change(t.Context(), mei, ch)), &refused, string(action))
	}
	ch.Action, ch.Checked = admin.Cancel, true
	require.NoError(t, joined(d.Change(t.Context(), mei, ch)))
	assert.Equal(t, compensator.Cancelled, line().Entry.State)
	close(goes)
}

// Failure: F119
func TestAttemptThatAChangeDroppedIsOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	begun, goes := make(chan struct{}, 10), make(chan struct{})
	slow, err := compensator.Handle(t.Context(), b.c, "slow", func(context.Context, *compensator.Entry, payment) error {
		begun <- struct{}{}
		<-goes
		return nil
	}, nil)
	require.NoError(t, err)
	d := b.admin(admin.Options{Access: everything})
	ways := map[string]func(id compensator.EntryID, seen []admin.Seen) error{
		"a person reschedules it": func(_ compensator.EntryID, seen []admin.Seen) error {
			return joined(d.Change(t.Context(), mei, admin.Change{Action: admin.Reschedule, Entries: seen, Why: why, Delay: time.Hour}))
		},
		"a person cancels it": func(_ compensator.EntryID, seen []admin.Seen) error {
			return joined(d.Change(t.Context(), mei, admin.Change{Action: admin.Cancel, Entries: seen, Why: why, Checked: true}))
		},
		"a service reschedules it": func(id compensator.EntryID, _ []admin.Seen) error {
			return b.c.Reschedule(t.Context(), id, time.Hour)
		},
		"a service cancels it": func(id compensator.EntryID, _ []admin.Seen) error {
			_, err := b.c.Cancel(t.Context(), id)
			return err
		},
	}
	ids := make(map[string]compensator.EntryID)
	require.NoError(t, b.c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		for way := range ways {
			receipt, err := slow.Record(ctx, tx, payment{}, compensator.Options{IdempotencyKey: compensator.IdempotencyKey(way)})
			if err != nil {
				return err
			}
			ids[way] = receipt.ID()
		}
		return nil
	}))
	compensatortest.Run(t, b.c)
	for range ways {
		<-begun
	}
	seen := func(id compensator.EntryID) (admin.Line, []admin.Seen) {
		lines, err := d.Lines(t.Context(), mei, []compensator.EntryID{id})
		require.NoError(t, err)
		return lines[0], []admin.Seen{{ID: id, Version: lines[0].Entry.Version}}
	}
	for way, drop := range ways {
		_, held := seen(ids[way])
		require.NoError(t, drop(ids[way], held), way)
		line, now := seen(ids[way])
		assert.True(t, line.OutcomeUnknown, way)
		for _, action := range changes {
			if action == admin.Reschedule || !d.Offers(t.Context(), mei, action, line) {
				continue
			}
			var refused *admin.UncheckedError
			require.ErrorAs(t, joined(d.Change(t.Context(), mei, admin.Change{Action: action, Entries: now, Why: why, Again: true})), &refused, "%s: %s", way, action)
			assert.Equal(t, []compensator.EntryID{ids[way]}, refused.Unknown, "%s: %s", way, action)
		}
	}
	close(goes)
}

// Failure: F119
func TestFinishedEntriesRunAgainOnlyWhenThatIsSaid(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	states := inEachState(t, b)
	d := b.admin(admin.Options{Access: everything})
	for state, of := range states {
		for _, action := range changes {
			id := of()
			lines, err := d.Lines(t.Context(), mei, []compensator.EntryID{id})
			require.NoError(t, err)
			wants := (action == admin.Requeue || action == admin.Compensate) && lines[0].Entry.State.Terminal() && !strings.HasPrefix(state, "dead")
			offered := d.Offers(t.Context(), mei, action, lines[0])
			ch := admin.Change{Action: action, Why: why, Entries: []admin.Seen{{ID: id, Version: lines[0].Entry.Version}}}
			_, err = d.Change(t.Context(), mei, ch)
			var refused *admin.UncheckedError
			if !wants || !offered {
				require.NoError(t, err, "%s of %s", action, state)
				continue
			}
			require.ErrorAs(t, err, &refused, "%s of %s", action, state)
			assert.Equal(t, []compensator.EntryID{id}, refused.Finished)
			assert.Contains(t, err.Error(), "Again")
			ch.Again = true
			require.NoError(t, joined(d.Change(t.Context(), mei, ch)), "%s of %s", action, state)
		}
	}
}

// Failure: F119
func TestNobodyHearsOfUnknownOutcomesThatHeMayNotChange(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	hangs := attempted(t, b, transfers(t, b, 1), "hangs", "hangs")
	ch := admin.Change{Action: admin.Requeue, Why: why, Entries: []admin.Seen{{ID: hangs.ID, Version: hangs.Version}}}
	d := b.admin(admin.Options{Access: admin.AccessFunc(func(_ context.Context, _ admin.Actor, r admin.Right, _ admin.Subject) bool {
		return r == admin.SeeEntries
	})})
	require.ErrorIs(t, joined(d.Change(t.Context(), mei, ch)), admin.ErrNotAllowed)
	d = b.admin(admin.Options{Access: admin.AccessFunc(func(_ context.Context, _ admin.Actor, r admin.Right, _ admin.Subject) bool {
		return r != admin.SeeEntries
	})})
	require.ErrorIs(t, joined(d.Change(t.Context(), mei, ch)), compensator.ErrNotFound)
	ch.Entries[0].Version++
	require.ErrorIs(t, joined(b.admin(admin.Options{Access: everything}).Change(t.Context(), mei, ch)), admin.ErrChanged)
}

func TestManyUncheckedEntriesAreCountedAndTheFirstNamed(t *testing.T) {
	t.Parallel()
	var e admin.UncheckedError
	for i := range 58 {
		id, err := compensator.ParseEntryID(fmt.Sprint(101 + i))
		require.NoError(t, err)
		e.Unknown = append(e.Unknown, id)
	}
	assert.Equal(t, "admin: nothing was done: the outcome of 58 entries is unknown (101, 102, 103, 104, 105, 106, 107, 108, 109, 110 and 48 more), and Checked is not set", e.Error())
}
