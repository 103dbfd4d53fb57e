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
	"github.com/compensator-go/compensator/internal/refusals"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// pendingOutcome is an attempt's outcome that waits to be written to the database.
type pendingOutcome struct {
	attempt     *Attempt
	outcome     processlog.Outcome
	token       processlog.Token // each try writes it with the outcome, so that a later try recognises that the outcome is stored; zero before the first try
	deadLetters bool             // dead-letters the entry for lost leases; no handler reported this outcome
	prepared    bool             // Settlement.Prepare was called for the outcome
}

// outcomes holds the outcomes that wait to be stored.
//
// An outcome is stored in the database first. After that, the queue is notified. If the process dies in between, the queue
// keeps an entry that has ended. The next claim finds that out and removes the entry from the queue. In the other order,
// the queue could lose an entry that has not ended.
type outcomes struct {
	ordinary groupcommit.Batcher[pendingOutcome] // writes outcomes that nothing waits for
	prompt   groupcommit.Batcher[pendingOutcome] // writes outcomes that the next entry of an ordering key waits for
	locked   groupcommit.Batcher[pendingOutcome] // retries outcomes whose rows are locked by other transactions
	refused  groupcommit.Batcher[pendingOutcome] // retries outcomes that the database has refused to write

	backloggedSince atomic.Pointer[time.Time] // when OutcomesBacklogged began to return true; nil if it last returned false
}

// refusedBatchSize is how many refused outcomes are retried together. If the database refuses them again, the retry costs
// about two statements per outcome.
const refusedBatchSize = 32

// settlePace is the longest time that an outcome waits to be written together with other outcomes. This wait delays
// nothing: the slot of its handler is free already, and no entry waits for the outcome.
const settlePace = 5 * time.Millisecond

// promptPace replaces settlePace for an outcome that the next entry of its ordering key waits for.
const promptPace = time.Millisecond

func (e *Engine) newOutcomes() *outcomes {
	o := new(outcomes)
	o.prompt.Max, o.prompt.Workers, o.prompt.Pace, o.prompt.Flush = processlog.MaxRows, 2, groupcommit.Pace{Most: promptPace}, e.settlePrompt
	o.ordinary.Max, o.ordinary.Workers, o.ordinary.Pace, o.ordinary.Flush = processlog.MaxRows, 2, groupcommit.Pace{Most: settlePace}, e.settleBatch
	o.locked.Max, o.locked.Workers, o.locked.Flush = processlog.MaxRows, 1, e.settleBusy
	o.refused.Max, o.refused.Workers, o.refused.Flush = refusedBatchSize, 1, e.settleRefused
	return o
}

// store hands an outcome to the batcher that writes it.
func (e *Engine) store(done pendingOutcome) {
	if e.isAwaited(done.attempt) {
		e.outcomes.prompt.Add(done)
	} else {
		e.outcomes.ordinary.Add(done)
	}
}

// settlePrompt writes outcomes that the next entries of ordering keys wait for.
func (e *Engine) settlePrompt(batch []pendingOutcome) {
	onAnswer := e.notifyStoring(batch)
	e.settleDistinct(batch, onAnswer)
	onAnswer()
}

// settleBatch writes outcomes that no entry waits for.
func (e *Engine) settleBatch(batch []pendingOutcome) { e.settleDistinct(batch, func() {}) }

// settleDistinct writes a batch of outcomes, but only one outcome of each entry. It calls onFailure after each try that
// fails.
func (e *Engine) settleDistinct(batch []pendingOutcome, onFailure func()) {
	var repeats []pendingOutcome // further outcomes of entries in this batch; they go into the next batch
	// A statement may name an entry only once. A batch can hold two outcomes of an entry after a manual Requeue. It can
	// also hold a dead-lettering and the outcome of the entry's stuck handler. Write the first outcome of an entry now, and
	// the others later. If the first makes another one obsolete, the database drops the other one.
	isWritten := make(map[processlog.ID]bool, len(batch))
	batch = slices.DeleteFunc(batch, func(o pendingOutcome) bool {
		if isWritten[o.outcome.ID] {
			repeats = append(repeats, o)
			return true
		}
		isWritten[o.outcome.ID] = true
		return false
	})
	if len(repeats) > 0 {
		e.outcomes.ordinary.Add(repeats...)
	}
	// Retry an outcome with the token of its first try, because that try may have been stored. The token distinguishes
	// its write from another process's (G8, a reported success is stored).
	for token, group := range grouped.Each(batch, func(o pendingOutcome) processlog.Token { return o.token }) {
		if token == (processlog.Token{}) {
			token = processlog.NewToken()
		}
		e.settleWithToken(token, group, onFailure)
	}
}

