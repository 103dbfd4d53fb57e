package verdict

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

type wrongHistory struct {
	name   string
	checks []string
	tell   func(s *story)
}

var wrong = slices.Concat(wrongExistence, wrongClaims, wrongOutcomes, wrongPeople, wrongResults)

func (s *story) cancelOpen(e *subject) {
	e.act(history.ActionCancel, "")
	e.settle(cancelled, "cancel", nil)
}

func TestEveryWrongHistoryIsCaughtByItsCheck(t *testing.T) {
	for _, w := range wrong {
		t.Run(w.name, func(t *testing.T) {
			s := newStory(t)
			w.tell(s)
			s.rest()
			v := s.violates(w.checks...)
			for _, c := range v.Checks {
				for _, f := range c.Findings {
					require.NotEmpty(t, f.What)
				}
			}
		})
	}
}

func TestEveryCheckHasAWrongHistory(t *testing.T) {
	caught := make(map[string]bool)
	for _, w := range wrong {
		for _, name := range w.checks {
			caught[name] = true
		}
	}
	for _, w := range wrongAtRest {
		caught[w.check] = true
	}
	s := newStory(t)
	s.rest()
	for _, c := range s.judge().Checks {
		require.True(t, caught[c.Name], "no wrong history for the check %q", c.Name)
	}
}
