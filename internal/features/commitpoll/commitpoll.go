// Package commitpoll asks the database which transactions have committed. It does so for transactions whose end this
// process cannot see, because they run on a pool that is not a Connector. Without this package, their entries start
// with the next round of the reconciler.
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

// pollAfter lists the ages at which the database is first asked about a transaction. The age counts from the
// transaction's statement.
var pollAfter = [...]time.Duration{50 * time.Millisecond, 200 * time.Millisecond, time.Second}

const (
	// pollEvery is the shortest time between two polls. Because of it, one poll of a busy process asks for many
	// transactions.
	pollEvery = 50 * time.Millisecond

	// pollSlowEvery is the shortest time between two polls for slow transactions. All of them share these polls.
	pollSlowEvery = time.Second

	// pollFor is how long after the INSERT of its entries a transaction is polled for. The reconciler finds the entries of
	// transactions that take longer.
	pollFor = time.Minute

	// reportedWithin is the time that the caller has to report a commit after a poll has found it. After this time a
	// warning is logged.
	reportedWithin = 200 * time.Millisecond

	// mostWaiting is how many transactions may wait for a poll. Further ones are not polled, and the reconciler finds
	// their entries.
	mostWaiting = 10_000

	// mostSlow is how many slow transactions may wait for a poll. One statement can ask for that many. If there are
	// more, the oldest are dropped, because they have most likely been rolled back.
	mostSlow = processlog.MaxRows
)

// transaction is a transaction that waits for a poll.
type transaction struct {
	engine.UnseenCommit
	at    time.Time // time just before its statement was sent
	next  time.Time // time of the next poll
	polls int       // number of polls so far
	found bool      // whether a poll found that it has committed
	gone  bool      // whether it can no longer commit
}

// slow reports whether a transaction has had all polls of pollAfter and no poll has found its commit.
func (t *transaction) slow() bool { return t.polls >= len(pollAfter) && !t.found }

// Poller asks the database whether transactions have committed, with one statement for all transactions that are due.
// It asks about each transaction three times in the first second, and then every second. Once a transaction is older
// than 8 s, the time between its polls is an eighth of its age.
//
// After a minute the poller gives up, and the reconciler finds the entries. The reconciler also finds the entries of
// transactions whose process crashes.
type Poller struct {
	e      *engine.Engine
	warned atomic.Bool

	mu      sync.Mutex     // guards the fields below
	waiting []transaction  // without the transactions of the poll that is running
	slowAt  time.Time      // time of the last poll for slow transactions
	timer   *time.Timer    // nil until the first transaction waits
	wake    time.Time      // time at which the timer fires, or at which the running poll began; zero if nothing waits
	closed  bool           // whether polling has ended, so that no further poll begins
	polling sync.WaitGroup // counts the running poll; added to only while closed is false
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
	now := time.Now()
	t := transaction{UnseenCommit: c, at: now, next: now.Add(pollAfter[0])}
	p.waiting = append(p.waiting, t)
	if p.wake.IsZero() || t.next.Before(p.wake) {
		p.scheduleLocked(t.next)
	}
}

func (p *Poller) scheduleLocked(at time.Time) {
	p.wake = at
	if p.timer == nil {
		p.timer = time.AfterFunc(time.Until(at), p.poll)
	} else {
		p.timer.Reset(time.Until(at))
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
	p.wake = time.Now()
	due := p.takeDueLocked(p.wake)
	p.mu.Unlock()

	p.ask(due)

	p.mu.Lock()
	defer p.mu.Unlock()
	p.waitLocked(due)
	p.wake = time.Time{}
	if len(p.waiting) > 0 && !p.closed {
		p.scheduleLocked(p.nextLocked())
	}
}

// takeDueLocked removes and returns the transactions that are due for a poll. It drops transactions whose commit the
// caller has reported.
func (p *Poller) takeDueLocked(now time.Time) (due []transaction) {
	slow := now.Sub(p.slowAt) >= pollSlowEvery
	p.waiting = slices.DeleteFunc(p.waiting, func(t transaction) bool {
		switch {
		case t.Reported != nil && t.Reported.Load():
			return true
		case t.slow() && (!slow || t.next.Sub(now) >= pollSlowEvery), !t.slow() && t.next.After(now):
			return false
		}
		if t.slow() {
			p.slowAt = now
		}
		t.polls++
		due = append(due, t)
		return true
	})
	return due
}

// waitLocked lets transactions wait for their next poll, and drops those that need none.
func (p *Poller) waitLocked(polled []transaction) {
	now, slow := time.Now(), 0
	for _, t := range polled {
		if p.again(&t, now) {
			p.waiting = append(p.waiting, t)
		}
	}
	for i := range p.waiting {
		if p.waiting[i].slow() {
			slow++
		}
	}
	if slow <= mostSlow {
		return
	}
	slices.SortFunc(p.waiting, func(a, b transaction) int { return a.at.Compare(b.at) }) // the oldest first
	p.waiting = slices.DeleteFunc(p.waiting, func(t transaction) bool {
		dropped := slow > mostSlow && t.slow()
		if dropped {
			slow--
		}
		return dropped
	})
}

// The method again sets the time of a transaction's next poll. It returns false if the transaction needs no further
// poll. After a poll has found a commit, the transaction waits for one more round, which does not ask about it. If the
// caller has not reported the commit by then, that round logs a warning.
func (p *Poller) again(t *transaction, now time.Time) bool {
	switch {
	case t.gone, t.found && (t.Reported == nil || p.warned.Load()):
		return false
	case t.found:
		t.next = now.Add(reportedWithin)
	case t.polls < len(pollAfter):
		t.next = t.at.Add(pollAfter[t.polls])
	default:
		t.next = now.Add(max(pollSlowEvery, now.Sub(t.at)/8))
	}
	return t.next.Sub(t.at) <= pollFor
}

// nextLocked returns the time of the next poll.
func (p *Poller) nextLocked() (next time.Time) {
	for i := range p.waiting {
		at := p.waiting[i].next
		if p.waiting[i].slow() && at.Before(p.slowAt.Add(pollSlowEvery)) {
			at = p.slowAt.Add(pollSlowEvery)
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	if earliest := time.Now().Add(pollEvery); next.Before(earliest) {
		return earliest
	}
	return next
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
			t.found = there && (t.ID.IsZero() || t.ID == id)
			t.gone = there && !t.found // Another transaction has recorded the key, so this one was rolled back.
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
	if t.Reported == nil || p.warned.Swap(true) {
		return
	}
	p.e.Log.Warn("compensator: entries are recorded in transactions whose commit the library does not see; it polls for them, and they start up to a second late, "+
		"or with the next reconciliation if their transaction takes longer than a minute. Open the pool on a Connector, call Receipt.Committed after each commit, "+
		"or run the transaction by InTx or WithRetry. This is logged once", "idempotent_id", t.Key)
}