// settleWithToken writes outcomes that share a token.
func (e *Engine) settleWithToken(token processlog.Token, batch []pendingOutcome, onFailure func()) {
	for i := range batch {
		batch[i].token = token // A later try for a locked row must use the same token.
		if !batch[i].prepared {
			batch[i].prepared = true
			for _, f := range e.settlements {
				f.Prepare(batch[i].attempt, &batch[i].outcome)
			}
		}
	}
	failpoint.Reach(failpoint.OutcomesNext)
	batch, results, sentAt := e.writeOutcomes(token, batch, onFailure)
	failpoint.Reach(failpoint.OutcomesStored)
	for i, r := range results {
		if r.Applied {
			e.watcher.Stored(&batch[i].attempt.Row, &batch[i].outcome, token, sentAt)
		}
	}
	e.noteRefused(refusals.Outcome, sentAt, len(results), func(i int) (*Attempt, error) { return batch[i].attempt, results[i].Refused })
	for i, r := range results {
		e.handleAnswer(batch[i], r)
	}
}

// noteRefused reports the entries that the database refuses to change. A statement that was sent at the given time has tried to
// change n entries. The function refusal returns the attempt of the i-th entry, and the database's error or nil.
func (e *Engine) noteRefused(what string, sentAt time.Time, n int, refusal func(i int) (*Attempt, error)) {
	byType := make(map[string][]processlog.Refusal)
	for i := range n {
		if a, err := refusal(i); err != nil {
			byType[a.Type.Name] = append(byType[a.Type.Name], processlog.Refusal{ID: a.Row.ID, Err: err})
		}
	}
	for name, list := range byType {
		e.Refusals.NoteTry(what, name, sentAt, list)
	}
}

// writeOutcomes writes outcomes that share a token. It retries until the database answers, because a deadlock or a restart
// of the database must not make a handler run again. If a try was stored but its answer was lost, the next try recognises
// the stored outcomes by the token.
//
// writeOutcomes returns no results if the Compensator is closed first, or if no outcome is left to write.
func (e *Engine) writeOutcomes(token processlog.Token, batch []pendingOutcome, onFailure func()) ([]pendingOutcome, []processlog.Settled, time.Time) {
	for failures := 1; ; failures++ {
		if batch = e.withoutWithdrawn(batch); len(batch) == 0 {
			return nil, nil, time.Time{}
		}
		// Use neither Run's context nor a handler's: outcomes are stored while Run stops, too (G15, stopping loses
		// nothing).
		ctx, cancel := e.Statement()
		// Take the time of each try, not of the first one. A person may accept a loss of data between two tries. The rollback
		// detector then ignores writes that were sent before the acceptance. With the time of the first try, it would also
		// ignore an outcome that a later try has stored (G19, a loss is noticed).
		sentAt := time.Now()
		results, err := e.Store.Settle(ctx, token, outcomesOf(batch))
		cancel()
		// If all rows are locked, the answer does not show whether the database can write other rows. An open problem then
		// stays open.
		if err != nil || slices.ContainsFunc(results, func(r processlog.Settled) bool { return !r.Busy }) {
			e.NoteResult(problemStore, err)
		}
		if err == nil {
			return batch, results, sentAt
		}
		onFailure()
		if !e.Wait(retryDelay(settleBackoff, failures)) {
			return nil, nil, time.Time{}
		}
	}
}

// withoutWithdrawn removes the outcomes that dead-letter an entry whose stuck handler has returned in the meantime. The
// handler's own outcome takes precedence.
func (e *Engine) withoutWithdrawn(batch []pendingOutcome) []pendingOutcome {
	return slices.DeleteFunc(batch, func(s pendingOutcome) bool {
		if !s.deadLetters {
			return false
		}
		attempt, held := e.holdings.HeldAttempt(&s.attempt.Row)
		return held && !attempt.Stuck
	})
}

func outcomesOf(batch []pendingOutcome) []processlog.Outcome {
	outcomes := make([]processlog.Outcome, len(batch))
	for i := range batch {
		outcomes[i] = batch[i].outcome
	}
	return outcomes
}

