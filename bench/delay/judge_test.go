package delay

import (
	"testing"
	"time"
)

// The imagined service is killed at 15 s.
func TestJudgeTellsWhatTheKillDidFromWhatTheMechanismDoes(t *testing.T) {
	second := time.Second.Microseconds()
	due := func(at float64, fired ...firing) fact {
		return fact{recorded: 1, due: int64(at * float64(second)), fired: fired}
	}
	late := func(at float64, ms int64, entry uint64) firing {
		return firing{int64(at*float64(second)) + 1000*ms, entry}
	}
	facts := []fact{
		due(3, late(3, -200, 1)),                  // early
		due(4, late(4, 10, 2), late(4, 5000, 2)),  // one entry fired twice
		due(5, late(5, 30, 3), late(5, 40, 4)),    // recorded as two entries
		due(14.9, late(14.9, 30_000, 5)),          // handler was running at the kill
		due(20, late(20, 700, 6)),                 // due while the service restarted
		due(29, late(29, 20, 7)),                  // due well after the restart
		due(14, late(14, 1, 8)),                   // fired, but the store still holds it
		due(13), due(16), {recorded: 1, due: 2e7}, // never fired
	}
	trial := &trial{
		plan:   plan{Deadlines: len(facts), Span: 30 * time.Second},
		keeper: &keeper{facts: facts, all: second}, killed: 15 * second, restarted: 15*second + 50_000,
	}
	r := trial.judge([]int{6, 8})
	want := func(what string, got, want any) {
		t.Helper()
		if got != want {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	want("early", r.Early, 1)
	want("early by", r.EarlyBy, 200.0)
	want("calm", r.Calm, 4)
	want("median", r.P50, 20.0)
	want("latest", r.Max, 30.0)
	want("over the kill", r.OverKill, 30_000.0)
	want("waiting at the kill", r.Waiting, 6)
	want("not fired", r.NotFired, 3)
	want("of them held", r.Held, 1)
	want("twice", r.Twice, 2)
	want("entries run twice", r.Entries, 1)
	want("fired and held", r.Again, 1)
}

func TestBinsKeepEarlyApartFromLate(t *testing.T) {
	middle := int(-axis(-earliest) * binsTo)
	for _, of := range []struct {
		ms    float64
		early bool
	}{{-1e9, true}, {-200, true}, {-0.001, true}, {0, false}, {0.05, false}, {12, false}, {1e9, false}} {
		for i, n := range bins([]float64{of.ms}) {
			if n > 0 && (i < middle) != of.early {
				t.Errorf("%v ms is in bin %d, the middle is %d", of.ms, i, middle)
			}
		}
	}
}
