package limits

import (
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/jitter"
	"github.com/compensator-go/compensator/processlog"
)

const (
	// maxGatherTime is the longest time that a type waits after its rate allows a start again. After this wait, one
	// claim can take several starts.
	maxGatherTime = 150 * time.Millisecond

	// maxSharedGatherTime replaces maxGatherTime while other processes also start entries of the type.
	maxSharedGatherTime = 200 * time.Millisecond

	// maxVainWait limits the extra random wait after vain claims: claims that got no start, because other processes
	// took all free starts.
	maxVainWait = 400 * time.Millisecond

	// permitPoll is the shortest time before the next claim if other processes hold all permits. A random time is
	// added. Its maximum doubles with each claim that got no permit, up to maxPermitPoll.
	permitPoll    = 50 * time.Millisecond
	maxPermitPoll = time.Second

	// maxGateWait is the longest time for which the gate stays closed because the rate is used up. While the gate is
	// closed, this process makes no claim of the type. But only a claim shows that other processes have returned
	// starts, or that a person has raised the limit. So the time is short.
	maxGateWait = 5 * time.Second
)

const reportGrace = time.Second

// gate decides whether the next claim of a limited type is worthwhile. It estimates the free starts and permits of the
// limit from the result of the last claim. The zero value is open, so the first claim is always made.
type gate struct {
	isKeyed bool // the limit has keys, so the type is always worth a claim

	hasResult      bool
	room           processlog.Room // what the limit had left after the last claim
	claimedAt      time.Time       // when the last claim was answered
	endedPermits   int             // permits of this process that have ended since claimedAt
	rateOpensAt    time.Time       // claim nothing before this time, because the rate is used up
	permitOpensAt  time.Time       // claim nothing before this time, because all permits are held
	nextClaimAt    time.Time       // time of the next claim for entries that wait for the limit; zero: no entry waits
	waitingEntries int             // entries that the last claim found without a permit
	nextStartAt    time.Time       // when the rate allows the next start; zero: entries wait for permits of running entries
	vainClaims     int             // claims in a row that brought nothing
}

func (g *gate) opensAt() time.Time {
	if g.permitOpensAt.After(g.rateOpensAt) {
		return g.permitOpensAt
	}
	return g.rateOpensAt
}

func (g *gate) countClaimable(limit *processlog.StartLimit, now time.Time) int {
	switch {
	case g.isKeyed || !g.hasResult:
		return engine.Checked
	case now.Before(g.opensAt()):
		return 0
	}
	starts := g.room.Starts
	if elapsed := now.Sub(g.claimedAt) - g.room.Next; limit.Interval > 0 && elapsed >= 0 {
		starts = min(limit.Burst, starts+1+int(min(elapsed/limit.Interval, processlog.MaxBurst)))
	}
	return max(1, min(starts, g.room.Permits+g.endedPermits)) // At least one, because the answer of the last claim may be out of date.
}

func (g *gate) noteClaim(claim *processlog.Claimed, limit *processlog.StartLimit, now time.Time) {
	room, hasRoom := claim.Rooms[""]
	if !hasRoom {
		return // No entry of the claim needed a permit.
	}
	g.hasResult, g.room, g.claimedAt, g.endedPermits = true, room, now, 0
	g.rateOpensAt, g.permitOpensAt, g.nextClaimAt, g.nextStartAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	g.waitingEntries = len(claim.Limited)
	hasLimited := len(claim.Limited) > 0
	if hasLimited && len(claim.Mine) == 0 {
		g.vainClaims++
	} else {
		g.vainClaims = 0
	}
	if room.Starts == 0 {
		g.nextStartAt = now.Add(room.Next)
		// If the claim got fewer starts than expected, other processes took the missing starts.
		isShared := hasLimited && len(claim.Mine) > 0 && len(claim.Mine) < startsPerClaim(limit, false)
		gatherDelay := time.Duration(startsPerClaim(limit, isShared)-1) * limit.Interval
		g.rateOpensAt = now.Add(min(room.Next+gatherDelay, maxGateWait))
		if g.vainClaims > 0 {
			firstWait := min(maxVainWait, gatherDelay+limit.Interval) // An Interval of months must not overflow when it is doubled.
			g.rateOpensAt = g.rateOpensAt.Add(jitter.N(min(maxVainWait, firstWait<<min(g.vainClaims, 10))))
		}
	}
	if room.Permits == 0 {
		g.permitOpensAt = now.Add(jitter.N(min(maxPermitPoll, permitPoll<<min(g.vainClaims, 10))) + permitPoll)
	}
	for i := range claim.Limited {
		claim.Limited[i].In = 0 // The gate delays the whole type, so the entries need no wait of their own.
	}
	if hasLimited {
		g.nextClaimAt = g.opensAt()
	}
}

// reportWaiting returns how many entries wait for the limit, and the time of the next start. The number comes from the
// last claim, because nobody counts the entries while the gate is closed. The parameter hasMore says whether further
// entries of the type are probably due. If hasMore is true, the number is at least 1.
func (g *gate) reportWaiting(now time.Time, hasMore bool) (waiting int, nextStartAt time.Time) {
	if now.Sub(g.opensAt()) > reportGrace {
		return 0, time.Time{}
	}
	if hasMore {
		return max(1, g.waitingEntries), g.nextStartAt
	}
	return g.waitingEntries, g.nextStartAt
}

// startsPerClaim returns for how many free starts this process waits before the next claim of the type. So one claim
// can start several entries.
//
// The number is at most two thirds of limit.Burst. While limit.Burst starts are free, the limit adds no further start.
// So if the process waited for all of them, each further delay of the claim would waste starts. If other processes
// share the limit, the number is at most limit.Burst - 1.
func startsPerClaim(limit *processlog.StartLimit, isShared bool) int {
	if limit.Interval == 0 {
		return 1
	}
	if isShared {
		return max(1, min(limit.Burst-1, int(maxSharedGatherTime/limit.Interval)))
	}
	return max(1, min(limit.Burst*2/3, int(maxGatherTime/limit.Interval)))
}

func (g *gate) notePermitEnd() bool {
	g.endedPermits++
	isAwaited := !g.permitOpensAt.IsZero()
	g.permitOpensAt = time.Time{}
	return isAwaited
}
