package engine

import (
	"sync/atomic"

	"github.com/compensator-go/compensator/processlog"
)

// UnseenCommit describes a transaction whose end this process does not see. The transaction has recorded or changed an
// entry.
type UnseenCommit struct {
	Key   processlog.IdempotencyKey // idempotency key of the recorded entry; empty for a change
	ID    processlog.ID             // id of the entry; zero if a bulk insert did not return it
	Token processlog.Token          // token that a change writes to the row

	Committed func()       // called at most once, when the transaction is found committed
	Told      *atomic.Bool // set when the caller has reported the commit; nil for a change
}

// CommitPoller finds out which transactions have committed. Its methods are safe for concurrent use.
type CommitPoller interface {
	Add(c UnseenCommit)

	// Close waits for running Committed functions to return. None is called after Close.
	Close()
}

// AttachCommitPoller makes p poll for transactions. Call it before anything is recorded. Without a poller the
// reconciler finds the recorded entries. Changes then take effect here only when another read finds them.
func (e *Engine) AttachCommitPoller(p CommitPoller) { e.poller = p }

// noPoller polls for nothing.
type noPoller struct{}

func (noPoller) Add(UnseenCommit) {}
func (noPoller) Close()           {}
