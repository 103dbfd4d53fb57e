package refusals

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/problems"
	"github.com/compensator-go/compensator/processlog"
)

func empty() (*problems.List, *List) {
	closed := func() bool { return false }
	log := slog.New(slog.DiscardHandler)
	list := problems.New(log, func(error) uint16 { return 0 }, closed)
	return list, New(list, log, closed)
}

// Failure: F75
func TestRefusedEntriesRestLongerEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list, r := empty()
		one, two := processlog.RowID(1), processlog.RowID(2)
		want := []processlog.Wanted{{ID: one}, {ID: two}}
		rest, resting := r.WithoutPaused("order", want)
		require.Equal(t, want, rest)
		require.Empty(t, resting)
		no := errors.New("the auditors say no")
		for times := 1; times <= 20; times++ {
			r.Note(Claim, "order", []processlog.Refusal{{ID: one, Err: no}})
			rest, resting = r.WithoutPaused("order", want)
			require.Equal(t, []processlog.Wanted{{ID: two}}, rest)
			require.Equal(t, []processlog.Refusal{{ID: one, Err: no}}, resting)
			most := min(firstPause<<min(times-1, 10), maxPause)
			in := r.PauseLeft("order", one)
			require.GreaterOrEqual(t, in, most/2)
			require.LessOrEqual(t, in, most)
			time.Sleep(most)
			rest, _ = r.WithoutPaused("order", want)
			require.Equal(t, want, rest, "its rest is over")
		}
		other, _ := r.WithoutPaused("refund", want)
		require.Equal(t, want, other)
		require.Len(t, list.Open(), 1)
		require.Equal(t, "compensator: the database refuses to change entry 1: the auditors say no", list.Open()[0].Error)
		r.Accepted(Claim, "order", two)
		require.Len(t, list.Open(), 1)
		r.Accepted(Claim, "order", one, two)
		require.Empty(t, list.Open())
		require.False(t, r.anyRefused.Load())
	})
}

func TestRefusedEntriesThatNobodyTriesAgainAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list, r := empty()
		r.Note(Claim, "order", []processlog.Refusal{{ID: processlog.RowID(1), Err: errors.New("no")}})
		r.Note(Outcome, "order", []processlog.Refusal{{ID: processlog.RowID(2), Err: errors.New("no")}})
		time.Sleep(maxPause + forgetAfter)
		r.ForgetOld()
		open := list.Open()
		require.Len(t, open, 1)
		require.Equal(t, Outcome, open[0].What)
		require.Equal(t, 1, r.Outcomes("order"))
		require.Zero(t, r.Outcomes("refund"))
		_, err := r.unstored()
		require.ErrorContains(t, err, "entry 2")
	})
}

func TestRefusedOutcomesSayForHowLongTheyAreSoMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, r := empty()
		for id := range uint64(3) {
			r.Note(Outcome, "order", []processlog.Refusal{{ID: processlog.RowID(id + 1), Err: errors.New("no")}})
			time.Sleep(time.Minute)
		}
		require.Equal(t, 3*time.Minute, r.OutcomesFor("order", 1))
		require.Equal(t, 2*time.Minute, r.OutcomesFor("order", 2))
		require.Zero(t, r.OutcomesFor("order", 4))
		require.Zero(t, r.OutcomesFor("refund", 1))
		r.Note(Outcome, "order", []processlog.Refusal{{ID: processlog.RowID(1), Err: errors.New("no")}})
		require.Equal(t, 3*time.Minute, r.OutcomesFor("order", 1), "a further refusal begins nothing")
		r.Accepted(Outcome, "order", processlog.RowID(1))
		require.Equal(t, 2*time.Minute, r.OutcomesFor("order", 1))
	})
}

// The answer to a try that was sent before the stop says nothing about the database now.
func TestStopWaitsForATryThatIsSentAfterItBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, r := empty()
		entry, refused := processlog.RowID(1), []processlog.Refusal{{ID: processlog.RowID(1), Err: errors.New("no")}}
		r.Note(Outcome, "order", refused)
		sentAt := time.Now()
		time.Sleep(time.Second)
		go func() {
			time.Sleep(time.Second)
			r.NoteTry(Outcome, "order", sentAt, refused)
			_, atOnce := r.RefusedOutcome("order", entry)
			assert.True(t, atOnce)
			time.Sleep(time.Second)
			r.Accepted(Outcome, "order", entry)
		}()
		require.NoError(t, r.RetryOutcomes(time.Minute))
	})
}

func TestStopWaitsForOneTryAlsoInTheInstantInWhichItBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, r := empty()
		entry, refused := processlog.RowID(1), []processlog.Refusal{{ID: processlog.RowID(1), Err: errors.New("no")}}
		r.Note(Outcome, "order", refused)
		began := time.Now()
		go func() {
			assert.True(t, r.AwaitRetry(t.Context(), 1, false))
			_, atOnce := r.RefusedOutcome("order", entry)
			assert.True(t, atOnce)
			r.NoteTry(Outcome, "order", time.Now(), refused)
			_, atOnce = r.RefusedOutcome("order", entry)
			assert.False(t, atOnce)
		}()
		require.ErrorContains(t, r.RetryOutcomes(time.Minute), "entry 1")
		require.Equal(t, began, time.Now())
	})
}
