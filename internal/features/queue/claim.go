package queue

import (
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/grouped"
	"github.com/compensator-go/compensator/internal/jitter"
	"github.com/compensator-go/compensator/processlog"
)

// claimDue claims due entries that the queue offers. If the queue does not answer, or holds only a part of the due
// entries, claimDue also claims from the database.
func (q *Queue) claimDue(t *engine.Type, calls int, backlog bool) engine.ClaimResult {
	before := q.claims.of(t.Name)
	if !q.health.usable() {
		return q.claimFromStore(t, calls)
	}
	n := before.entriesToRequest(t.MaxEntries(calls))
	leased, ok := q.lease(t, n)
	if !ok {
		return q.claimFromStore(t, calls)
	}
	result := q.claimLeased(t, leased, calls, n)
	// The queue may lack due entries in two cases: the field Lost says so, or the parameter backlog is true. Then also
	// claim from the database. Do not claim from the database if claimLeased got an error, because this claim would
	// fail, too. Do not claim either if all slots are taken.
	if (backlog || leased.Lost) && result.Err == nil && !result.Full {
		return q.alsoFromStore(t, calls, result)
	}
	// While the queue works, no claim reads the database. So a problem of an earlier read of due entries would stay,
	// unless this call ends it.
	q.e.Problems.Passed(engine.ProblemDue, t.Name)
	if delay := q.claims.asked(t.Name, len(leased.IDs), result); delay > 0 {
		// Without the minimum, the sum would overflow if NextDueIn is processlog.Never, the longest duration.
		result.NextDueIn = min(max(0, result.NextDueIn), processlog.Never-delay) + delay
	}
	return result
}

func (q *Queue) claimFromStore(t *engine.Type, calls int) engine.ClaimResult {
	result := q.e.ClaimFromStore(t, calls)
	if result.Err == nil {
		q.claims.change(t.Name, func(c *typeClaims) { c.emptyClaims = 0 })
	}
	return result
}

// lease asks the queue for up to n due entries. The queue offers these entries to no other process. If the queue does
// not answer, lease returns false.
func (q *Queue) lease(t *engine.Type, n int) (processlog.Leased, bool) {
	ctx, cancel := q.call()
	defer cancel()
	leased, err := q.Queue.Claim(ctx, t.Name, n, t.Lease)
	q.health.recordResult(err)
	if err != nil {
		return processlog.Leased{}, false
	}
	if leased.Lost {
		q.losses.add(t.Name)
	}
	return leased, true
}

// claimLeased claims in the database the entries that the queue has leased to this process. The argument n is the
// number of entries that the queue was asked for.
func (q *Queue) claimLeased(t *engine.Type, leased processlog.Leased, calls, n int) engine.ClaimResult {
	held := t.SlotsToSearch(calls)
	needed := q.e.AdjustSlots(t, held, min(held, t.CallsFor(len(leased.IDs))))
	if len(leased.IDs) == 0 {
		return engine.ClaimResult{NextDueIn: leased.Next}
	}
	failpoint.Reach(failpoint.QueueClaimed)
	offered, runnable, full := len(leased.IDs), len(leased.IDs), len(leased.IDs) == n
	if t.IsOrdered() {
		unblocked, err := q.removeBlocked(t, leased)
		if err != nil {
			q.e.AdjustSlots(t, held, 0)
			q.settleUnclaimed(t, leased, engine.ClaimedRows{}, err)
			return engine.ClaimResult{Err: err}
		}
		runnable = len(unblocked)
		q.claims.answered(t.Name, offered, runnable)
		// Take slots for the unblocked entries. Entries without a slot go back to the queue.
		needed = q.e.AdjustSlots(t, held, min(calls, t.CallsFor(runnable)))
		count := min(runnable, t.MaxEntries(needed))
		q.settleUnclaimed(t, leased, engine.ClaimedRows{WithoutCall: unblocked[count:]}, nil)
		if leased.IDs = unblocked[:count]; count == 0 {
			return engine.ClaimResult{Full: full, NextDueIn: leased.Next}
		}
	}
	return q.e.ClaimOffered(t, leased, needed, full, func(found engine.ClaimedRows, err error) {
		q.settleUnclaimed(t, leased, found, err)
		q.claims.answered(t.Name, offered, runnable-found.LimitedLater())
	})
}

// removeBlocked removes blocked entries from the queue. A blocked entry waits for the end of an earlier entry with the
// same ordering key. The removal is safe, because the end of the earlier entry enqueues or claims the blocked entry.
func (q *Queue) removeBlocked(t *engine.Type, leased processlog.Leased) (unblocked []processlog.ID, err error) {
	ctx, cancel := q.e.Statement()
	defer cancel()
	blocked, err := t.Order().Blocked(ctx, leased.IDs)
	if err != nil {
		return nil, err
	}
	for _, id := range blocked {
		q.settle(t.Name, processlog.QueueOutcome{ID: id, Token: leased.Token, Remove: true})
	}
	return grouped.Without(leased.IDs, blocked), nil
}

