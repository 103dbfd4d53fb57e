package engine

import (
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/groupcommit"
	"github.com/compensator-go/compensator/internal/grouped"
	"github.com/compensator-go/compensator/internal/jitter"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// settlement is an attempt's outcome on its way to the database.
type settlement struct {
	a           *Attempt
	outcome     processlog.Outcome
	token       processlog.Token // it was handed in under, which tells whether it was stored; zero: not yet
	deadLetters bool             // for lost leases: nobody has reported it
	prepared    bool             // the settlements have added to it
	refused     int              // how many times the database has refused to write its row
	stops       uint64           // how many stops had begun when it was last refused
}

// settler stores outcomes, the database first and the queue second. A process that dies in between leaves the queue an
// entry that has ended, which a claim finds out; the other way round the queue would know nothing of one that has not.
type settler struct {
	*Base
	claimSchedule    *claimSchedule
	source           *source
	holdings         *holdings
	rollbackDetector *rollbackDetector
	refusals         *refusals

	batcher groupcommit.Batcher[settlement] // outcomes are written
	prompt  groupcommit.Batcher[settlement] // so are those that the next entry of a key waits for
	slow    groupcommit.Batcher[settlement] // those of rows that others hold wait
	refused groupcommit.Batcher[settlement] // those of rows that the database refuses to write rest

	refusing atomic.Bool   // the last outcomes of refused that were offered again were refused again
	stops    atomic.Uint64 // how many stops have begun
	hurry    chan struct{} // of capacity 1: a token ends the rest of refused outcomes

	settlements []Settlement // of features
}

// refusedAtOnce is how many refused outcomes are offered again together. Refused again they cost about twice as many statements.
const refusedAtOnce = 32

// settlePace is how long an outcome waits for others at most: its handler has left its slot already, and nobody waits
// for it.
const settlePace = 5 * time.Millisecond

// promptPace is settlePace for an outcome that the next entry of its key waits for.
const promptPace = time.Millisecond

// withBatchers makes what it hands outcomes to.
func (s *settler) withBatchers() *settler {
	s.prompt.Max, s.prompt.Workers, s.prompt.Pace, s.prompt.Flush = processlog.MaxRows, 2, groupcommit.Pace{Most: promptPace}, s.settlePrompt
	s.batcher.Max, s.batcher.Workers, s.batcher.Pace, s.batcher.Flush = processlog.MaxRows, 2, groupcommit.Pace{Most: settlePace}, s.settleBatch
	s.slow.Max, s.slow.Workers, s.slow.Flush = processlog.MaxRows, 1, s.settleSlowly
	s.refused.Max, s.refused.Workers, s.refused.Flush = refusedAtOnce, 1, s.settleRefused
	s.hurry = make(chan struct{}, 1)
	return s
}

// store has an outcome written.
func (s *settler) store(done settlement) {
	if s.isPrompt(done.a) {
		s.prompt.Add(done)
	} else {
		s.batcher.Add(done)
	}
}

// settlePrompt writes outcomes that something waits for.
func (s *settler) settlePrompt(batch []settlement) {
	answered := s.storing(batch)
	s.settle(batch, answered)
	answered()
}

// settleBatch writes outcomes that nothing waits for.
func (s *settler) settleBatch(batch []settlement) { s.settle(batch, func() {}) }

// settle writes outcomes, one of each entry at a time. failed is called when a try fails.
func (s *settler) settle(batch []settlement, failed func()) {
	var twice []settlement // a second attempt of an entry in this batch: its turn comes next
	// A statement names an entry once. A person's Requeue makes a second attempt beside the one before, a dead-lettering
	// comes beside its stuck handler's own word.
	seen := make(map[processlog.ID]bool, len(batch))
	batch = slices.DeleteFunc(batch, func(o settlement) bool {
		again := seen[o.outcome.ID]
		if seen[o.outcome.ID] = true; again {
			twice = append(twice, o)
		}
		return again
	})
	if len(twice) > 0 {
		s.batcher.Add(twice...)
	}
	// What was offered before, and may have been written, goes under the token of that try, which tells it from
	// another's write (G8).
	byToken := grouped.By(batch, func(o settlement) processlog.Token { return o.token })
	for _, token := range byToken.Order {
		if group := byToken.Groups[token]; token == (processlog.Token{}) {
			s.settleUnder(processlog.NewToken(), group, failed)
		} else {
			s.settleUnder(token, group, failed)
		}
	}
}

// settleUnder writes outcomes that share a token.
func (s *settler) settleUnder(token processlog.Token, batch []settlement, failed func()) {
	for i := range batch {
		batch[i].token = token // before it is sent: a row that is busy comes again under it
		if !batch[i].prepared {
			batch[i].prepared = true
			s.prepare(batch[i].a, &batch[i].outcome)
		}
	}
	failpoint.Reach(failpoint.OutcomesNext)
	batch, results, asked := s.writeOutcomes(token, batch, failed)
	failpoint.Reach(failpoint.OutcomesStored)
	s.rollbackDetector.remembered.sawStored(batch, results, asked)
	s.noteRefused(batch, results)
	for i, r := range results {
		s.settled(batch[i], r)
	}
}

// noteRefused tells of the rows that the database refuses to write.
func (s *settler) noteRefused(batch []settlement, results []processlog.Settled) {
	var list map[string][]processlog.Refusal // by type
	for i, r := range results {
		if r.Refused != nil {
			name := batch[i].a.Type.Name
			setIn(&list, name, append(list[name], processlog.Refusal{ID: batch[i].outcome.ID, Err: r.Refused}))
		}
	}
	for name, refused := range list {
		s.refusals.note(problemRefusedOutcome, name, refused)
	}
}

// writeOutcomes keeps trying, with the same token, until the database has answered: a handler that has run must not run
// again because of a deadlock or a restart. What was applied by a try whose answer was lost is recognised. It returns no
// results only when the Compensator is closed before the database has answered, or nothing is left to be written.
func (s *settler) writeOutcomes(token processlog.Token, batch []settlement, failed func()) ([]settlement, []processlog.Settled, time.Time) {
	for failures := 1; ; failures++ {
		if batch = s.withdraw(batch); len(batch) == 0 {
			return nil, nil, time.Time{}
		}
		// Neither Run's context nor a handler's: what was done is stored also while Run stops (G15).
		ctx, cancel := s.Statement()
		asked := time.Now() // of the try that is answered: what a person has accepted meanwhile speaks of before (G19)
		results, err := s.Store.Settle(ctx, token, outcomesOf(batch))
		cancel()
		// Rows that are all locked, by a session that was lost while it wrote them perhaps, tell nothing of whether others can be.
		if err != nil || slices.ContainsFunc(results, func(r processlog.Settled) bool { return !r.Busy }) {
			s.Saw(problemStore, err)
		}
		if err == nil {
			return batch, results, asked
		}
		failed()
		if !s.Wait(delay(settleBackoff, failures)) {
			return nil, nil, time.Time{}
		}
	}
}

// withdraw leaves out of a batch what would take out entries whose stuck handlers have returned: what they report comes
// first.
func (s *settler) withdraw(batch []settlement) []settlement {
	return slices.DeleteFunc(batch, func(w settlement) bool {
		if !w.deadLetters {
			return false
		}
		held, stuck := s.holdings.holds(&w.a.Row)
		return held != nil && !stuck
	})
}

func outcomesOf(batch []settlement) []processlog.Outcome {
	outcomes := make([]processlog.Outcome, len(batch))
	for i := range batch {
		outcomes[i] = batch[i].outcome
	}
	return outcomes
}

// maxWaitingOutcomes is how far the database may be behind with outcomes before no more entries are claimed: more
// attempts would only wait there.
const maxWaitingOutcomes = 4 * processlog.MaxRows

func (s *settler) behind() bool { return s.batcher.Size()+s.prompt.Size() > maxWaitingOutcomes }

var settleBackoff = jitter.Exponential(200*time.Millisecond, stopGrace/2) // a stop sees one more try

// settled deals with the answer to one outcome.
func (s *settler) settled(done settlement, r processlog.Settled) {
	a, o := done.a, done.outcome
	if r.Busy || r.Refused != nil {
		// The entry stays held: its lease is renewed, and no claim here takes it, until its outcome is stored.
		s.wait(done, r)
		return
	}
	s.holdings.forget(a)
	s.refusals.taken(problemRefusedOutcome, a.Type.Name, o.ID)
	ctx := a.ctx
	if ctx == nil {
		ctx = s.Work
	}
	event := observe.SettledEvent{
		Context: ctx, ID: o.ID, IdempotencyKey: a.Row.IdempotencyKey, BusinessType: a.Type.Name, BusinessID: a.Row.BusinessID,
		State: o.To, EndedBy: o.EndedBy, Attempt: a.Row.Attempt(),
	}
	if completed(o, r) {
		// Nobody else tells of it: who completes an entry has no outcome to settle.
		event.EndedBy = r.EndedBy
		s.dropped(a)
		Tell(s.Base, s.Observer.Settled, event)
		return // the completion itself has told the queue, and those that wait for the entry
	}
	if !r.Applied {
		// Somebody else has moved the entry on: losing that race is a result, not an error.
		event.State, event.EndedBy = r.State, ""
		s.Log.Log(ctx, droppedLevel(o, r), "compensator: outcome dropped: the entry has moved on", "entry", o.ID, "type", a.Type.Name, "reported", o.To, "state", r.State)
		s.dropped(a)
		Tell(s.Base, s.Observer.OutcomeDropped, event)
		return // its queue entry is somebody else's now, or comes back and is found out
	}
	if o.To == processlog.Dead {
		s.Log.ErrorContext(ctx, "compensator: entry waits for a person", "entry", o.ID, "type", a.Type.Name, "idempotent_id", a.Row.IdempotencyKey,
			"business_id", a.Row.BusinessID, "attempt", event.Attempt, "ended_by", o.EndedBy, "err", o.LastError)
	}
	Tell(s.Base, s.Observer.Settled, event)
	s.notifyQueue(a, o)
	s.stored(a, o.To)
}

// wait keeps an outcome that could not be written for now, apart from those that can.
func (s *settler) wait(done settlement, r processlog.Settled) {
	if r.Refused != nil {
		done.refused++
		done.stops = s.stops.Load()
		s.refusing.Store(true)
		done.a.left(NotRun) // it has not killed the process, and may wait for as long as the database refuses it
	}
	if done.refused > 0 {
		s.refused.Add(done)
		return
	}
	s.slow.Add(done)
}

// settleRefused offers outcomes again that the database has refused. While it goes on refusing them it rests before each batch,
// unless Run has begun to stop since one of them was refused.
func (s *settler) settleRefused(batch []settlement) {
	most, stops, stopping := 1, s.stops.Load(), false
	for _, o := range batch {
		most = max(most, o.refused)
		stopping = stopping || o.stops < stops
	}
	if s.refusing.Swap(false) && !stopping && !s.restRefused(refusalPause(most)) {
		return
	}
	s.settleBatch(batch)
}

// restRefused waits until the pause is over or Run begins to stop. It returns false when the engine is closed meanwhile.
func (s *settler) restRefused(pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.hurry:
		return true
	case <-s.Work.Done():
		return false
	}
}

