package engine

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

// Failure: F75
func TestRefusedEntriesRestLongerEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBase(t.Context(), &Config{Log: slog.New(slog.DiscardHandler), ErrorNumber: func(error) uint16 { return 0 }})
		r := &refusals{Base: b}
		one, two := processlog.RowID(1), processlog.RowID(2)
		want := unleased([]processlog.ID{one, two})
		rest, resting := r.aside("order", want)
		require.Equal(t, want, rest)
		require.Empty(t, resting)
		no := errors.New("the auditors say no")
		for times := 1; times <= 20; times++ {
			r.note(problemRefusedClaim, "order", []processlog.Refusal{{ID: one, Err: no}})
			rest, resting = r.aside("order", want)
			require.Equal(t, unleased([]processlog.ID{two}), rest)
			require.Equal(t, []processlog.Refusal{{ID: one, Err: no}}, resting)
			most := min(refusedPause<<min(times-1, 10), refusedPauseMost)
			in := r.in("order", one)
			require.GreaterOrEqual(t, in, most/2)
			require.LessOrEqual(t, in, most)
			time.Sleep(most)
			rest, _ = r.aside("order", want)
			require.Equal(t, want, rest, "its rest is over")
		}
		other, _ := r.aside("refund", want)
		require.Equal(t, want, other)
		require.Len(t, b.Problems.list(), 1)
		require.Equal(t, "compensator: the database refuses to change entry 1: the auditors say no", b.Problems.list()[0].Error)
		r.taken(problemRefusedClaim, "order", two)
		require.Len(t, b.Problems.list(), 1)
		r.taken(problemRefusedClaim, "order", one, two)
		require.Empty(t, b.Problems.list())
		require.False(t, r.some.Load())
	})
}

// An entry that is never tried again was purged, or is another process's. An outcome that is held here is not forgotten.
func TestRefusedEntriesThatNobodyTriesAgainAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBase(t.Context(), &Config{Log: slog.New(slog.DiscardHandler), ErrorNumber: func(error) uint16 { return 0 }})
		r := &refusals{Base: b}
		r.note(problemRefusedClaim, "order", []processlog.Refusal{{ID: processlog.RowID(1), Err: errors.New("no")}})
		r.note(problemRefusedOutcome, "order", []processlog.Refusal{{ID: processlog.RowID(2), Err: errors.New("no")}})
		time.Sleep(refusedPauseMost + forgetAfter)
		r.forgetOld()
		list := b.Problems.list()
		require.Len(t, list, 1)
		require.Equal(t, problemRefusedOutcome, list[0].What)
		require.Equal(t, 1, r.outcomes("order"))
		require.Zero(t, r.outcomes("refund"))
		require.ErrorContains(t, r.unstored(), "entry 2")
	})
}