// maxWaitingOutcomes is how many outcomes may wait to be written before this process stops claiming entries.
const maxWaitingOutcomes = 4 * processlog.MaxRows

// OutcomesBacklogged reports whether so many outcomes wait to be stored that this process must not claim more entries. It also
// remembers when it began to return true, because WaitingOutcomes reports that time.
func (e *Engine) OutcomesBacklogged() bool {
	isBacklogged, since := e.outcomes.waiting() > maxWaitingOutcomes, e.outcomes.backloggedSince.Load()
	switch {
	case isBacklogged && since == nil:
		now := time.Now()
		e.outcomes.backloggedSince.CompareAndSwap(nil, &now)
	case !isBacklogged && since != nil:
		e.outcomes.backloggedSince.CompareAndSwap(since, nil)
	}
	return isBacklogged
}

// waiting returns how many outcomes wait to be stored. It does not count outcomes that the database has refused, or whose
// rows are locked.
func (o *outcomes) waiting() int { return o.ordinary.Size() + o.prompt.Size() }

// WaitingOutcomes returns how many outcomes wait to be stored, and for how long OutcomesBacklogged has returned true.
func (e *Engine) WaitingOutcomes() (n int, backlogged time.Duration) {
	if since := e.outcomes.backloggedSince.Load(); since != nil {
		backlogged = time.Since(*since)
	}
	return e.outcomes.waiting(), backlogged
}

var settleBackoff = jitter.Exponential(200*time.Millisecond, stopGrace/2) // The longest pause fits into stopGrace, so a stop sees one more try.

// handleAnswer handles the database's answer to one outcome.
func (e *Engine) handleAnswer(done pendingOutcome, r processlog.Settled) {
	a, o := done.attempt, done.outcome
	if r.Busy || r.Refused != nil {
		// Keep holding the entry until its outcome is stored. While this process holds the entry, it renews the lease and
		// does not claim the entry again.
		e.retryLater(done, r)
		return
	}
	e.forget(a)
	e.Refusals.Accepted(refusals.Outcome, a.Type.Name, o.ID)
	ctx := a.ctx
	if ctx == nil {
		ctx = e.Work
	}
	event := observe.SettledEvent{
		Context: ctx, ID: o.ID, IdempotencyKey: a.Row.IdempotencyKey, BusinessType: a.Type.Name, BusinessID: a.Row.BusinessID,
		State: o.To, EndedBy: o.EndedBy, Attempt: a.Row.Attempt(),
	}
	if isCompleted(o, r) {
		// Report the completion here, because Complete does not notify the observer.
		event.EndedBy = r.EndedBy
		e.notifyDropped(a)
		NotifyObserver(e.Base, e.Observer.Settled, event)
		return // Complete itself has notified the queue, and the entries that this entry has blocked.
	}
	if !r.Applied {
		// Another process, a service or a person has changed the entry since the claim. To lose this race is a normal result
		// and no error.
		event.State, event.EndedBy = r.State, r.EndedBy
		e.Log.Log(ctx, droppedLevel(o, r), "compensator: outcome dropped: the entry has moved on", "entry", o.ID, "type", a.Type.Name, "reported", o.To, "state", r.State)
		e.notifyDropped(a)
		NotifyObserver(e.Base, e.Observer.OutcomeDropped, event)
		// Do not change the queue. Another process has leased the entry there, or the next claim finds out what has become of
		// the entry.
		return
	}
	if o.To == processlog.Dead {
		e.Log.ErrorContext(ctx, "compensator: entry waits for a person", "entry", o.ID, "type", a.Type.Name, "idempotent_id", a.Row.IdempotencyKey,
			"business_id", a.Row.BusinessID, "attempt", event.Attempt, "ended_by", o.EndedBy, "err", o.LastError)
	}
	NotifyObserver(e.Base, e.Observer.Settled, event)
	e.notifyQueue(a, o)
	for _, f := range e.settlements {
		f.Stored(a, o.To, Counted(&a.Row, &o))
	}
}

// retryLater hands an outcome that could not be written to a batcher for such outcomes, so that it does not delay others.
func (e *Engine) retryLater(done pendingOutcome, r processlog.Settled) {
	if r.Refused != nil {
		// The handler has returned without a crash. Tell the admissions now, because the database may refuse the outcome for
		// long.
		done.attempt.suspectDone(NotRun)
	}
	if refused, _ := e.Refusals.RefusedOutcome(done.attempt.Type.Name, done.outcome.ID); refused > 0 {
		e.outcomes.refused.Add(done)
	} else {
		e.outcomes.locked.Add(done)
	}
}

