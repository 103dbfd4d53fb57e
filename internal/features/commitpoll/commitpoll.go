// Package commitpoll asks the database which transactions have committed. It is needed for pools without a Connector,
// because there this process cannot see the end of a transaction.
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

// firstPolls are the delays of the first polls for a transaction. Each delay begins when the statement that records or
// changes an entry is sent.
var firstPolls = [...]time.Duration{50 * time.Millisecond, 200 * time.Millisecond, time.Second}

const (
	// minPollInterval is the shortest time before the next poll. In this time the polls of several transactions become
	// due. One statement then asks for all of them.
	minPollInterval = 50 * time.Millisecond

	slowPollInterval = time.Second

	// pollLimit is the time after which the poller stops asking for a transaction. The reconciler then finds the
	// entries of the transaction.
	pollLimit = time.Minute

	reportTimeout = 200 * time.Millisecond

	// maxWaiting is the maximum number of transactions that the poller keeps in memory. The poller ignores further
	// transactions. The reconciler finds the entries of ignored transactions.
	maxWaiting = 10_000

	// maxSlow is the number of slow transactions that one statement can ask for. If there are more, the poller drops
	// the oldest slow transactions. The oldest transactions have most likely been rolled back.
	maxSlow = processlog.MaxRows
)

// transaction is a transaction that has either recorded entries or changed one entry, for example by Cancel.
type transaction struct {
	recording *engine.Recording         // the entries that the transaction has recorded; nil for a change
	key       processlog.IdempotencyKey // key of one recorded entry; empty for a change
	id        processlog.ID             // id of the recorded or changed entry; zero if a bulk insert did not return the id
	token     processlog.Token          // token that a change writes to the row; zero for a recorded entry
	committed func()                    // called at most once

	sentAt     time.Time // time just before its statement was sent
	nextPoll   time.Time
	polls      int
	isFound    bool
	rolledBack bool
}

func (t *transaction) isSlow() bool { return t.polls >= len(firstPolls) && !t.isFound }

// Poller asks the database whether transactions have committed, with one statement for all transactions that are due.
//
// The Poller asks for a transaction for one minute at most. Later, the reconciler finds the entries of the transaction.
type Poller struct {
	e      *engine.Engine
	warned atomic.Bool

	mu           sync.Mutex // guards the fields below
	waiting      []transaction
	lastSlowPoll time.Time
	timer        *time.Timer // nil until the first transaction waits
	wakeAt       time.Time   // time at which the timer fires, or at which the running poll began; zero if nothing waits
	closed       bool
	polling      sync.WaitGroup // counts the running poll. No poll begins after closed is set, so close can wait for the running poll
}

// Attach makes an engine poll for the transactions whose end it does not see. Closing the engine ends the polls.
func Attach(e *engine.Engine) {
	p, h := &Poller{e: e}, &e.Hooks
	h.AwaitCommit, h.AwaitChange, h.Closing = append(h.AwaitCommit, p.recorded), append(h.AwaitChange, p.changed), append(h.Closing, p.close)
}

// recorded adds the transaction of a Record call to the poller. It first drops the contents and headers of the entries
// to save memory. The poller may keep the recording for a minute, even after a rollback.
func (p *Poller) recorded(r *engine.Recording) {
	for i := range r.Drafts {
		r.Drafts[i].Content, r.Drafts[i].Headers = nil, nil
	}
	for i := range r.Drafts {
		d, in := &r.Drafts[i], &r.Inserted[i]
		if in.Duplicate || d.Done || d.Delay > p.longestDelay() || !p.e.Source().Accepts(d.BusinessType, d.Delay) {
			continue
		}
		// All entries of one Record call commit together, so polling for one is enough.
		p.add(transaction{recording: r, key: d.IdempotencyKey, id: in.ID, committed: r.CommitFound})
		return
	}
}

// longestDelay returns the longest delay of an entry for which the Poller polls. For an entry with a longer delay,
// polling is unnecessary: the reconciler finds the entry before the entry is due.
func (p *Poller) longestDelay() time.Duration {
	if p.e.Source().Scope() == engine.ScopeAll {
		return 4 * p.e.ReconcileInterval
	}
	return 2 * p.e.PollInterval
}

// changed adds the transaction of a change to the poller. It adds nothing if ChangeCommitted would do nothing for this
// change.
func (p *Poller) changed(before processlog.Row, ch processlog.Change) {
	after, err := ch.After(before)
	if err != nil || after.Version == before.Version {
		return
	}
	if after.State.Terminal() && before.LeaseLeft <= 0 && !p.e.Ordered(before.BusinessType) {
		return
	}
	p.add(transaction{id: before.ID, token: ch.Token, committed: func() { p.e.ChangeCommitted(before, ch) }})
}

func (p *Poller) add(t transaction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.waiting) == maxWaiting {
		return
	}
	now := time.Now()
	t.sentAt, t.nextPoll = now, now.Add(firstPolls[0])
	p.waiting = append(p.waiting, t)
	if p.wakeAt.IsZero() || t.nextPoll.Before(p.wakeAt) {
		p.scheduleLocked(t.nextPoll)
	}
}

func (p *Poller) scheduleLocked(at time.Time) {
	p.wakeAt = at
	if p.timer == nil {
		p.timer = time.AfterFunc(time.Until(at), p.poll)
	} else {
		p.timer.Reset(time.Until(at))
	}
}

func (p *Poller) close() {
	p.mu.Lock()
	p.closed = true
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	p.polling.Wait()
}

