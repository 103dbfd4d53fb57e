package engine

import (
	"sync/atomic"

	"github.com/compensator-go/compensator/processlog"
)

// UnseenCommit is a transaction whose end this process does not see. It has recorded an entry, or changed one.
type UnseenCommit struct {
	Key   processlog.IdempotencyKey // of the recorded entry; empty for a change
	ID    processlog.ID             // of the entry; zero if a bulk insert did not tell it
	Token processlog.Token          // that a change leaves in the row

	Committed func()       // is called at most once, when the transaction is found committed
	Told      *atomic.Bool // the caller has reported the commit; nil for a change
}

// CommitPoller finds out which transactions have committed. Its methods are safe for concurrent use.
type CommitPoller interface {
	Add(c UnseenCommit)

	// Close returns when no Committed runs, and none is called after that.
	Close()
}

// AttachCommitPoller makes p poll for transactions. Call it before anything is recorded. Without a poller the reconciler finds
// the entries of these transactions, and their changes take effect here when something else finds them.
func (e *Engine) AttachCommitPoller(p CommitPoller) { e.poller = p }

// noPoller polls for nothing.
type noPoller struct{}

func (noPoller) Add(UnseenCommit) {}
func (noPoller) Close()           {}