// settleRefused retries outcomes that the database has refused. If the database has refused another outcome since the last
// retry, settleRefused pauses before it retries. But a stop of Run retries each refused outcome once without a pause: see
// refusals.List.RetryOutcomes.
func (e *Engine) settleRefused(batch []pendingOutcome) {
	most, atOnce := 1, false
	for _, o := range batch {
		refused, first := e.Refusals.RefusedOutcome(o.attempt.Type.Name, o.outcome.ID)
		most, atOnce = max(most, refused), atOnce || first
	}
	if e.Refusals.AwaitRetry(e.Work, most, atOnce) {
		e.settleBatch(batch)
	}
}

// isCompleted reports whether the success of an attempt was not stored because Complete had already ended the entry, for
// example in its own handler. In this case the handler and the entry agree.
func isCompleted(o processlog.Outcome, r processlog.Settled) bool {
	return !r.Applied && o.EndedBy == processlog.EndedByHandler && o.To == processlog.Succeeded &&
		r.State == processlog.Succeeded && r.EndedBy == processlog.EndedByComplete
}

// droppedLevel returns the log level for a dropped outcome. It is a warning if the handler or the compensation has
// succeeded, and the entry shows another state.
func droppedLevel(o processlog.Outcome, r processlog.Settled) slog.Level {
	if o.EndedBy == processlog.EndedByHandler && r.State != o.To {
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// settleBusy retries outcomes whose rows another transaction has locked. These outcomes have their own batcher, because
// each retry may wait for a row lock and would delay other outcomes.
func (e *Engine) settleBusy(batch []pendingOutcome) {
	if e.Wait(processlog.LockedRetry) {
		e.settleBatch(batch)
	}
}

// notifyQueue removes an entry that has ended from the queue, and makes any other entry due again.
func (e *Engine) notifyQueue(a *Attempt, o processlog.Outcome) {
	if !o.To.Terminal() {
		e.OfferAgain(a, processlog.DueIn(o.After))
	} else if a.queueToken != 0 {
		// If this removal is lost, the queue entry becomes due when its lease ends, and the next claim removes it.
		e.source.Settle(a.Type.Name, processlog.QueueOutcome{ID: o.ID, Token: a.queueToken, Remove: true})
	}
}

// OfferAgain makes the entry of an attempt due again after a delay.
func (e *Engine) OfferAgain(a *Attempt, delay time.Duration) {
	if a.queueToken != 0 {
		e.source.Settle(a.Type.Name, processlog.QueueOutcome{ID: a.Row.ID, Token: a.queueToken, In: delay})
	} else {
		// This attempt has no lease of the queue. But the queue may still have the entry, leased to a process that died.
		e.source.Move(processlog.QueueEntry{BusinessType: a.Type.Name, ID: a.Row.ID, In: delay})
	}
	e.Expect(a.Type.Name, delay)
}

// Backoff returns the pause after a number of consecutive failures of a statement that is retried until it succeeds.
func Backoff(failures int) time.Duration { return retryDelay(settleBackoff, failures) }

// Settlement is a set of functions by which a feature takes part in storing outcomes. All functions are set. They do
// nothing unless the feature has replaced them with Engine.AttachSettlement. The goroutines that store outcomes call the functions,
// which do not block.
type Settlement struct {
	// Ordered reports whether an entry of a type may be blocked by another entry of the type. It also works for a type that
	// does not run here.
	Ordered func(businessType string) bool

	// Prepare is called before an outcome is sent to the database for the first time. It may add data to the outcome. The
	// statement that stores the outcome then stores the data too.
	Prepare func(a *Attempt, o *processlog.Outcome)

	// Ended is called when the handler of an attempt has returned, before its outcome is stored. end.Cause says why the
	// context ended. counted says whether the attempt counts as a failure of the entry.
	Ended func(a *Attempt, end Result, counted bool)

	// Failed is called when an attempt has failed, before its outcome is passed on to be stored. end.Err is the error, and
	// end.Cause says why the context of the handler ended. An attempt also fails if its entry is dead-lettered because
	// consecutive leases ended with no outcome. Then end.Err is nil. Failed returns the failed attempt to store with the
	// outcome, or nil.
	Failed func(a *Attempt, end Result, o processlog.Outcome) *processlog.FailedAttempt

	// IsAwaited reports whether another entry waits for the outcome of an attempt. One statement stores several outcomes, so
	// an outcome usually waits for others. An outcome that an entry waits for is stored sooner.
	IsAwaited func(a *Attempt) bool

	// Storing is called before outcomes for which IsAwaited returned true are sent to the database. It may return a
	// function. The engine calls this function once, when the database has answered or the first try has failed.
	Storing func(batch []Settling) (onAnswer func())

	// Stored is called when an outcome is stored. The parameter failed says whether the outcome counts as a failure of the
	// entry.
	Stored func(a *Attempt, to processlog.State, failed bool)

	// Dropped is called when an attempt ends and no outcome of it is stored. Either another process, a service or a person
	// has changed the entry since the claim. Or Run stopped after the attempt had started and before its handler was called.
	Dropped func(a *Attempt)

	// GivenBack is called when the engine gives up the lease of an attempt that does not start. The attempt may be blocked,
	// an admission may skip it, Run may stop, or the lease may have ended.
	GivenBack func(a *Attempt)

	// Moved is called when a change by a service or a person has ended an entry, for example Cancel.
	Moved func(row *processlog.Row, to processlog.State)
}

// Settling is an outcome that is about to be stored.
type Settling struct {
	Attempt *Attempt
	To      processlog.State
}

// noSettlement is a Settlement that does nothing.
var noSettlement = Settlement{
	Ordered:   func(string) bool { return false },
	Prepare:   func(*Attempt, *processlog.Outcome) {},
	Ended:     func(*Attempt, Result, bool) {},
	Failed:    func(*Attempt, Result, processlog.Outcome) *processlog.FailedAttempt { return nil },
	IsAwaited: func(*Attempt) bool { return false },
	Storing:   func([]Settling) func() { return nil },
	Stored:    func(*Attempt, processlog.State, bool) {},
	Dropped:   func(*Attempt) {},
	GivenBack: func(*Attempt) {},
	Moved:     func(*processlog.Row, processlog.State) {},
}

// AttachSettlement adds a settlement of a feature to the engine. The function configure gets a Settlement that does
// nothing, and replaces the functions that the feature implements. Call AttachSettlement before Run.
func (e *Engine) AttachSettlement(configure func(s *Settlement)) {
	s := noSettlement
	configure(&s)
	e.settlements = append(e.settlements, &s)
}

// Ordered reports whether an entry of a type may be blocked by another entry of the type. It also works for a type that does
// not run here.
func (e *Engine) Ordered(businessType string) bool {
	return slices.ContainsFunc(e.settlements, func(f *Settlement) bool { return f.Ordered(businessType) })
}

// withFailedAttempt adds to an outcome the failed attempt that is stored with it. It is called for an attempt that has
// ended without a success.
func (e *Engine) withFailedAttempt(a *Attempt, end Result, o processlog.Outcome) processlog.Outcome {
	for _, f := range e.settlements {
		if attempt := f.Failed(a, end, o); attempt != nil {
			o.Attempt = attempt
		}
	}
	return o
}

// isAwaited reports whether another entry waits for the outcome of an attempt.
func (e *Engine) isAwaited(a *Attempt) bool {
	return slices.ContainsFunc(e.settlements, func(f *Settlement) bool { return f.IsAwaited(a) })
}

// notifyStoring tells the settlements that a batch of outcomes is about to be sent to the database. Other entries wait for
// these outcomes. The caller calls onAnswer when the database has answered, and also when a try has failed. Only the first
// call of onAnswer notifies the settlements.
func (e *Engine) notifyStoring(batch []pendingOutcome) (onAnswer func()) {
	var callbacks []func()
	outcomes := make([]Settling, len(batch))
	for i := range batch {
		outcomes[i] = Settling{batch[i].attempt, batch[i].outcome.To}
	}
	for _, f := range e.settlements {
		if callback := f.Storing(outcomes); callback != nil {
			callbacks = append(callbacks, callback)
		}
	}
	return func() {
		for _, callback := range callbacks {
			callback()
		}
		callbacks = nil
	}
}

// notifyDropped calls Dropped of every attached Settlement.
func (e *Engine) notifyDropped(a *Attempt) {
	for _, f := range e.settlements {
		f.Dropped(a)
	}
}
