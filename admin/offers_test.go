package admin_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/compensatortest"
)

var changes = []admin.Right{admin.Requeue, admin.Compensate, admin.SettleManually, admin.Cancel, admin.Complete, admin.Reschedule}

func inEachState(t *testing.T, b *bed) map[string]func() compensator.EntryID {
	var n int
	saga, err := compensator.Handle(t.Context(), b.c, "saga", func(context.Context, *compensator.Entry, payment) error {
		return compensator.Permanent(errors.New("no"))
	}, &compensator.HandlerConfig[payment]{MaxCompensateAttempts: 1, Compensate: func(_ context.Context, e *compensator.Entry, _ payment) error {
		var p payment
		if err := e.Decode(&p); err != nil || p.Order == "dies" {
			return errors.Join(errors.New("nor back"), err)
		}
		return nil
	}})
	require.NoError(t, err)
	opts := func() compensator.Options {
		n++
		return compensator.Options{IdempotencyKey: compensator.IdempotencyKey(fmt.Sprint("offered-", n))}
	}
	called := func(typ *compensator.Type[payment], order string, attempts int) func() compensator.EntryID {
		return func() compensator.EntryID {
			e := compensatortest.Call(t, b.c, typ, payment{Order: order}, opts())
			for range attempts - 1 {
				e = compensatortest.Attempt(t, b.c, e.ID)
			}
			return e.ID
		}
	}
	pending := func() (id compensator.EntryID) {
		require.NoError(t, b.c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
			receipt, err := b.types[refundType].Record(ctx, tx, payment{}, opts())
			if err == nil {
				id = receipt.ID()
			}
			return err
		}))
		return id
	}
	by := admin.AuditInfo{Actor: "host", Reason: "for a test"}
	then := func(of func() compensator.EntryID, does func(ctx context.Context, id compensator.EntryID) error) func() compensator.EntryID {
		return func() compensator.EntryID {
			id := of()
			require.NoError(t, does(t.Context(), id))
			return id
		}
	}
	states := map[string]func() compensator.EntryID{
		"pending":         pending,
		"retrying":        called(b.types[refundType], "tries", 1),
		"dead":            called(b.types[refundType], "dies", 1),
		"succeeded":       called(b.types[refundType], "lives", 1),
		"compensating":    called(saga, "lives", 1),
		"compensated":     called(saga, "lives", 2),
		"dead going back": called(saga, "dies", 2),
		"cancelled": then(pending, func(ctx context.Context, id compensator.EntryID) error {
			_, err := b.c.Cancel(ctx, id)
			return err
		}),
		"settled by hand": then(called(b.types[refundType], "dies", 1), func(ctx context.Context, id compensator.EntryID) error {
			return admin.Of(b.c).SettleManually(ctx, id, by)
		}),
	}
	for _, ended := range []string{"dead", "succeeded", "compensated", "dead going back", "cancelled", "settled by hand"} {
		states[ended+", erased"] = then(states[ended], func(ctx context.Context, id compensator.EntryID) error {
			_, err := admin.Of(b.c).Erase(ctx, id, by)
			return err
		})
	}
	return states
}

func TestWhatIsOfferedIsWhatChangeDoes(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	states := inEachState(t, b)
	for name, opts := range map[string]admin.Options{
		"all":       {Access: everything},
		"read only": {Access: everything, ReadOnly: true},
		"not again": {Access: admin.AccessFunc(func(_ context.Context, _ admin.Actor, r admin.Right, _ admin.Subject) bool {
			return r != admin.RequeueSucceeded
		})},
		"cancel": {Access: admin.AccessFunc(func(_ context.Context, _ admin.Actor, r admin.Right, _ admin.Subject) bool {
			return r == admin.SeeEntries || r == admin.Cancel
		})},
		"of cases": {Access: admin.AccessFunc(func(_ context.Context, _ admin.Actor, r admin.Right, on admin.Subject) bool {
			return r == admin.SeeEntries || on.Amount.Known()
		})},
	} {
		offered := make(map[string]bool)
		for state, of := range states {
			for _, action := range changes {
				id := of()
				d := b.admin(opts)
				lines, err := d.Lines(t.Context(), mei, []compensator.EntryID{id})
				require.NoError(t, err)
				require.Len(t, lines, 1)
				offers := d.Offers(t.Context(), mei, action, lines[0])
				answers, err := d.Change(t.Context(), mei, admin.Change{Action: action, Entries: []admin.Seen{{ID: id, Version: lines[0].Entry.Version}}, Why: why, Checked: true, Again: true})
				if !opts.ReadOnly {
					require.NoError(t, err)
				}
				now, err2 := b.c.Get(t.Context(), id)
				require.NoError(t, err2)
				does := err == nil && answers[0] == nil && now.Version != lines[0].Entry.Version
				assert.Equal(t, does, offers, "%s: %s of %s: %v", name, action, state, answers)
				offered[string(action)+" of "+state] = offers
			}
		}
		full := name == "all"
		assert.Equal(t, full || name == "not again" || name == "of cases", offered["settle by hand of dead, erased"], name)
		assert.Equal(t, full || name == "of cases", offered["requeue of succeeded"], name)
		assert.Equal(t, full, offered["compensate of compensated"], name)
		assert.False(t, offered["cancel of dead going back"] || offered["requeue of dead, erased"] || offered["cancel of cancelled"], name)
		assert.Equal(t, !opts.ReadOnly, offered["cancel of pending"], name)
	}
	d := b.admin(admin.Options{Access: everything})
	assert.False(t, d.Offers(t.Context(), mei, admin.Pause, admin.Line{Entry: b.dead}), "of no action on entries")
	assert.False(t, d.Offers(t.Context(), admin.Actor{}, admin.Requeue, admin.Line{Entry: b.dead}), "to nobody")
}
