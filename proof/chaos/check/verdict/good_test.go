package verdict

import (
	"maps"
	"testing"
)

var legalHistories = union(strangeCommits, strangeRuns, strangePeople, strangeResults)

func union(parts ...map[string]func(s *story)) map[string]func(s *story) {
	whole := make(map[string]func(s *story))
	for _, part := range parts {
		maps.Copy(whole, part)
	}
	return whole
}

var separateHistories = []string{
	"open at the end and not due", "open at the end, beyond the horizon", "the database's clock jumps ahead, and back under a claim",
	"the database's clock is set back between a claim's look and its write",
}

func TestStrangeButLegalHistoriesHold(t *testing.T) {
	for name, tell := range legalHistories {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			tell(s)
			if name != "open at the end, beyond the horizon" {
				s.rest()
			}
			s.holds()
		})
	}
}
