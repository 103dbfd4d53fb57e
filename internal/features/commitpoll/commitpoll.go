// Package commitpoll asks the database which transactions have committed, if this process cannot see their end. Such
// transactions run on a pool that is not a Connector. Without this package, their entries start with the next round of
// the reconciler.
package commitpoll

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/processlog"
)

// pollAfter lists when the database is asked about a transaction, counted from the transaction's statement.
var pollAfter = [...]time.Duration{50 * time.Millisecond, 200 * time.Millisecond, time.Second}

const (
	// pollEvery is the shortest time between two polls. It makes a busy process ask for many transactions in one poll.
	pollEvery = 50 * time.Millisecond

	// reportedWithin is how long after the last poll the caller may still report the commit before a warning is logged.
	reportedWithin = 200 * time.Millisecond

	// mostWaiting is how many transactions may wait for a poll. Further ones are not polled, and the reconciler finds
	// their entries.
	mostWaiting = 10_000
)

// transaction is a transaction that waits for a poll.
type transaction struct {
	engine.UnseenCommit
	at    time.Time // when its statement was sent
	polls int       // number of polls so far
	found bool      // a poll found it committed
}

// Poller asks the database whether transactions have committed. It asks up to three times for each, with one statement
// for all transactions that are due. The reconciler finds the entries of slower transactions, and of transactions whose
// process crashes.
type Poller struct {
	e      *engine.Engine
	warned atomic.Bool

	mu        sync.Mutex     // guards the fields below
	waiting   []transaction  // without the transactions of the poll that is running
	timer     *time.Timer    // nil until the first transaction waits
	scheduled bool           // the timer or a poll is running
	closed    bool           // no further poll begins
	polling   sync.WaitGroup // counts the running poll; added to only while closed is false
}

// New returns a poller for an engine. Closing the engine closes the poller.
func New(e *engine.Engine) *Poller { return &Poller{e: e} }

// Add starts polling for a transaction.
func (p *Poller) Add(c engine.UnseenCommit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.waiting) == mostWaiting {
		return
	}
	p.waiting = append(p.waiting, transaction{UnseenCommit: c, at: time.Now()})
	if !p.scheduled {
		p.scheduled = true
		p.scheduleLocked(pollAfter[0])
	}
}

func (p *Poller) scheduleLocked(in time.Duration) {
	if p.timer == nil {
		p.timer = time.AfterFunc(in, p.poll)
	} else {
		p.timer.Reset(in)
	}
}

// Close ends polling, and waits for a running poll.
func (p *Poller) Close() {
	p.mu.Lock()
	p.closed = true
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	p.polling.Wait()
}

// poll asks for the transactions that are due, and schedules the next poll.
func (p *Poller) poll() {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.polling.Add(1)
	defer p.polling.Done()
	due := p.takeDueLocked(time.Now())
	p.mu.Unlock()

	p.ask(due)

	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = append(p.waiting, slices.DeleteFunc(due, p.done)...)
	if p.scheduled = len(p.waiting) > 0 && !p.closed; p.scheduled {
		p.scheduleLocked(p.nextLocked())
	}
}

// done reports whether a transaction needs no further poll. A transaction that the last poll has found committed may
// get one more round, which asks nothing. The caller may still report the commit until then, and otherwise that round
// logs a warning.
func (p *Poller) done(t transaction) bool {
	warns := t.found && t.Told != nil && !p.warned.Load()
	return t.polls > len(pollAfter) || t.polls == len(pollAfter) && !warns
}

// nextAfter returns when a transaction's next poll is, counted from its statement.
func (t *transaction) nextAfter() time.Duration {
	if t.polls < len(pollAfter) {
		return pollAfter[t.polls]
	}
	return pollAfter[len(pollAfter)-1] + reportedWithin
}

// takeDueLocked removes and returns the transactions that are due for a poll. It drops transactions whose commit the
// caller has reported.
func (p *Poller) takeDueLocked(now time.Time) (due []transaction) {
	p.waiting = slices.DeleteFunc(p.waiting, func(t transaction) bool {
		if t.Told != nil && t.Told.Load() {
			return true
		}
		if now.Sub(t.at) < t.nextAfter() {
			return false
		}
		t.polls++
		due = append(due, t)
		return true
	})
	return due
}

// nextLocked returns the time until the next poll.
func (p *Poller) nextLocked() time.Duration {
	next := pollAfter[len(pollAfter)-1]
	for i := range p.waiting {
		t := &p.waiting[i]
		next = min(next, time.Until(t.at.Add(t.nextAfter())))
	}
	return max(next, pollEvery)
}

// ask finds out which transactions have committed, and calls their Committed functions.
func (p *Poller) ask(due []transaction) {
	var keys []processlog.IdempotencyKey
	var ids []processlog.ID
	for i := range due {
		switch t := &due[i]; {
		case t.found:
			p.warn(t)
		case t.Key != "":
			keys = append(keys, t.Key)
		default:
			ids = append(ids, t.ID)
		}
	}
	recorded, tokens := p.recorded(keys), p.tokens(ids)
	for i := range due {
		t := &due[i]
		if t.found {
			continue
		}
		if t.Key != "" {
			id, there := recorded[t.Key]
			t.found = there && (t.ID.IsZero() || t.ID == id) // Another transaction may have recorded the key.
		} else {
			token, there := tokens[t.ID]
			t.found = there && token == t.Token
		}
		if t.found {
			failpoint.Reach(failpoint.CommitFound)
			t.Committed()
		}
	}
}

// recorded reads the ids of existing entries by their idempotency keys.
func (p *Poller) recorded(keys []processlog.IdempotencyKey) map[processlog.IdempotencyKey]processlog.ID {
	if len(keys) == 0 {
		return nil
	}
	ctx, cancel := p.e.Statement()
	defer cancel()
	ids, err := p.e.Store.IDs(ctx, nil, keys)
	p.e.Saw(engine.ProblemReadBack, err)
	return ids
}

// tokens reads the tokens of entries.
func (p *Poller) tokens(ids []processlog.ID) map[processlog.ID]processlog.Token {
	if len(ids) == 0 {
		return nil
	}
	slices.SortFunc(ids, processlog.ID.Compare)
	ctx, cancel := p.e.Statement()
	defer cancel()
	versions, err := p.e.Store.Versions(ctx, slices.Compact(ids))
	p.e.Saw(engine.ProblemReadBack, err)
	tokens := make(map[processlog.ID]processlog.Token, len(versions))
	for _, v := range versions {
		tokens[v.ID] = v.Token
	}
	return tokens
}

// warn logs once that the application does not report its commits to this process.
func (p *Poller) warn(t *transaction) {
	if t.Told == nil || p.warned.Swap(true) {
		return
	}
	p.e.Log.Warn("compensator: entries are recorded in transactions whose commit the library does not see; it polls for them, and they start up to a second late, "+
		"or with the next reconciliation when their transaction takes longer than that. Open the pool on a Connector, call Receipt.Committed after each commit, "+
		"or run the transaction by InTx or WithRetry. This is logged once", "idempotent_id", t.Key)
}
