package queue

import (
	"sync"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/grouped"
	"github.com/compensator-go/compensator/internal/jitter"
	"github.com/compensator-go/compensator/processlog"
)

// ClaimDue implements engine.Source. It claims entries that the queue reports as due. It also claims from the database
// if the queue does not answer or holds only a part of the due entries.
func (q *Queue) ClaimDue(t *engine.Type, calls int) engine.ClaimResult {
	hasBacklog := q.e.HasBacklog(t)
	if !q.health.usable() {
		return q.e.ClaimFromStore(t, calls)
	}
	n := q.requests.size(t, t.MaxEntries(calls))
	leased, ok := q.lease(t, n)
	if !ok {
		return q.e.ClaimFromStore(t, calls)
	}
	result := q.claimLeased(t, leased, calls, n)
	// The queue returned fewer entries than there are slots, and the database may hold more. After an error do not ask
	// again, because the database would refuse again.
	if (hasBacklog || leased.Lost) && result.Err == nil && !result.Full {
		return q.alsoFromStore(t, calls, result)
	}
	q.e.Problems.Passed(engine.ProblemDue, t.Name) // the queue works again, so no later read of the database would clear this problem
	return result
}

// lease takes up to n due entries from the queue. The queue leases them: for the lease time of t it offers them to no other
// process. lease returns false if the queue does not answer.
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

// claimLeased claims entries that the queue has leased to this process. n is how many entries the queue was asked for.
func (q *Queue) claimLeased(t *engine.Type, leased processlog.Leased, calls, n int) engine.ClaimResult {
	held := t.SlotsToSearch(calls)
	needed := q.e.AdjustSlots(t, held, min(held, t.CallsFor(len(leased.IDs))))
	if len(leased.IDs) == 0 {
		return engine.ClaimResult{SourceEmpty: true, NextDueIn: leased.Next}
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
		q.requests.record(t, offered, runnable)
		// Take slots for the entries that are left. Those without a slot go back to the queue.
		needed = q.e.AdjustSlots(t, held, min(calls, t.CallsFor(runnable)))
		count := min(runnable, t.MaxEntries(needed))
		q.settleUnclaimed(t, leased, engine.ClaimedRows{WithoutCall: unblocked[count:]}, nil)
		if leased.IDs = unblocked[:count]; count == 0 {
			return engine.ClaimResult{Full: full, NextDueIn: leased.Next}
		}
	}
	return q.e.ClaimOffered(t, leased, needed, full, func(found engine.ClaimedRows, err error) {
		q.settleUnclaimed(t, leased, found, err)
		q.requests.record(t, offered, runnable-found.LimitedLater())
	})
}

// removeBlocked removes the blocked entries from the queue, and returns the others. When the earlier entry of the key ends,
// the blocked entry is enqueued again or claimed directly.
func (q *Queue) removeBlocked(t *engine.Type, leased processlog.Leased) (unblocked []processlog.ID, err error) {
	ctx, cancel := q.e.Statement()
	defer cancel()
	blocked, err := t.Blocked(ctx, leased.IDs)
	if err != nil {
		return nil, err
	}
	for _, id := range blocked {
		q.Settle(t.Name, processlog.QueueOutcome{ID: id, Token: leased.Token, Remove: true})
	}
	return grouped.Without(leased.IDs, blocked), nil
}

// settleUnclaimed settles the queue's leases of entries that were not claimed. Gone entries are removed, and the others
// come due again. Without this, the queue would offer them to no process until its lease ends.
func (q *Queue) settleUnclaimed(t *engine.Type, leased processlog.Leased, found engine.ClaimedRows, err error) {
	settle := func(id processlog.ID, outcome processlog.QueueOutcome) {
		outcome.ID, outcome.Token = id, leased.Token
		q.Settle(t.Name, outcome)
	}
	if err != nil {
		for _, id := range leased.IDs {
			// The result of the claim is unknown, and the leases it may have taken are released. Spread the entries over
			// time, because other processes use the same database.
			settle(id, processlog.QueueOutcome{In: processlog.LockedRetry + jitter.N(10*processlog.LockedRetry)})
		}
	}
	for _, id := range found.Gone {
		// The entry has ended or was never committed. Each further offer would cost a claim.
		settle(id, processlog.QueueOutcome{Remove: true})
	}
	for _, w := range found.Waiting {
		settle(w.ID, processlog.QueueOutcome{In: w.In})
	}
	for _, l := range found.Limited {
		settle(l.ID, processlog.QueueOutcome{In: l.In})
	}
	for _, id := range found.WithoutCall {
		settle(id, processlog.QueueOutcome{}) // for any process with a free call, perhaps this one
	}
	for _, r := range found.Rejected {
		settle(r.ID, processlog.QueueOutcome{In: q.e.Refusals.PauseLeft(t.Name, r.ID)})
	}
	for i := range found.Refused {
		// A row of another type under this id does not belong to this queue, so remove the id (G10).
		settle(found.Refused[i].ID, processlog.QueueOutcome{Remove: found.Refused[i].BusinessType != t.Name, In: engine.RefusedRetry})
	}
}

// alsoFromStore claims from the database after the queue has returned fewer entries than asked for.
func (q *Queue) alsoFromStore(t *engine.Type, calls int, result engine.ClaimResult) engine.ClaimResult {
	// Schedule the queue's next due time now, because the database's answer says nothing about later entries.
	q.e.Expect(t.Name, result.NextDueIn)
	// claimLeased has released the slots that it did not need. Take slots again.
	held := t.Slots().Take(t.SlotsToSearch(calls))
	if held == 0 {
		result.Full = true // claim again as soon as a slot is free
		return result
	}
	if !t.IsOrdered() {
		calls = held
	}
	return q.e.ClaimFromStore(t, calls)
}

// requests knows how many of the entries that the queue offered could run. A claim that asks for as many entries as there
// are slots could get only blocked or limited ones, again and again.
type requests struct {
	mu     sync.Mutex // guards byType
	byType map[string]answeredRequest
}

// answeredRequest is what the queue answered to the last claim of a type. runnable entries were neither blocked nor limited.
type answeredRequest struct{ offered, runnable int }

// size returns how many entries to ask for, so that about n of them can run. It assumes the same share as in the last
// claim.
func (r *requests) size(t *engine.Type, n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.byType[t.Name]
	if last.offered == 0 {
		return n
	}
	return max(n, min(n*last.offered/max(1, last.runnable), processlog.MaxRows))
}

func (r *requests) record(t *engine.Type, offered, runnable int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byType[t.Name] = answeredRequest{offered, runnable}
}

// reset forgets all answers.
func (r *requests) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byType = make(map[string]answeredRequest)
}
