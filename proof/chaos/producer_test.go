package chaos

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
)

func TestPlannedKillersAreRecordedUntilTheyHaveCommitted(t *testing.T) {
	p := newProducer(&appProcess{cfg: appConfig{Name: "shop", Rate: 75, KillEvery: time.Hour}}, 0, rand.New(rand.NewPCG(1, 1)))
	tx := &transaction{producer: p}
	record := func(commits bool) (killers int) {
		p.planKiller()
		tx.inserted = nil
		for range 3 {
			draft := p.draft(typeShip)
			var j job
			require.NoError(t, json.Unmarshal(draft.Content, &j))
			if j.Kills == 99 {
				killers++
			}
			tx.inserted = append(tx.inserted, recorded{key: string(draft.IdempotencyKey), content: compensator.NewEntry{}})
		}
		if commits {
			tx.committedKiller()
		}
		return killers
	}
	require.Zero(t, record(true), "no planned killer may come during the opening")
	p.from = time.Now().Add(-time.Second)
	require.Equal(t, 1, record(false))
	require.Equal(t, 1, record(false), "the killer before did not commit")
	for range plannedKillers {
		require.Equal(t, 1, record(true))
	}
	require.Zero(t, record(true), "all planned killers have committed")
	runs := newProducer(&appProcess{cfg: appConfig{Name: "app1", Runs: true, KillEvery: time.Hour}}, 0, rand.New(rand.NewPCG(1, 1)))
	require.Zero(t, runs.killers)
}
