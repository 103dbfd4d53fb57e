package processlog

import (
	"context"
	"fmt"
	"time"
)

// Queue is the delay queue of due and leased entries: a hint, rebuilt from the store whenever it forgets.
// It may lose, repeat or invent ids; only latency may suffer. Every method may be called concurrently and
// takes remaining durations, never instants: the queue's clock is its own. An implementation is right when
// it passes suite.TestQueue of package compensatortest/suite.
type Queue interface {
	// Check reports why this queue cannot be used. fingerprint is the store's: two databases behind one
	// prefix would remove each other's entries, so the second is refused.
	Check(ctx context.Context, fingerprint string) error

	// Announce makes each entry come due after its In. An entry the queue already knows keeps its place,
	// unless that is later than In plus MaxLease: then it is pulled in. An entry with In > Near is left out
	// when its type already has Limit members. It returns the types whose earliest due moment moved forward, and
	// those that are lost. A *LeftOutError says that all else was done, but entries of some types had no room: those
	// types are lost, and stay so until they can be rebuilt.
	Announce(ctx context.Context, items []Announcement, rules AnnounceRules) (newHeads, lost []string, err error)

	// Claim leases up to limit due entries of a type, earliest first: until lease from now nobody else is
	// given them.
	Claim(ctx context.Context, businessType string, limit int, lease time.Duration) (Leased, error)

	// Settle removes or moves entries that still carry the lease token they were claimed with. All others are
	// somebody else's by now: they are pulled in when they would come later than In, else left alone. One that is not
	// there stays away, unless its type is lost: it is added then, for whoever rebuilds may have read it as it was before.
	Settle(ctx context.Context, businessType string, items []QueueOutcome) error

	// Peek returns, per type, the time until its next entry is due (≤ 0: now), or Never; and the types that are lost.
	Peek(ctx context.Context, businessTypes []string) (waits []time.Duration, lost []string, err error)

	// Rebuild returns those of the lost types that are the caller's to rebuild: to announce everything of, and then to
	// call Rebuilt with the same token. For period nobody else is given them.
	//
	// A type is lost until it has been rebuilt once, and from the moment the queue may have dropped entries of it, as a
	// Redis does that evicts a key. A queue that drops entries of no type by itself need not call any type lost.
	Rebuild(ctx context.Context, businessTypes []string, token Token, period time.Duration) (mine []string, err error)

	// Rebuilt makes types whole that have dropped nothing since Rebuild was called with the token, and returns those
	// that are.
	Rebuilt(ctx context.Context, businessTypes []string, token Token) (whole []string, err error)

	// Notify tells other processes that types have a new earliest due moment. Best effort.
	Notify(ctx context.Context, businessTypes []string) error

	// Listen calls wake for each type another process notified about, until ctx ends. It reconnects by
	// itself; while it cannot, notifications are lost. wake must not block.
	Listen(ctx context.Context, wake func(businessType string))

	// Kept reports whether everything announced since the last call with true is still there as far as
	// the queue can tell: false right after a restart without persistence, a FLUSHALL, a lossy failover.
	Kept(ctx context.Context) (bool, error)

	// Lead reports whether the caller is the one to reconcile for the coming period, so that many processes
	// do not all read the same rows. Two leaders, or none for a period, do no harm.
	Lead(ctx context.Context, period time.Duration) (bool, error)

	// Close releases what the queue opened itself. Of a queue that processes share every other call fails afterwards, but
	// Listen, which hears nothing more; the other processes' go on.
	Close() error
}

// Never is Peek's answer for a type with no entries.
const Never = time.Duration(1<<63 - 1)

// Announcement tells the queue when an entry wants to be claimed.
type Announcement struct {
	BusinessType string
	ID           ID
	In           time.Duration // ≤ 0: now
}

// AnnounceRules say what a queue does with announced entries that it knows already, or has no room for.
type AnnounceRules struct {
	MaxLease time.Duration // the longest lease an entry may be known by in place of its due moment
	Limit    int           // the most members of a type, see Config.QueueLimit; 0: no limit
	Near     time.Duration // entries due within this are taken whatever the Limit
}

// LeftOutError says that a queue that answers has left out entries that were announced.
type LeftOutError struct {
	BusinessTypes []string
	Reason        string
}

// Error names the types and the reason.
func (e *LeftOutError) Error() string {
	return fmt.Sprintf("entries of %q were left out: %s", e.BusinessTypes, e.Reason)
}

// Leased is what Queue.Claim took.
type Leased struct {
	Token int64 // to give back to Settle; the lease's end in the queue's clock
	IDs   []ID
	Next  time.Duration // until the next entry beyond these is due; ≤ 0: now; Never
	Lost  bool          // the type is, see Queue.Rebuild: others may be due
}

// QueueOutcome ends a queue lease: remove the entry, or make it due again.
type QueueOutcome struct {
	ID     ID
	Token  int64
	Remove bool
	In     time.Duration // when not Remove: until due again
}
