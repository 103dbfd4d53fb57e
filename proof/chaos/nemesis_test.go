package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func minutePlan(seed uint64) *plan {
	return newPlan(Config{Seed: seed}.withDefaults(), faultKinds(), 3)
}

func (p *plan) describe(n int, times bool) (list []string) {
	for range n {
		r := p.next()
		for _, s := range r.strikes {
			list = append(list, fmt.Sprint(s.kind, ", app ", s.victim))
			if times {
				list = append(list, fmt.Sprint(s.after, s.held))
			}
		}
		if times {
			list = append(list, r.calm.String())
		}
		list = append(list, "")
	}
	return list
}

func TestEveryFaultHasItsTurnWithinAMinuteWhateverTheSeed(t *testing.T) {
	for seed := range uint64(10_000) {
		p := minutePlan(seed)
		cfg := p.cfg
		require.LessOrEqual(t, calmStart+p.takes(), cfg.Duration, "seed %d", seed)
		turns := make(map[string]int)
		for n := len(p.rounds); n > 0; n-- {
			r := p.next()
			require.NotEmpty(t, r.strikes)
			require.LessOrEqual(t, len(r.strikes), cfg.Faults.Most)
			taken := &resources{needed: make(map[string]bool), shared: make(map[string]bool)}
			for _, s := range r.strikes {
				turns[s.kind]++
				require.True(t, taken.take(s.need(), s.shares), "seed %d: the resources of %s must be free in %v", seed, s.kind, r)
				require.GreaterOrEqual(t, s.held*cfg.Faults.Hold.Seconds(), 0.1, "seed %d: %s must last long enough to take effect", seed, s.kind)
			}
		}
		require.Len(t, turns, len(faultKinds()), "seed %d", seed)
		for kind, n := range turns {
			require.Equal(t, 1, n, "seed %d: %s", seed, kind)
		}
	}
}

func TestEveryFaultHasItsTurnBeforeAnyComesAgain(t *testing.T) {
	p := minutePlan(3)
	turns := make(map[string]int)
	for range 100 {
		for _, s := range p.next().strikes {
			turns[s.kind]++
		}
		least := 100
		for _, f := range faultKinds() {
			least = min(least, turns[f.kind])
		}
		for kind, n := range turns {
			require.LessOrEqual(t, n, least+1, kind)
		}
	}
}

func TestPlanFollowsTheSeed(t *testing.T) {
	require.Equal(t, minutePlan(7).describe(40, true), minutePlan(7).describe(40, true))
	require.NotEqual(t, minutePlan(7).describe(40, false), minutePlan(8).describe(40, false))
	for victim := range 3 {
		require.Contains(t, minutePlan(7).describe(400, false), fmt.Sprint("sql partition, app ", victim))
	}
}

func TestLongRunsPlanIsNotShortened(t *testing.T) {
	cfg := Config{Seed: 7, Duration: time.Hour}.withDefaults()
	short, long := minutePlan(7), newPlan(cfg, faultKinds(), 3)
	require.Greater(t, long.takes(), short.takes())
	require.Equal(t, long.describe(10, false), short.describe(10, false), "the same faults")
}

func TestFaultThatCameToNothingComesAgain(t *testing.T) {
	p := minutePlan(7)
	missed := p.next().strikes[0].fault
	p.putBack(missed)
	require.Equal(t, missed.kind, p.next().strikes[0].kind)
}

func TestFaultThatNeverHitsFailsTheRun(t *testing.T) {
	verdict := new(listener)
	n := (&stage{tb: verdict, servers: &servers{clocks: new(clocks)}, cfg: Config{}.withDefaults(), apps: []*app{{}}}).newNemesis()
	for _, f := range n.plan.kinds[1:] {
		n.noteStrike(f, nil)
	}
	require.False(t, n.allStruck())
	for try := 1; try < mostTries; try++ {
		n.noteStrike(n.plan.kinds[0], fmt.Errorf("%w: locked", errNothingHit))
		require.Empty(t, verdict.said, "a fault that hit nothing must be tried again")
		n.tryAgain()
		require.Equal(t, n.plan.kinds[0].kind, n.plan.next().strikes[0].kind)
	}
	n.noteStrike(n.plan.kinds[0], errNothingHit)
	require.Len(t, verdict.said, 1)
	require.Contains(t, verdict.said[0], n.plan.kinds[0].kind)
}

type listener struct {
	testing.TB
	said []string
}

func (l *listener) Errorf(format string, args ...any) {
	l.said = append(l.said, fmt.Sprintf(format, args...))
}

func TestNoFaultIsMadeOfWhatAnotherHasTakenAway(t *testing.T) {
	kills := []string{"database killed", "database paused", "database restarted"}
	needing := []string{"rows locked", "rows locked crosswise", "database read-only", "table altered", "purge", "connections killed", "old read view"}
	for seed := range uint64(50) {
		p := minutePlan(seed)
		for range 20 {
			strikes := p.next().strikes
			among := func(kinds []string) bool {
				return slices.ContainsFunc(strikes, func(s planned) bool { return slices.Contains(kinds, s.kind) })
			}
			require.False(t, among(kills) && among(needing), strikes)
		}
	}
}

func TestOneServerIsNeverTakenAwayTwiceAtOnce(t *testing.T) {
	r := &resources{needed: make(map[string]bool), shared: make(map[string]bool)}
	require.True(t, r.take("", sqlServer))
	require.True(t, r.take("read-only", sqlServer), "two faults may share the server")
	require.False(t, r.take("read-only", sqlServer))
	require.False(t, r.take(sqlServer, ""), "no fault may use a shared server alone")
	require.True(t, r.take(redisPair, ""))
	require.False(t, r.take("", redisPair))
	require.True(t, r.take("", ""), "a fault without resources")
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
	k = &strike{stage: &stage{cfg: Config{}.withDefaults()}, planned: planned{held: 1.5}}
	require.Equal(t, 6*time.Second, k.lasting(2), "1.5 × 2 × a Hold of 2 s")
}
