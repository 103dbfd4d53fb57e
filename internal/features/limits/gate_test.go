package limits

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/processlog"
)

func newClaim(mine, limited int, left processlog.Room) *processlog.Claimed {
	claim := &processlog.Claimed{Mine: make([]processlog.Row, mine), Rooms: map[string]processlog.Room{"": left}}
	for range limited {
		claim.Limited = append(claim.Limited, processlog.Limited{In: time.Second})
	}
	return claim
}

func TestGateIsOpenBeforeTheFirstClaimAndNeverUnlimited(t *testing.T) {
	var g gate
	limit := &processlog.StartLimit{Interval: time.Second, Burst: 3}
	require.Equal(t, engine.Checked, g.countClaimable(limit, time.Now()))
	require.True(t, g.opensAt().IsZero())
}

func TestGateStaysClosedUntilTheRateAllowsAStart(t *testing.T) {
	var g gate
	now, limit := time.Now(), &processlog.StartLimit{Interval: time.Second, Burst: 3}
	g.noteClaim(newClaim(3, 2, processlog.Room{Next: time.Second, Permits: processlog.Unbounded}), limit, now)
	require.Zero(t, g.countClaimable(limit, now))
	require.Zero(t, g.countClaimable(limit, now.Add(999*time.Millisecond)))
	require.Equal(t, now.Add(time.Second), g.opensAt())
	require.Equal(t, g.opensAt(), g.nextClaimAt, "entries wait")
	for after, wanted := range map[time.Duration]int{time.Second: 1, 2 * time.Second: 2, time.Hour: limit.Burst} {
		assert.Equal(t, wanted, g.countClaimable(limit, now.Add(after)), "%v", after)
	}
	waiting, free := g.reportWaiting(now, false)
	require.Equal(t, []any{2, now.Add(time.Second)}, []any{waiting, free})
	waiting, _ = g.reportWaiting(now.Add(time.Second+reportGrace+1), true)
	require.Zero(t, waiting, "nobody has claimed since, so nothing is due any more")
}

func TestGateWaitsForSeveralStartsOfAFastRate(t *testing.T) {
	for _, of := range []struct {
		interval     time.Duration
		burst        int
		want, shared int
	}{{time.Second, 5, 1, 1}, {50 * time.Millisecond, 5, 3, 4}, {time.Millisecond, 6, 4, 5}, {time.Millisecond, 1, 1, 1}, {time.Millisecond, 2, 1, 1}, {time.Millisecond, 1000, 150, 200}, {0, 0, 1, 1}} {
		limit := &processlog.StartLimit{Interval: of.interval, Burst: of.burst}
		assert.Equal(t, []int{of.want, of.shared}, []int{startsPerClaim(limit, false), startsPerClaim(limit, true)}, "%v", of)
	}
}

// TestGateWaitsLongerIfOtherProcessesTakeStarts checks how the gate learns that other processes take starts. The gate
// expects three starts for each claim. If a claim got one or two starts and more entries wait, other processes have
// taken the missing starts.
func TestGateWaitsLongerIfOtherProcessesTakeStarts(t *testing.T) {
	now, limit := time.Now(), &processlog.StartLimit{Interval: 50 * time.Millisecond, Burst: 5}
	const next = 30 * time.Millisecond
	for _, of := range []struct {
		mine, limited int
		want          time.Duration
	}{{5, 1, next + 100*time.Millisecond}, {3, 1, next + 100*time.Millisecond}, {2, 1, next + 150*time.Millisecond}, {1, 2, next + 150*time.Millisecond}, {1, 0, next + 100*time.Millisecond}} {
		var g gate
		g.noteClaim(newClaim(of.mine, of.limited, processlog.Room{Next: next, Permits: processlog.Unbounded}), limit, now)
		assert.Equal(t, of.want, g.opensAt().Sub(now), "%v", of)
	}
}

// TestGateNeverStaysClosedForLong checks the longest wait until the gate opens for the next claim. The wait must be
// short, because only a claim notices that another process has returned starts, or that a person has raised the limit.
func TestGateNeverStaysClosedForLong(t *testing.T) {
	for _, interval := range []time.Duration{time.Hour, processlog.MaxBurstTime} {
		var g gate
		now, limit := time.Now(), &processlog.StartLimit{Interval: interval, Burst: 1}
		for range 20 {
			g.noteClaim(newClaim(0, 1, processlog.Room{Next: interval, Permits: processlog.Unbounded}), limit, now)
			require.LessOrEqual(t, g.opensAt().Sub(now), maxGateWait+maxVainWait)
		}
		waiting, free := g.reportWaiting(now, false)
		require.Equal(t, []any{1, now.Add(interval)}, []any{waiting, free}, "people are told when the rate allows a start")
	}
}

// TestGateOpensWhenAPermitEndsHere checks that the end of a permit of this process opens the gate. This process does
// not notice the end of another process's permit, so the gate must also open after a short wait.
func TestGateOpensWhenAPermitEndsHere(t *testing.T) {
	var g gate
	now, limit := time.Now(), &processlog.StartLimit{Concurrent: 2}
	g.noteClaim(newClaim(2, 1, processlog.Room{Starts: processlog.Unbounded}), limit, now)
	require.Zero(t, g.countClaimable(limit, now))
	require.GreaterOrEqual(t, g.opensAt().Sub(now), permitPoll)
	require.LessOrEqual(t, g.opensAt().Sub(now), permitPoll+maxPermitPoll)
	require.True(t, g.notePermitEnd())
	require.Equal(t, 1, g.countClaimable(limit, now))
	require.False(t, g.notePermitEnd(), "the gate is open already")
	require.Equal(t, 2, g.countClaimable(limit, now))
	_, free := g.reportWaiting(now, true)
	require.True(t, free.IsZero(), "nobody knows when an entry ends")
}
