package engine

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/refusals"
	"github.com/compensator-go/compensator/processlog"
)

// Failure: F57
func TestChangeEndsOnlyTheAttemptsThatItHasOvertaken(t *testing.T) {
	h := newHoldings()
	hold := func(epoch uint32, version uint64) *Attempt {
		a := &Attempt{Row: processlog.Row{ID: processlog.RowID(1), Epoch: epoch, Version: version}}
		a.ctx, a.cancel = context.WithCancelCause(t.Context())
		h.held[a.holdingKey()] = a
		return a
	}
	overtaken, anew := hold(0, 5), hold(1, 7)
	h.cancel(&processlog.Row{ID: processlog.RowID(1), Version: 5}, processlog.ErrCancelled)
	require.ErrorIs(t, context.Cause(overtaken.ctx), processlog.ErrCancelled)
	require.NoError(t, anew.ctx.Err())
}

// endDuringSuspension returns the end of a lease on a machine that was suspended during the lease. By the wall clock,
// the lease ended an hour ago. The monotonic clock stood still during the suspension, so by this clock the lease ends
// in a minute.
func endDuringSuspension(t *testing.T) time.Time {
	t.Helper()
	now := time.Now()
	end := now.Add(-time.Hour)
	monotonic := &(*struct {
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&end)).ext
	*monotonic += int64(time.Hour + time.Minute)
	require.Equal(t, time.Minute, end.Sub(now), "by the monotonic clock")
	require.Equal(t, -time.Hour, end.Round(0).Sub(now.Round(0)), "by the wall clock")
	return end
}

// Failure: F59
func TestLeaseEndsWhileTheMachineIsSuspended(t *testing.T) {
	held := func(h *holdings, id uint64, end time.Time) *Attempt {
		a := &Attempt{Type: &Type{Lease: time.Minute, Timeout: time.Minute}, Row: processlog.Row{ID: processlog.RowID(id)}, leaseEnd: end}
		a.ctx, a.cancel = context.WithCancelCause(t.Context())
		a.timeout, a.startedAt = &callTimeout{ctx: a.ctx, cancel: func() {}}, time.Now()
		h.held[a.holdingKey()] = a
		return a
	}
	t.Run("its handler does not start", func(t *testing.T) {
		h := newHoldings()
		a := held(h, 1, endDuringSuspension(t))
		clear(h.held)
		admitted, late := h.admit(t.Context(), []*Attempt{a})
		require.Empty(t, admitted)
		require.Equal(t, []*Attempt{a}, late)
	})
	t.Run("a running attempt asks the database", func(t *testing.T) {
		h := newHoldings()
		a := held(h, 1, endDuringSuspension(t))
		held(h, 2, time.Now().Add(time.Minute))
		renewals, _, _ := h.examine()
		require.Equal(t, []*Attempt{a}, renewals)
		require.NoError(t, a.obsolete, "the wall clock may have been set")
	})
	t.Run("no second call starts before the lease is renewed", func(t *testing.T) {
		h := newHoldings()
		a := held(h, 1, endDuringSuspension(t))
		require.Equal(t, []*Attempt{a}, h.markLapsed([]*Attempt{a}))
		require.ErrorIs(t, h.lossOf(a), processlog.ErrLeaseLost)
	})
}

type refusingRenewals struct {
	processlog.Store
	refused []processlog.Refusal
	busy    []processlog.ID
}

func (s *refusingRenewals) Renew(context.Context, []processlog.Held, time.Duration) (processlog.Unrenewed, error) {
	return processlog.Unrenewed{Refused: s.refused, Busy: s.busy}, nil
}

// holdRefused returns an engine that holds one attempt.
func holdRefused(t *testing.T) (*Engine, *refusingRenewals, *Attempt) {
	t.Helper()
	store := &refusingRenewals{refused: []processlog.Refusal{{ID: processlog.RowID(1), Err: errors.New("the auditors say no")}}}
	e := New(t.Context(), Config{Store: store, Log: slog.New(slog.DiscardHandler), ErrorNumber: func(error) uint16 { return 0 }})
	a := &Attempt{Type: &Type{Name: "close_order", Lease: time.Minute, slots: unlimited{}}, Row: processlog.Row{ID: processlog.RowID(1), Version: 1}}
	a.ctx, a.cancel = context.WithCancelCause(t.Context())
	e.held[a.holdingKey()] = a
	e.renewAll(a.Type.Lease, []*Attempt{a})
	require.Len(t, e.OpenProblems(), 1)
	require.Equal(t, refusals.Renewal, e.OpenProblems()[0].What)
	return e, store, a
}

func TestRefusedRenewalStaysAProblemWhileItsRowIsLocked(t *testing.T) {
	e, store, a := holdRefused(t)
	store.refused, store.busy = nil, []processlog.ID{a.Row.ID}
	e.renewAll(a.Type.Lease, []*Attempt{a})
	require.Len(t, e.OpenProblems(), 1, "the database has not answered for the locked row")
	store.busy = nil
	e.renewAll(a.Type.Lease, []*Attempt{a})
	require.Empty(t, e.OpenProblems())
}

func TestRefusedRenewalIsNoProblemOnceItsAttemptHasEnded(t *testing.T) {
	e, _, a := holdRefused(t)
	e.handleAnswer(pendingOutcome{attempt: a, outcome: processlog.Outcome{ID: a.Row.ID, To: processlog.Succeeded}}, processlog.Settled{Applied: true})
	require.Empty(t, e.OpenProblems())
}