// settleUnclaimed tells the queue what to do with the leased entries that were not claimed. The queue has leased these
// entries to this process. Without the call of settleUnclaimed, the queue would offer the entries to no process until
// this lease ends.
func (q *Queue) settleUnclaimed(t *engine.Type, leased processlog.Leased, found engine.ClaimedRows, err error) {
	settle := func(id processlog.ID, outcome processlog.QueueOutcome) {
		outcome.ID, outcome.Token = id, leased.Token
		q.settle(t.Name, outcome)
	}
	if err != nil {
		for _, id := range leased.IDs {
			// Without the random part, all processes would claim from the same database at the same moment.
			settle(id, processlog.QueueOutcome{In: processlog.LockedRetry + jitter.N(10*processlog.LockedRetry)})
		}
	}
	for _, id := range found.Gone {
		// Remove the entry, because each further offer of the entry would cost a claim.
		settle(id, processlog.QueueOutcome{Remove: true})
	}
	for _, id := range found.WithoutCall {
		settle(id, processlog.QueueOutcome{})
	}
	for _, entry := range q.e.Unleased(t, found) {
		// A row of another business type does not belong to the queue of this type, so remove its id. The queue may
		// have a wrong id, because the queue is only a hint. See promise G10.
		settle(entry.ID, processlog.QueueOutcome{Remove: entry.BusinessType != t.Name, In: entry.In})
	}
}

func (q *Queue) alsoFromStore(t *engine.Type, calls int, result engine.ClaimResult) engine.ClaimResult {
	// Schedule a claim for the time at which the queue's next entry is due. This must happen here, because the result
	// of alsoFromStore is only the result of the claim from the database. That result does not contain the time from
	// the queue.
	q.e.Expect(t.Name, result.NextDueIn)
	// claimLeased has released the slots that it did not need.
	held := t.Slots().Take(t.SlotsToSearch(calls))
	if held == 0 {
		result.Full = true
		return result
	}
	if !t.IsOrdered() {
		calls = held
	}
	return q.claimFromStore(t, calls)
}

// Notified schedules a claim of a type, because another process has reported a due entry of the type. If the queue had
// no due entry for the last claims of this process, other processes were faster. The claim then gets a random delay.
// The more claims in a row were empty, the longer the delay can be.
func (q *Queue) Notified(businessType string) {
	q.e.Expect(businessType, q.claims.of(businessType).raceDelay())
}

type claims struct {
	mu     sync.Mutex // guards byType
	byType map[string]*typeClaims
}

type typeClaims struct {
	// offered is how many entries the queue offered to the last claim, and runnable is how many of these were neither
	// blocked nor limited. If few are runnable, the next claim asks for more entries than there are slots.
	offered, runnable int

	emptyClaims int // consecutive claims for which the queue had nothing due
}

const (
	// wakeSpread is the unit of a random delay before the next claim. The delay is at most wakeSpread times
	// emptyClaims, where maxEmptyClaims limits the factor. So processes that wake for the same entry do not claim at
	// the same moment.
	wakeSpread     = time.Millisecond
	maxEmptyClaims = 5
)

// entriesToRequest returns how many entries a claim with n free slots requests from the queue. It assumes that the
// share of runnable entries is the same as in the last claim.
func (c typeClaims) entriesToRequest(n int) int {
	if c.offered == 0 {
		return n
	}
	return max(n, min(n*c.offered/max(1, c.runnable), processlog.MaxRows))
}

func (c typeClaims) raceDelay() time.Duration {
	if c.emptyClaims == 0 {
		return 0
	}
	return jitter.N(time.Duration(min(c.emptyClaims, maxEmptyClaims)) * wakeSpread)
}

func (c *claims) of(businessType string) typeClaims {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.byType[businessType]; t != nil {
		return *t
	}
	return typeClaims{}
}

func (c *claims) change(businessType string, change func(t *typeClaims)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.byType[businessType]
	if t == nil {
		t = new(typeClaims)
		c.byType[businessType] = t
	}
	change(t)
}

func (c *claims) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byType = make(map[string]*typeClaims)
}

func (c *claims) answered(businessType string, offered, runnable int) {
	c.change(businessType, func(t *typeClaims) { t.offered, t.runnable = offered, runnable })
}

func (c *claims) asked(businessType string, offered int, result engine.ClaimResult) (delay time.Duration) {
	if result.Err != nil {
		return 0
	}
	c.change(businessType, func(t *typeClaims) {
		if t.emptyClaims++; offered > 0 {
			t.emptyClaims = 0
		}
		delay = t.raceDelay()
	})
	return delay
}
