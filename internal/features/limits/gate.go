package limits

import (
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/jitter"
	"github.com/compensator-go/compensator/processlog"
)

const (
	// gatherTime limits how long a type whose rate is used up waits, so that one claim can take several starts.
	gatherTime = 150 * time.Millisecond

	// mostVainWait limits the extra random wait after claims that got no start because other processes took all of
	// them. The limit of the extra wait doubles with each such claim in a row.
	mostVainWait = 400 * time.Millisecond

	// A process that waits for a permit of another process claims again after permitPoll plus a random time. The random
	// time is at most permitPoll at first. Its limit doubles with each claim that got nothing, up to mostPermitPoll.
	permitPoll     = 50 * time.Millisecond
	mostPermitPoll = time.Second

	// mostGateWait limits how long a gate stays closed. A closed gate does not see that other processes return starts,
	// or run with a new limit.
	mostGateWait = 5 * time.Second
)

// reportGrace is how long a gate that has opened still reports the entries that waited behind it. The next claim follows within
// this time.
const reportGrace = time.Second

// gate estimates how many entries of a type are worth a claim, for a limit without keys. The estimate starts from the
// result of the last claim. The zero value is open for the first claim.
type gate struct {
	open bool // the limit has keys, so the type is always worth a claim

	known    bool
	left     processlog.Room // after the last claim
	at       time.Time       // when that claim was answered
	ended    int             // permits that have ended here since
	rate     time.Time       // no claim before, because the rate is used up
	permit   time.Time       // no claim before, because all permits are held
	expected time.Time       // when a limited entry is worth a claim; zero: none waits
	waiting  int             // entries that the last claim found without a permit
	free     time.Time       // when the rate allows the next start; zero: entries wait for permits of running entries
	vain     int             // claims in a row that brought nothing
}

// until returns when the gate opens.
func (g *gate) until() time.Time {
	if g.permit.After(g.rate) {
		return g.permit
	}
	return g.rate
}

// room returns how many entries are worth a claim now.
func (g *gate) room(limit *processlog.StartLimit, now time.Time) int {
	switch {
	case g.open || !g.known:
		return engine.Unlimited - 1
	case now.Before(g.until()):
		return 0
	}
	starts := g.left.Starts
	if since := now.Sub(g.at) - g.left.Next; limit.Interval > 0 && since >= 0 {
		starts = min(limit.Burst, starts+1+int(min(since/limit.Interval, processlog.MaxBurst)))
	}
	return max(1, min(starts, g.left.Permits+g.ended)) // At least one, because the answer of the last claim may be out of date.
}

// claimed notes the result of a claim.
func (g *gate) claimed(found *processlog.Claimed, limit *processlog.StartLimit, now time.Time) {
	left, read := found.Rooms[""]
	if !read {
		return // No entry of the claim needed a permit.
	}
	g.known, g.left, g.at, g.ended = true, left, now, 0
	g.rate, g.permit, g.expected, g.free = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	g.waiting = len(found.Limited)
	limited := len(found.Limited) > 0
	if limited && len(found.Mine) == 0 {
		g.vain++
	} else {
		g.vain = 0
	}
	if left.Starts == 0 {
		g.free = now.Add(left.Next)
		gathered := time.Duration(gather(limit)-1) * limit.Interval
		g.rate = now.Add(min(left.Next+gathered, mostGateWait))
		if g.vain > 0 {
			g.rate = g.rate.Add(jitter.N(min(mostVainWait, (gathered+limit.Interval)<<min(g.vain, 10))))
		}
	}
	if left.Permits == 0 {
		g.permit = now.Add(jitter.N(min(mostPermitPoll, permitPoll<<min(g.vain, 10))) + permitPoll)
	}
	for i := range found.Limited {
		found.Limited[i].In = 0 // The gate delays the whole type, so the entries need no wait of their own.
	}
	if limited {
		g.expected = g.until()
	}
}

// report returns how many entries are known to wait, and when the first of them may start. more says whether more
// entries are due than were claimed. While the gate is closed nobody claims them, so their number is unknown and they
// count as one.
func (g *gate) report(now time.Time, more bool) (waiting int, free time.Time) {
	if now.Sub(g.until()) > reportGrace {
		return 0, time.Time{}
	}
	if more {
		return max(1, g.waiting), g.free
	}
	return g.waiting, g.free
}

// gather returns how many starts the rate must allow before the next claim is made. The result is at most two thirds of
// the burst, or 1. The rate never allows more starts at once than the burst. So if the next claim waited for the whole
// burst and came late, the starts of the delay would be lost.
func gather(limit *processlog.StartLimit) int {
	if limit.Interval == 0 {
		return 1
	}
	return max(1, min(limit.Burst*2/3, int(gatherTime/limit.Interval)))
}

// permitEnded notes that a permit of this process has ended. It reports whether an entry may wait for it.
func (g *gate) permitEnded() bool {
	g.ended++
	waited := !g.permit.IsZero()
	g.permit = time.Time{}
	return waited
}
