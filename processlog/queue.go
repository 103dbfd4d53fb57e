package processlog

import (
	"context"
	"fmt"
	"time"
)

// Queue is the delay queue of due and leased entries. It is only a hint. If it loses, repeats or invents ids, entries
// may start later, but nothing else goes wrong. The library fills the queue again from the store.
//
// The methods of Queue are called concurrently. They take remaining durations and no times, because the queue has its
// own clock. An implementation is right if it passes suite.TestQueue of package compensatortest/suite.
type Queue interface {
	// Check returns the reason if this queue cannot be used. fingerprint is Store.Fingerprint. If two databases used
	// the same prefix in Redis, they would remove each other's entries. So Check refuses the second database. New and
	// each round of the reconciler call Check, because a queue that lost everything may have got a new owner.
	Check(ctx context.Context, fingerprint string) error

	// Enqueue adds entries. Each entry becomes due after its In. If the queue already has the entry, the entry keeps
	// its due time, with one exception: a due time later than In plus MaxLease becomes In. If a type already has Limit
	// members, Enqueue leaves out entries of this type with In > Near.
	//
	// newHeads are the types whose earliest due time has become earlier. lostTypes are the types of which the queue may lack
	// entries: see Rebuild. A *LeftOutError says that the queue had no space for entries of some types. Enqueue has
	// added all other entries. The types in the error are lost until they can be rebuilt.
	Enqueue(ctx context.Context, items []QueueEntry, rules EnqueueRules) (newHeads, lostTypes []string, err error)

	// Claim leases up to limit due entries of a type, earliest first. No other call returns these entries until the
	// lease ends.
	Claim(ctx context.Context, businessType string, limit int, lease time.Duration) (Leased, error)

	// Settle removes or moves each entry whose lease in the queue still has the token that the outcome has. If the queue
	// has another token, another claim holds the entry now. Then Settle only makes the entry due earlier, if
	// QueueOutcome.In says so, and changes nothing else.
	//
	// Settle adds an entry that the queue does not have only if the type is lost. In this case, the process that
	// rebuilds the type may have read an old state of the entry.
	Settle(ctx context.Context, businessType string, items []QueueOutcome) error

	// Peek returns for each type the time until its next entry is due, or Never. A time ≤ 0 means that an entry is due
	// now. lostTypes are the lost types: see Rebuild.
	Peek(ctx context.Context, businessTypes []string) (waits []time.Duration, lostTypes []string, err error)

	// Rebuild returns the lost types that the caller must rebuild. The caller then enqueues all entries of these types,
	// and calls Rebuilt with the same token. Until period has passed, Rebuild returns these types to no other caller.
	//
	// A new type is lost until it is rebuilt for the first time. A type becomes lost again when the queue may have
	// dropped entries of the type, for example when Redis evicts a key, or after FLUSHALL. A queue that never drops
	// entries need not report lost types.
	Rebuild(ctx context.Context, businessTypes []string, token Token, period time.Duration) (assigned []string, err error)

	// Rebuilt ends the lost state of types. A type stays lost if the queue has dropped entries of the type since the
	// call of Rebuild with this token. It returns the types that are no longer lost.
	Rebuilt(ctx context.Context, businessTypes []string, token Token) (rebuilt []string, err error)

	// Notify notifies other processes that types have a new earliest due time. Notifications may get lost. A notification
	// may also be a message about ended entries instead of a business type. Such a message begins with a NUL byte and has up
	// to 11,000 bytes. The queue passes every notification on unchanged.
	Notify(ctx context.Context, businessTypes []string) error

	// Listen calls wake for each type that another process passes to Notify, until ctx ends. After a lost connection it
	// reconnects. Notifications during that time are lost. wake must not block.
	Listen(ctx context.Context, wake func(businessType string))

	// Lead reports whether the caller should reconcile during the next period. It usually returns true to one process
	// only, so only this process reads the rows. It does no harm if two processes reconcile, or if none does for one
	// period.
	Lead(ctx context.Context, period time.Duration) (bool, error)

	// Close releases the resources that the queue opened itself. After Close, every method fails, and Listen calls wake
	// no more. Other processes that share the queue are not affected.
	Close() error
}

// QueueInspector is implemented by a Queue that can report its data about one entry. Package admin asks it in order to
// explain why an entry does not run. The library does not act on the answer.
type QueueInspector interface {
	// Inspect returns the queue's data about an entry. It changes nothing.
	Inspect(ctx context.Context, businessType string, id ID) (Queued, error)
}

// Queued is the data of a queue about an entry.
type Queued struct {
	Has  bool          // whether the queue has the entry
	In   time.Duration // if Has is true: time until the entry is due in the queue, or until its lease there ends; 0: now
	Lost bool          // whether the type is lost, so that the queue may lack entries of it: see Queue.Rebuild
}

// Never is the result of Peek for a type without entries.
const Never = time.Duration(1<<63 - 1)

// QueueEntry tells the queue when an entry is due.
type QueueEntry struct {
	BusinessType string        // business type of the entry
	ID           ID            // id of the entry
	In           time.Duration // time until the entry is due; ≤ 0: now
}

// EnqueueRules are rules of Enqueue for entries that the queue already has, and for types that are full.
type EnqueueRules struct {
	// MaxLease is the longest lease that any process takes. The queue may have an entry with a due time up to In plus
	// MaxLease, because a process may have leased the entry.
	MaxLease time.Duration
	Limit    int           // maximum number of members of a type, see Config.QueueLimit; 0: no limit
	Near     time.Duration // an entry that is due within this time is added even if its type has Limit members
}

// LeftOutError says that Enqueue worked, but left out some of the entries.
type LeftOutError struct {
	BusinessTypes []string // business types of the entries that were left out
	Reason        string   // text for people that says why. Do not parse it
}

// Error returns a text with the types and the reason.
func (e *LeftOutError) Error() string {
	return fmt.Sprintf("entries of %q were left out: %s", e.BusinessTypes, e.Reason)
}

// Leased is the result of Queue.Claim.
type Leased struct {
	// Token is the lease token, which Settle needs. It is the time at which the lease ends, by the queue's clock.
	Token int64
	IDs   []ID // entries that the caller has leased
	// Next is the time until the next entry without a lease is due. It is ≤ 0 if such an entry is due now, and Never if
	// the queue has no such entry.
	Next time.Duration
	Lost bool // whether the type is lost, so that other entries may be due: see Queue.Rebuild
}

// QueueOutcome says how a lease of the queue ends: the queue removes the entry, or makes it due again.
type QueueOutcome struct {
	ID     ID            // id of the entry
	Token  int64         // Leased.Token
	Remove bool          // whether to remove the entry
	In     time.Duration // time until the entry is due again; not used with Remove
}
