package engine

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

// checkSchedule checks the rules that the comments of typeSchedule state.
func checkSchedule(t *testing.T, s *typeSchedule, now time.Time) {
	t.Helper()
	require.False(t, s.claimAt.Before(s.pausedUntil), "a claim begins in the pause after a refusal")
	require.LessOrEqual(t, s.claimAt.Sub(now), 2*peekInterval, "a lost notification delays the next claim for longer")
	require.Equal(t, s.refusedClaims == 0, s.pausedUntil.IsZero())
	require.GreaterOrEqual(t, s.runningClaims, 0)
	require.LessOrEqual(t, s.runningClaims, claimsInFlight)
	require.LessOrEqual(t, len(s.laterDueTimes), maxLaterDueTimes)
	require.True(t, slices.IsSortedFunc(s.laterDueTimes, time.Time.Compare))
	if s.typ.Linger() > 0 {
		require.LessOrEqual(t, s.runningClaims, 1, "a look begins during a claim")
	}
	if s.moreDue {
		require.Zero(t, s.refusedClaims, "a refused claim is repeated without a pause")
	}
}

func TestScheduleKeepsItsRulesInEveryOrderOfEvents(t *testing.T) {
	for _, wait := range []time.Duration{0, 3 * time.Second} {
		for seed := range uint64(50) {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 1))
				c, s := lingering(wait)
				var running []findings // what the method claimBegins has returned for each claim or look that still runs
				for range 200 {
					someTime := time.Duration(random.Int64N(int64(15 * time.Second)))
					switch random.IntN(9) {
					case 0:
						<-time.After(someTime)
					case 1:
						c.Expect("mail", someTime-5*time.Second)
					case 2:
						if len(running) > 0 && wait > 0 {
							running = running[1:]
							c.lookEnded("mail", someTime)
						}
					case 3:
						c.Expect("mail", 0)
					case 4:
						c.Postpone("mail", s.notifications-random.IntN(2), someTime-time.Second)
					case 5, 6, 7:
						if s.shouldClaim(time.Now()) {
							running = append(running, s.claimBegins(time.Now()))
						}
					default:
						if len(running) == 0 {
							continue
						}
						result := ClaimResult{Full: random.IntN(3) == 0, FromDatabase: random.IntN(2) == 0, LostRace: random.IntN(4) == 0, NextDueIn: someTime}
						if random.IntN(3) == 0 {
							result = ClaimResult{NextDueIn: processlog.Never, Err: errors.New("deadlock")}
						}
						c.claimEnded(s.typ, result, running[0])
						running = running[1:]
					}
					checkSchedule(t, s, time.Now())
				}
			})
		}
	}
}
