package processlog

import (
	"context"
	"fmt"
	"time"
)

// Queue is the delay queue of due and leased entries. It is only a hint: the library fills it again from the store when
// the queue forgets. It may lose, repeat or invent ids, and only latency suffers. Its methods are called concurrently.
// They take remaining durations, never times, because the queue has its own clock. An implementation is right if it
// passes suite.TestQueue of package compensatortest/suite.
type Queue interface {
	// Check returns why this queue cannot be used. fingerprint is the store's. Two databases behind one prefix would
	// remove each other's entries, so the second one is refused.
	Check(ctx context.Context, fingerprint string) error

	// Enqueue adds entries that are due after their In. An entry that the queue already has keeps its due time, unless
	// that is later than In plus MaxLease. Then it becomes due after In. If a type already has Limit members, an entry
	// of it with In > Near is left out.
	//
	// newHeads are the types whose earliest due time moved forward. lost are the types that are lost: see Rebuild. A
	// *LeftOutError says that entries of some types had no room, and that everything else was done. Those types are lost
	// until they can be rebuilt.
	Enqueue(ctx context.Context, items []QueueEntry, rules EnqueueRules) (newHeads, lost []string, err error)

	// Claim leases up to limit due entries of a type, earliest first. For the next lease no other caller gets them.
	Claim(ctx context.Context, businessType string, limit int, lease time.Duration) (Leased, error)

	// Settle removes or moves entries that still carry the lease token of their claim. Any other entry belongs to
	// another claim by now. Such an entry becomes due after In if it would be due later, and is otherwise left alone. An
	// entry that is missing stays missing, unless its type is lost. In a lost type it is added, because the process that
	// rebuilds may have read its former state.
	Settle(ctx context.Context, businessType string, items []QueueOutcome) error

	// Peek returns for each type the time until its next entry is due, or Never. A time ≤ 0 means now. lost are the
	// types that are lost.
	Peek(ctx context.Context, businessTypes []string) (waits []time.Duration, lost []string, err error)

	// Rebuild returns the lost types that the caller must rebuild. The caller enqueues all their entries, and then
	// calls Rebuilt with the same token. For the time period no other caller gets these types.
	//
	// A type is lost until it was rebuilt once. It is lost again when the queue may have dropped entries of it, for
	// example when Redis evicts a key. A queue that never drops entries need not report lost types.
	Rebuild(ctx context.Context, businessTypes []string, token Token, period time.Duration) (mine []string, err error)

	// Rebuilt marks types as whole that have dropped nothing since Rebuild was called with the token. It returns those
	// types.
	Rebuilt(ctx context.Context, businessTypes []string, token Token) (whole []string, err error)

	// Notify tells other processes that types have a new earliest due time. Notifications may get lost.
	Notify(ctx context.Context, businessTypes []string) error

	// Listen calls wake for each type about which another process notified, until ctx ends. It reconnects by itself.
	// Notifications are lost while it is not connected. wake must not block.
	Listen(ctx context.Context, wake func(businessType string))

	// Kept reports whether everything enqueued since the last true result is still there, as far as the queue can tell.
	// It returns false right after a restart without persistence, after a FLUSHALL, and after a failover that lost data.
	Kept(ctx context.Context) (bool, error)

	// Lead reports whether the caller should reconcile for the coming period. It keeps many processes from reading the
	// same rows. Two leaders, or none for a period, do no harm.
	Lead(ctx context.Context, period time.Duration) (bool, error)

	// Close releases what the queue opened itself. If processes share the queue, every later call here fails, and Listen
	// is never notified again. The other processes are not affected.
	Close() error
}

// Never is the result of Peek for a type without entries.
const Never = time.Duration(1<<63 - 1)

// QueueEntry tells the queue when an entry is due.
type QueueEntry struct {
	BusinessType string
	ID           ID
	In           time.Duration // ≤ 0: now
}

// EnqueueRules say what the queue does with an entry that it already has, or has no room for.
type EnqueueRules struct {
	MaxLease time.Duration // longest lease for which the queue may keep an entry in place of its due time
	Limit    int           // maximum number of members of a type, see Config.QueueLimit; 0: no limit
	Near     time.Duration // entries due within this time are added in spite of Limit
}

// LeftOutError says that the queue works, but did not take some of the entries that were passed to Enqueue.
type LeftOutError struct {
	BusinessTypes []string
	Reason        string
}

// Error returns a text with the types and the reason.
func (e *LeftOutError) Error() string {
	return fmt.Sprintf("entries of %q were left out: %s", e.BusinessTypes, e.Reason)
}

// Leased is the result of Queue.Claim.
type Leased struct {
	Token int64 // pass it to Settle. It is the end of the lease by the queue's clock
	IDs   []ID
	Next  time.Duration // time until the next entry after these is due. ≤ 0: now. Never: none
	Lost  bool          // the type is lost, so other entries may be due: see Queue.Rebuild
}

// QueueOutcome ends a lease of the queue. It removes the entry or makes it due again.
type QueueOutcome struct {
	ID     ID
	Token  int64
	Remove bool
	In     time.Duration // time until the entry is due again, unless Remove
}
