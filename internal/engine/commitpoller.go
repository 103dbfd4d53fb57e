package engine

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/processlog"
)

// pollCommitAfter lists when the database is asked whether a transaction has committed, counted from its statement of ours.
var pollCommitAfter = [...]time.Duration{50 * time.Millisecond, 200 * time.Millisecond, time.Second}

const (
	// pollCommitEvery is the shortest time between two polls, so that a busy process asks for many transactions at once.
	pollCommitEvery = 50 * time.Millisecond

	// reportedWithin is how long after the last poll a commit may be reported before a warning says that it was not.
	reportedWithin = 200 * time.Millisecond

	// unseenCommitsKept bounds the transactions that wait for a poll. The reconciler finds the entries of further ones.
	unseenCommitsKept = 10_000
)

// unseenCommit is a transaction on a plain pool, whose end this process does not see. It has recorded an entry, or changed one.
type unseenCommit struct {
	key       processlog.IdempotencyKey // of the recorded entry; empty for a change
	id        processlog.ID             // of the entry; zero where a bulk insert has not told it
	token     processlog.Token          // that a change leaves in the row
	committed func()                    // is called once, when a poll finds the transaction committed
	told      *atomic.Bool              // Receipt.Committed was called; nil for a change

	at    time.Time // of the statement
	polls int       // how many it has had
	found bool      // by a poll
}

// commitPoller asks the database for the commits that this process does not see, so that their entries start soon and not with
// the next round of the reconciler. It asks three times, in one statement for all transactions that wait. A transaction that
// takes longer, or that a crash follows, is the reconciler's.
type commitPoller struct {
	*Base
	warned atomic.Bool

	mu        sync.Mutex
	waiting   []unseenCommit // guarded by mu
	timer     *time.Timer    // guarded by mu; nil until the first commit waits
	scheduled bool           // the timer runs, or a poll does; guarded by mu
	closed    bool           // guarded by mu
	polling   sync.WaitGroup // added to under mu, before closed
}

// add has a transaction polled for.
func (p *commitPoller) add(c unseenCommit) {
	c.at = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.waiting) == unseenCommitsKept {
		return
	}
	p.waiting = append(p.waiting, c)
	if !p.scheduled {
		p.scheduled = true
		p.scheduleLocked(pollCommitAfter[0])
	}
}

func (p *commitPoller) scheduleLocked(in time.Duration) {
	if p.timer == nil {
		p.timer = time.AfterFunc(in, p.poll)
	} else {
		p.timer.Reset(in)
	}
}

// close ends polling, and waits for a poll under way.
func (p *commitPoller) close() {
	p.mu.Lock()
	p.closed = true
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	p.polling.Wait()
}

// poll asks for the transactions whose turn it is, and schedules the next poll.
func (p *commitPoller) poll() {
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

// done reports whether a transaction has had its polls. One that the last poll has found waits for another turn, which asks nothing:
// its commit may be reported a moment later, and if it is not, a warning says so.
func (p *commitPoller) done(c unseenCommit) bool {
	warns := c.found && c.told != nil && !p.warned.Load()
	return c.polls > len(pollCommitAfter) || c.polls == len(pollCommitAfter) && !warns
}

// nextAfter is how long after its statement a transaction has its next turn.
func (c *unseenCommit) nextAfter() time.Duration {
	if c.polls < len(pollCommitAfter) {
		return pollCommitAfter[c.polls]
	}
	return pollCommitAfter[len(pollCommitAfter)-1] + reportedWithin
}

// takeDueLocked removes the transactions that are to be polled for now. It drops those whose end was told meanwhile.
func (p *commitPoller) takeDueLocked(now time.Time) (due []unseenCommit) {
	p.waiting = slices.DeleteFunc(p.waiting, func(c unseenCommit) bool {
		if c.told != nil && c.told.Load() {
			return true
		}
		if now.Sub(c.at) < c.nextAfter() {
			return false
		}
		c.polls++
		due = append(due, c)
		return true
	})
	return due
}

// nextLocked is how long it is until the next poll.
func (p *commitPoller) nextLocked() time.Duration {
	next := pollCommitAfter[len(pollCommitAfter)-1]
	for i := range p.waiting {
		c := &p.waiting[i]
		next = min(next, time.Until(c.at.Add(c.nextAfter())))
	}
	return max(next, pollCommitEvery)
}

// ask finds out which transactions have committed, and sends their entries on their way.
func (p *commitPoller) ask(due []unseenCommit) {
	var keys []processlog.IdempotencyKey
	var changed []processlog.ID
	for i := range due {
		switch c := &due[i]; {
		case c.found:
			p.warn(c)
		case c.key != "":
			keys = append(keys, c.key)
		default:
			changed = append(changed, c.id)
		}
	}
	ids, tokens := p.recorded(keys), p.changed(changed)
	for i := range due {
		c := &due[i]
		id, recorded := ids[c.key]
		token, changed := tokens[c.id]
		switch {
		case c.found:
			continue
		case c.key != "":
			c.found = recorded && (c.id.IsZero() || c.id == id) // another transaction may have recorded the key
		default:
			c.found = changed && token == c.token
		}
		if c.found {
			failpoint.Reach(failpoint.CommitFound)
			c.committed()
		}
	}
}

// recorded reads the ids of the entries that are there.
func (p *commitPoller) recorded(keys []processlog.IdempotencyKey) map[processlog.IdempotencyKey]processlog.ID {
	if len(keys) == 0 {
		return nil
	}
	ctx, cancel := p.Statement()
	defer cancel()
	ids, err := p.Store.IDs(ctx, nil, keys)
	p.Saw(problemReadBack, err)
	return ids
}

// changed reads the tokens of entries.
func (p *commitPoller) changed(ids []processlog.ID) map[processlog.ID]processlog.Token {
	if len(ids) == 0 {
		return nil
	}
	slices.SortFunc(ids, processlog.ID.Compare)
	ctx, cancel := p.Statement()
	defer cancel()
	versions, err := p.Store.Versions(ctx, slices.Compact(ids))
	p.Saw(problemReadBack, err)
	tokens := make(map[processlog.ID]processlog.Token, len(versions))
	for _, v := range versions {
		tokens[v.ID] = v.Token
	}
	return tokens
}

// warn says once that nobody reports commits to this process.
func (p *commitPoller) warn(c *unseenCommit) {
	if c.told == nil || p.warned.Swap(true) {
		return
	}
	p.Log.Warn("compensator: entries are recorded in transactions whose commit the library does not see; it polls for them, and they start up to a second late, "+
		"or with the next reconciliation when their transaction takes longer than that. Open the pool on a Connector, call Receipt.Committed after each commit, "+
		"or run the transaction by InTx or RetryTx. This is logged once", "idempotent_id", c.key)
}
