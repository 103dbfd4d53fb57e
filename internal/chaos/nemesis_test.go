package chaos

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// rounds deals as a nemesis of that seed does, on a stage with three apps.
func rounds(seed uint64, n int) (dealt [][]string) {
	st := &stage{servers: &servers{clocks: new(clocks)}, cfg: Config{Seed: seed}.withDefaults(), apps: []*app{{name: "a"}, {name: "b"}, {name: "c"}}}
	nemesis := st.newNemesis()
	for range n {
		taken := &resources{needed: make(map[string]bool), shared: make(map[string]bool)}
		var round []string
		for range 3 {
			f, victim, ok := nemesis.deal(taken)
			if !ok {
				break
			}
			name := f.kind
			if victim != nil {
				name += " of " + victim.name
			}
			round = append(round, name)
		}
		dealt = append(dealt, round)
	}
	return dealt
}

func TestEveryFaultHasItsTurnBeforeAnyComesAgain(t *testing.T) {
	turns := make(map[string]int)
	st := &stage{servers: &servers{clocks: new(clocks)}, cfg: Config{Seed: 3}.withDefaults(), apps: []*app{{name: "a"}}}
	nemesis := st.newNemesis()
	for range 3 * len(nemesis.kinds) {
		f, _, ok := nemesis.deal(&resources{needed: make(map[string]bool), shared: make(map[string]bool)})
		require.True(t, ok)
		turns[f.kind]++
		least := 3
		for _, f := range nemesis.kinds {
			least = min(least, turns[f.kind])
		}
		require.LessOrEqual(t, turns[f.kind], least+1, f.kind)
	}
	require.Len(t, turns, len(faultKinds()))
}

func TestScheduleOfFaultsFollowsTheSeed(t *testing.T) {
	require.Equal(t, rounds(7, 40), rounds(7, 40))
	require.NotEqual(t, rounds(7, 40), rounds(8, 40))
}

func TestNoFaultIsMadeOfWhatAnotherHasTakenAway(t *testing.T) {
	kills := []string{"database killed", "database paused", "database restarted"}
	needing := []string{"rows locked", "rows locked crosswise", "database read-only", "table altered", "purge", "connections killed", "old read view"}
	for seed := range uint64(50) {
		for _, round := range rounds(seed, 20) {
			gone := slices.ContainsFunc(round, func(f string) bool { return slices.Contains(kills, f) })
			asked := slices.ContainsFunc(round, func(f string) bool { return slices.Contains(needing, f) })
			require.False(t, gone && asked, round)
		}
	}
}

func TestOneServerIsNeverTakenAwayTwiceAtOnce(t *testing.T) {
	r := &resources{needed: make(map[string]bool), shared: make(map[string]bool)}
	require.True(t, r.take("", sqlServer))
	require.True(t, r.take("read-only", sqlServer), "two may use it")
	require.False(t, r.take("read-only", sqlServer))
	require.False(t, r.take(sqlServer, ""), "it is in use")
	require.True(t, r.take(redisPair, ""))
	require.False(t, r.take("", redisPair))
	require.True(t, r.take("", ""), "a fault that needs nothing")
}

func TestMachineThatCannotMoveClocksSaysSo(t *testing.T) {
	st := &stage{servers: &servers{clocksWhy: errAsPlanned}, cfg: Config{}.withDefaults()}
	can, why := st.available()
	require.Len(t, can, len(faultKinds())-2)
	require.Equal(t, map[string]string{sqlClockMoved: errAsPlanned.Error(), redisClockMoved: errAsPlanned.Error()}, why)
}

func TestFaultKindsAreAsked(t *testing.T) {
	st := &stage{servers: &servers{clocks: new(clocks)}, cfg: Config{Faults: Faults{Kinds: []string{"app killed"}}}.withDefaults()}
	can, why := st.available()
	require.Len(t, can, 1)
	require.Len(t, why, len(faultKinds())-1)
	st.cfg.Faults.None = true
	can, _ = st.available()
	require.Empty(t, can)
}

func TestHoldVariesAroundWhatIsAskedFor(t *testing.T) {
	k := &strike{rand: rand.New(rand.NewPCG(1, 1))}
	for range 100 {
		d := k.between(0.5, 2, 3)
		require.True(t, d >= 1500*1e6 && d <= 6000*1e6, d)
	}
}