func (p *Poller) poll() {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.polling.Add(1)
	defer p.polling.Done()
	p.wakeAt = time.Now()
	due := p.takeDueLocked(p.wakeAt)
	p.mu.Unlock()

	p.findCommitted(due)

	p.mu.Lock()
	defer p.mu.Unlock()
	p.keepWaitingLocked(due)
	p.wakeAt = time.Time{}
	if len(p.waiting) > 0 && !p.closed {
		p.scheduleLocked(p.nextPollLocked())
	}
}

func (p *Poller) takeDueLocked(now time.Time) (due []transaction) {
	pollSlow := now.Sub(p.lastSlowPoll) >= slowPollInterval
	p.waiting = slices.DeleteFunc(p.waiting, func(t transaction) bool {
		switch {
		case t.recording != nil && t.recording.CommitReported():
			return true
		case t.isSlow() && (!pollSlow || t.nextPoll.Sub(now) >= slowPollInterval), !t.isSlow() && t.nextPoll.After(now):
			return false
		}
		if t.isSlow() {
			p.lastSlowPoll = now
		}
		t.polls++
		due = append(due, t)
		return true
	})
	return due
}

func (p *Poller) keepWaitingLocked(polled []transaction) {
	now, slowCount := time.Now(), 0
	for _, t := range polled {
		if p.scheduleNext(&t, now) {
			p.waiting = append(p.waiting, t)
		}
	}
	for i := range p.waiting {
		if p.waiting[i].isSlow() {
			slowCount++
		}
	}
	if slowCount <= maxSlow {
		return
	}
	slices.SortFunc(p.waiting, func(a, b transaction) int { return a.sentAt.Compare(b.sentAt) }) // the oldest first
	p.waiting = slices.DeleteFunc(p.waiting, func(t transaction) bool {
		drop := slowCount > maxSlow && t.isSlow()
		if drop {
			slowCount--
		}
		return drop
	})
}

// scheduleNext sets the time of the next poll of the transaction t. It returns false if the poller must forget t. After
// a poll has found the commit of t, the program has the time reportTimeout to report the commit, for example by
// Receipt.Committed. If the program does not report it in this time, the next poll logs a warning.
func (p *Poller) scheduleNext(t *transaction, now time.Time) bool {
	switch {
	case t.rolledBack, t.isFound && (t.recording == nil || p.warned.Load()):
		return false
	case t.isFound:
		t.nextPoll = now.Add(reportTimeout)
	case t.polls < len(firstPolls):
		t.nextPoll = t.sentAt.Add(firstPolls[t.polls])
	default:
		t.nextPoll = now.Add(max(slowPollInterval, now.Sub(t.sentAt)/8))
	}
	return t.nextPoll.Sub(t.sentAt) <= pollLimit
}

func (p *Poller) nextPollLocked() (next time.Time) {
	for i := range p.waiting {
		nextPoll := p.waiting[i].nextPoll
		if p.waiting[i].isSlow() && nextPoll.Before(p.lastSlowPoll.Add(slowPollInterval)) {
			nextPoll = p.lastSlowPoll.Add(slowPollInterval)
		}
		if next.IsZero() || nextPoll.Before(next) {
			next = nextPoll
		}
	}
	if earliest := time.Now().Add(minPollInterval); next.Before(earliest) {
		return earliest
	}
	return next
}

func (p *Poller) findCommitted(due []transaction) {
	var keys []processlog.IdempotencyKey
	var ids []processlog.ID
	for i := range due {
		switch t := &due[i]; {
		case t.isFound:
			p.warnUnreported(t)
		case t.key != "":
			keys = append(keys, t.key)
		default:
			ids = append(ids, t.id)
		}
	}
	recorded, tokens := p.readIDs(keys), p.readTokens(ids)
	for i := range due {
		t := &due[i]
		if t.isFound {
			continue
		}
		if t.key != "" {
			id, exists := recorded[t.key]
			t.isFound = exists && (t.id.IsZero() || t.id == id)
			t.rolledBack = exists && !t.isFound // Another transaction has recorded the key, so this one was rolled back.
		} else {
			token, exists := tokens[t.id]
			t.isFound = exists && token == t.token
		}
		if t.isFound {
			failpoint.Reach(failpoint.CommitFound)
			t.committed()
		}
	}
}

func (p *Poller) readIDs(keys []processlog.IdempotencyKey) map[processlog.IdempotencyKey]processlog.ID {
	if len(keys) == 0 {
		return nil
	}
	ctx, cancel := p.e.Statement()
	defer cancel()
	ids, err := p.e.Store.IDs(ctx, nil, keys)
	p.e.NoteResult(engine.ProblemReadBack, err)
	return ids
}

func (p *Poller) readTokens(ids []processlog.ID) map[processlog.ID]processlog.Token {
	if len(ids) == 0 {
		return nil
	}
	slices.SortFunc(ids, processlog.ID.Compare)
	ctx, cancel := p.e.Statement()
	defer cancel()
	versions, err := p.e.Store.Versions(ctx, slices.Compact(ids))
	p.e.NoteResult(engine.ProblemReadBack, err)
	tokens := make(map[processlog.ID]processlog.Token, len(versions))
	for _, v := range versions {
		tokens[v.ID] = v.Token
	}
	return tokens
}

func (p *Poller) warnUnreported(t *transaction) {
	if t.recording == nil || p.warned.Swap(true) {
		return
	}
	p.e.Log.Warn("compensator: entries are recorded in transactions whose commit the library does not see; it polls for them, and they start up to a second late, "+
		"or with the next reconciliation if their transaction takes longer than a minute. Open the pool on a Connector, call Receipt.Committed after each commit, "+
		"or run the transaction by InTx or WithRetry. This is logged once", "idempotent_id", t.key)
}