// offerRefused offers every refused outcome once more when Run stops, because the database may take it by now. It waits for the
// answers for stopGrace at most. Its error names what is still not stored.
func (s *settler) offerRefused() error {
	before := s.refusals.outcomesTried()
	if len(before) == 0 {
		return nil
	}
	s.stops.Add(1)
	select {
	case s.hurry <- struct{}{}:
	default:
	}
	timer := time.NewTimer(stopGrace)
	defer timer.Stop()
	for s.refusals.outcomesWait(before) {
		select {
		case <-s.refusals.answered:
		case <-timer.C:
			return s.refusals.unstored()
		}
	}
	return s.refusals.unstored()
}

// completed reports whether a success was not stored because the entry had been completed, by its own handler for example: what the
// handler reports and what the entry says is the same.
func completed(o processlog.Outcome, r processlog.Settled) bool {
	return !r.Applied && o.EndedBy == processlog.EndedByHandler && o.To == processlog.Succeeded &&
		r.State == processlog.Succeeded && r.EndedBy == processlog.EndedByComplete
}

// droppedLevel: work that was done, and that the log tells otherwise, is a person's business.
func droppedLevel(o processlog.Outcome, r processlog.Settled) slog.Level {
	if o.EndedBy == processlog.EndedByHandler && r.State != o.To {
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// settleSlowly offers outcomes again whose rows another transaction holds. They wait here, not where they
// would hold up the others: each offer may cost a wait for the lock.
func (s *settler) settleSlowly(batch []settlement) {
	if s.Wait(processlog.LockedRetry) {
		s.settleBatch(batch)
	}
}

// notifyQueue removes what is finished and makes the rest due again.
func (s *settler) notifyQueue(a *Attempt, o processlog.Outcome) {
	if !o.To.Terminal() {
		s.offerAgain(a, processlog.DueIn(o.After))
	} else if a.token != 0 {
		s.source.Settle(a.Type.Name, processlog.QueueOutcome{ID: o.ID, Token: a.token, Remove: true}) // a lost one heals when its lease ends
	}
}

// offerAgain makes an entry due again.
func (s *settler) offerAgain(a *Attempt, in time.Duration) {
	if a.token != 0 {
		s.source.Settle(a.Type.Name, processlog.QueueOutcome{ID: a.Row.ID, Token: a.token, In: in})
	} else {
		s.source.Move(processlog.QueueEntry{BusinessType: a.Type.Name, ID: a.Row.ID, In: in}) // it may be there, leased to a process that died
	}
	s.claimSchedule.expect(a.Type.Name, in)
}

// Backoff returns how long to wait after so many failures in a row of a statement that is tried until it succeeds.
func Backoff(failures int) time.Duration { return delay(settleBackoff, failures) }
