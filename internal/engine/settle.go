package engine

import (
	"cmp"
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

type pendingOutcome struct {
	attempt     *Attempt
	outcome     processlog.Outcome
	token       processlog.Token // each try writes it with the outcome, so that a later try recognises that the outcome is stored; zero before the first try
	deadLetters bool             // dead-letters the entry for lost leases; no handler reported this outcome
}

// outcomes holds the outcomes that wait to be stored.
//
// The database stores an outcome before the queue is notified. In the other order, the queue could lose an entry that
// has not ended.
type outcomes struct {
	ordinary groupcommit.Batcher[pendingOutcome] // writes outcomes that no other entry waits for
	prompt   groupcommit.Batcher[pendingOutcome] // writes outcomes sooner, because the next entry of an ordering key waits for each of them
	locked   groupcommit.Batcher[pendingOutcome] // retries outcomes whose rows are locked by other transactions
	refused  groupcommit.Batcher[pendingOutcome] // retries outcomes that the database has refused to write

	backloggedSince atomic.Pointer[time.Time] // when OutcomesBacklogged began to return true; nil if it last returned false
}

// refusedBatchSize is how many refused outcomes are retried together. If the database refuses them again, the retry
// costs about two statements per outcome.
const refusedBatchSize = 32

// settlePace is the longest time that an outcome waits to be written together with other outcomes.
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

func (e *Engine) store(done pendingOutcome, end Result) {
	a := done.attempt
	if end.Err != nil || done.deadLetters {
		for _, failed := range e.Hooks.Failed {
			done.outcome.Attempt = cmp.Or(failed(a, end, done.outcome), done.outcome.Attempt)
		}
	}
	for _, prepare := range e.Hooks.Prepare {
		done.outcome = prepare(a, done.outcome)
	}
	if slices.ContainsFunc(e.Hooks.IsAwaited, func(isAwaited func(*Attempt) bool) bool { return isAwaited(a) }) {
		e.outcomes.prompt.Add(done)
	} else {
		e.outcomes.ordinary.Add(done)
	}
}

func (e *Engine) settlePrompt(batch []pendingOutcome) {
	onAnswer := e.notifyStoring(batch)
	e.settleDistinct(batch, onAnswer)
	onAnswer()
}

func (e *Engine) settleBatch(batch []pendingOutcome) { e.settleDistinct(batch, func() {}) }

func (e *Engine) settleDistinct(batch []pendingOutcome, onFailure func()) {
	var repeats []pendingOutcome // further outcomes of entries in this batch; they go into the next batch
	// A statement may name an entry only once, so write the second outcome of an entry in the next batch. If the first
	// outcome has made the second one obsolete, the database drops the second one.
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
	// Write each outcome with the token of its first try. By this token, the database recognises a write whose answer
	// was lost. See promise G8.
	for token, group := range grouped.Each(batch, func(o pendingOutcome) processlog.Token { return o.token }) {
		if token == (processlog.Token{}) {
			token = processlog.NewToken()
		}
		e.settleWithToken(token, group, onFailure)
	}
}

func (e *Engine) settleWithToken(token processlog.Token, batch []pendingOutcome, onFailure func()) {
	for i := range batch {
		batch[i].token = token // A later try for a locked row must use the same token.
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

// noteRefused reports the entries that a statement could not change. The statement had n entries and was sent at the
// time sentAt. The function refusal returns the attempt of the i-th entry, and the database's error or nil.
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

// writeOutcomes writes the outcomes of a batch, and retries until the database answers. Without the retries, a deadlock
// or a restart of the database would make a handler run again. writeOutcomes returns no results if the Compensator is
// closed first, or if no outcome is left to write.
func (e *Engine) writeOutcomes(token processlog.Token, batch []pendingOutcome, onFailure func()) ([]pendingOutcome, []processlog.Settled, time.Time) {
	for failures := 1; ; failures++ {
		if batch = e.withoutWithdrawn(batch); len(batch) == 0 {
			return nil, nil, time.Time{}
		}
		// Outcomes are also stored while Run stops. See promise G15.
		ctx, cancel := e.Statement()
		// Take the time of each try, and not only of the first one. The rollback detector compares this time with the
		// moment at which a person accepted a loss of data. It ignores writes that were sent before this moment. See
		// promise G19.
		sentAt := time.Now()
		results, err := e.Store.Settle(ctx, token, outcomesOf(batch))
		cancel()
		// If other transactions have locked all rows, the database has written nothing. Such an answer does not show that the
		// database can write, so do not report it.
		if err != nil || slices.ContainsFunc(results, func(r processlog.Settled) bool { return !r.Busy }) {
			e.NoteResult(problemStore, err)
		}
		if err == nil {
			return batch, results, sentAt
		}
		onFailure()
		if !e.Wait(Backoff(failures)) {
			return nil, nil, time.Time{}
		}
	}
}

// withoutWithdrawn drops dead-letterings of entries whose stuck handler has returned, because the handler's own outcome
// takes precedence.
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

// OutcomesBacklogged reports whether so many outcomes wait to be stored that this process must not claim more entries.
// The engine also remembers since when this is so. WaitingOutcomes reports that time.
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

func (o *outcomes) waiting() int { return o.ordinary.Size() + o.prompt.Size() }

// WaitingOutcomes returns how many outcomes wait to be stored, and for how long OutcomesBacklogged has returned true.
func (e *Engine) WaitingOutcomes() (n int, backlogged time.Duration) {
	if since := e.outcomes.backloggedSince.Load(); since != nil {
		backlogged = time.Since(*since)
	}
	return e.outcomes.waiting(), backlogged
}

var settleBackoff = jitter.Exponential(200*time.Millisecond, stopGrace/2) // The longest pause fits into stopGrace, so a stop sees one more try.

func (e *Engine) handleAnswer(done pendingOutcome, r processlog.Settled) {
	a, o := done.attempt, done.outcome
	if r.Busy || r.Refused != nil {
		// The database has not taken the outcome yet, so keep the attempt and try again later. A process that holds an
		// attempt renews the lease of the entry, and does not claim the entry again.
		e.retryLater(done, r)
		return
	}
	e.forget(a)
	e.Refusals.Accepted(refusals.Outcome, a.Type.Name, o.ID)
	ctx := cmp.Or(a.ctx, e.Work)
	event := observe.SettledEvent{
		Context: ctx, ID: o.ID, IdempotencyKey: a.Row.IdempotencyKey, BusinessType: a.Type.Name, BusinessID: a.Row.BusinessID,
		State: o.To, EndedBy: o.EndedBy, Attempt: a.Row.Attempt(),
	}
	if !r.Applied {
		event.EndedBy = r.EndedBy
		e.notifyDropped(a)
		if isCompleted(o, r) {
			// Complete has ended the entry while the handler ran. Complete has notified the queue and the entries that
			// this entry blocked, but not the observer.
			NotifyObserver(e.Base, e.Observer.Settled, event)
			return
		}
		// Another process, a person or a service has changed the entry before this outcome could be stored. This is a
		// normal result and no error.
		event.State = r.State
		e.Log.Log(ctx, droppedLevel(o, r), "compensator: outcome dropped: the entry has moved on", "entry", o.ID, "type", a.Type.Name, "reported", o.To, "state", r.State)
		NotifyObserver(e.Base, e.Observer.OutcomeDropped, event)
		// Do not change the queue, where another process may have leased the entry.
		return
	}
	if o.To == processlog.Dead {
		e.Log.ErrorContext(ctx, "compensator: entry waits for a person", "entry", o.ID, "type", a.Type.Name, "idempotent_id", a.Row.IdempotencyKey,
			"business_id", a.Row.BusinessID, "attempt", event.Attempt, "ended_by", o.EndedBy, "err", o.LastError)
	}
	NotifyObserver(e.Base, e.Observer.Settled, event)
	e.notifyQueue(a, o)
	for _, stored := range e.Hooks.Stored {
		stored(a, o.To, Counted(&a.Row, &o))
	}
}

func (e *Engine) retryLater(done pendingOutcome, r processlog.Settled) {
	if r.Refused != nil {
		// A suspect is an entry that may have crashed a process, and only few suspects run at once. The handler of this
		// entry has returned, so the entry can no longer crash this process. Let another suspect run now, because it
		// may take long until the database accepts this outcome.
		done.attempt.suspectDone(NotRun)
	}
	if refused, _ := e.Refusals.RefusedOutcome(done.attempt.Type.Name, done.outcome.ID); refused > 0 {
		e.outcomes.refused.Add(done)
	} else {
		e.outcomes.locked.Add(done)
	}
}

// settleRefused tries again to store outcomes that the database has refused. It pauses before each try: see
// refusals.List.AwaitRetry. When Run stops, settleRefused tries once more without a pause.
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

func isCompleted(o processlog.Outcome, r processlog.Settled) bool {
	return o.EndedBy == processlog.EndedByHandler && o.To == processlog.Succeeded &&
		r.State == processlog.Succeeded && r.EndedBy == processlog.EndedByComplete
}

func droppedLevel(o processlog.Outcome, r processlog.Settled) slog.Level {
	if o.EndedBy == processlog.EndedByHandler && r.State != o.To {
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// settleBusy has its own batcher, because each retry may wait for a row lock and would delay other outcomes.
func (e *Engine) settleBusy(batch []pendingOutcome) {
	if e.Wait(processlog.LockedRetry) {
		e.settleBatch(batch)
	}
}

func (e *Engine) notifyQueue(a *Attempt, o processlog.Outcome) {
	if !o.To.Terminal() {
		e.OfferAgain(a, processlog.DueIn(o.After))
	} else if a.queueToken != 0 {
		e.source.Settle(a.Type.Name, processlog.QueueOutcome{ID: o.ID, Token: a.queueToken, Remove: true})
	}
}

// OfferAgain makes the entry of an attempt due again after a delay.
func (e *Engine) OfferAgain(a *Attempt, delay time.Duration) {
	if a.queueToken != 0 {
		e.source.Settle(a.Type.Name, processlog.QueueOutcome{ID: a.Row.ID, Token: a.queueToken, In: delay})
	} else {
		// The queue may still have the entry, leased to a process that died.
		e.source.Move(processlog.QueueEntry{BusinessType: a.Type.Name, ID: a.Row.ID, In: delay})
	}
	e.Expect(a.Type.Name, delay)
}

// Backoff returns the pause after a number of consecutive failures of a statement that is retried until it succeeds.
func Backoff(failures int) time.Duration { return clampDelay(settleBackoff(failures)) }

// Settling is an outcome that is about to be stored.
type Settling struct {
	Attempt *Attempt
	To      processlog.State
}

// Ordered reports whether an entry of a type may be blocked by another entry of the type. It also works for a type that
// does not run here.
func (e *Engine) Ordered(businessType string) bool {
	return slices.ContainsFunc(e.Hooks.Ordered, func(ordered func(string) bool) bool { return ordered(businessType) })
}

// notifyStoring calls the Storing hooks with the outcomes of a batch, and returns the function onAnswer. The caller
// calls onAnswer when the database has answered or a try has failed. Only the first call of onAnswer has an effect.
func (e *Engine) notifyStoring(batch []pendingOutcome) (onAnswer func()) {
	var callbacks []func()
	outcomes := make([]Settling, len(batch))
	for i := range batch {
		outcomes[i] = Settling{batch[i].attempt, batch[i].outcome.To}
	}
	for _, storing := range e.Hooks.Storing {
		if callback := storing(outcomes); callback != nil {
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

// notifyDropped calls Hooks.Dropped.
func (e *Engine) notifyDropped(a *Attempt) {
	for _, dropped := range e.Hooks.Dropped {
		dropped(a)
	}
}
