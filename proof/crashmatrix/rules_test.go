//go:build failpoints

package crashmatrix

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/compensator-go/compensator"
)

func TestClaimThatBeganTooSoonIsSeenHoweverLateItWasWritten(t *testing.T) {
	for name, s := range map[string]step{
		"early":          {was: 1, wasDue: 100},
		"beside a lease": {was: 1, wasLeased: 100},
	} {
		s.at, s.leased, s.version = 110, 1100, 2
		for began, good := range map[int64]bool{99: false, 100: true} {
			s.began = began
			f := follower{log: &entryLog{}, claims: make(map[uint64]int)}
			assert.Equal(t, good, f.claim(s) == "", "%s, begun at %d", name, began)
		}
	}
}

func TestAttemptOutOfOrderIsSeen(t *testing.T) {
	entry := func(id uint64, key string, ended int64) *entryLog {
		return &entryLog{id: id, key: key, steps: []step{{}, {at: ended, state: compensator.Succeeded}}}
	}
	for name, attempts := range map[string]struct {
		good          bool
		first, second *attempt
	}{
		"in turn":                       {true, &attempt{entry(1, "0-1", 20), 10, 20}, &attempt{entry(2, "0-2", 40), 30, 40}},
		"overtaken":                     {false, &attempt{entry(1, "0-1", 40), 30, 40}, &attempt{entry(2, "0-2", 20), 10, 20}},
		"both at once":                  {false, &attempt{entry(1, "0-1", 20), 10, 20}, &attempt{entry(2, "0-2", 25), 15, 25}},
		"in the order of their ids":     {false, &attempt{entry(1, "0-10", 20), 10, 20}, &attempt{entry(2, "0-9", 40), 30, 40}},
		"of plain SQL, and overtaken":   {true, &attempt{entry(1, "0-1-plain", 40), 30, 40}, &attempt{entry(2, "0-2", 20), 10, 20}},
		"of plain SQL, and beside":      {false, &attempt{entry(1, "0-1-plain", 20), 10, 20}, &attempt{entry(2, "0-2", 25), 15, 25}},
		"committed late":                {true, &attempt{entry(1, "0-1", 40), 30, 40}, &attempt{entry(2, "1-1", 20), 10, 20}},
		"committed late, and beside":    {false, &attempt{entry(1, "0-1", 25), 15, 25}, &attempt{entry(2, "1-1", 20), 10, 20}},
		"begun before, and not at rest": {false, &attempt{entry(1, "0-1", 90), 10, 20}, &attempt{entry(2, "1-1", 40), 30, 40}},
	} {
		assert.Equal(t, attempts.good, outOfOrder([]*attempt{attempts.second, attempts.first}) == "", name)
	}
}
