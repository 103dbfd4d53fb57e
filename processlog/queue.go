package processlog

import (
	"context"
	"fmt"
	"time"
)

// Queue is the delay queue of due and leased entries. It is only a hint: if it loses, repeats or invents ids, entries only
// start later, and the library fills it again from the store.
//
// The methods of Queue are called concurrently. They take durations, because the queue has its own clock. An
// implementation is right if it passes suite.TestQueue of package compensatortest/suite.
type Queue interface {
	// Check returns the reason if this queue cannot be used. Only one database may use a prefix of the queue. Check
	// recognises another database by its Store.Fingerprint, and returns an error. New and each round of the reconciler
	// call Check.
	Check(ctx context.Context, fingerprint string) error

	// Enqueue adds entries to the queue. Each entry becomes due when the duration in its field In has passed. An entry
	// that the queue already has keeps its due time. But if that time is later than the new due time plus
	// rules.MaxLease, the entry gets the new due time. If a type already has rules.Limit members, Enqueue adds a new
	// entry of the type only if the entry is due within rules.Near.
	//
	// newHeads are the types whose earliest due time has become earlier. lostTypes are the types of which the queue may
	// lack entries: see Rebuild. A *LeftOutError names types for which the queue had no space. These types are lost,
	// too. All entries that had space were added.
	Enqueue(ctx context.Context, items []QueueEntry, rules EnqueueRules) (newHeads, lostTypes []string, err error)

	// Claim leases up to limit due entries of a type, earliest first. No other call returns these entries until the
	// lease ends.
	Claim(ctx context.Context, businessType string, limit int, lease time.Duration) (Leased, error)

	// Settle removes an entry from the queue, or makes it due again, as its QueueOutcome says. The outcome has the
	// token of a lease in the queue. There are three cases:
	//
	//   - The entry has this lease. Settle removes the entry or changes its due time.
	//   - The entry has another lease, or none. Settle only moves the due time, and only to an earlier time.
	//   - The queue does not have the entry. Settle adds an entry that is due again, but only while the type is lost.
	//     The process that rebuilds the type may have read an old state of the entry, and may not add the entry.
	Settle(ctx context.Context, businessType string, items []QueueOutcome) error

	// Peek returns for each type the time until its next entry is due, or Never. A time ≤ 0 means that an entry is due
	// now. lostTypes are the lost types: see Rebuild.
	Peek(ctx context.Context, businessTypes []string) (waits []time.Duration, lostTypes []string, err error)

	// Rebuild returns the lost types that the caller must rebuild. The caller enqueues all entries of these types, and
	// then calls Rebuilt with the same token. Until period has passed, Rebuild returns these types to no other caller.
	//
	// A type is lost until it is first rebuilt, and again when the queue may have dropped entries of the type. A queue
	// that never drops entries need not report lost types.
	Rebuild(ctx context.Context, businessTypes []string, token Token, period time.Duration) (assigned []string, err error)

	// Rebuilt ends the lost state of types, and returns those that are no longer lost. A type stays lost if the queue has
	// dropped entries of the type since the call of Rebuild with this token.
	Rebuilt(ctx context.Context, businessTypes []string, token Token) (rebuilt []string, err error)

	// Notify tells other processes that types have a new earliest due time. Notifications may get lost. The parameter
	// businessTypes may also have an element that begins with a NUL byte. This element is no type but a message of up
	// to 11,000 bytes about ended entries. The queue passes every element on unchanged.
	Notify(ctx context.Context, businessTypes []string) error

	// Listen calls wake for each type that another process passes to Notify, until ctx ends. It reconnects after a lost
	// connection, and loses notifications meanwhile. wake must not block.
	Listen(ctx context.Context, wake func(businessType string))

	// Lead reports whether the caller should reconcile during the next period. It usually returns true to one process
	// only. Two leaders, or none for one period, do no harm.
	Lead(ctx context.Context, period time.Duration) (bool, error)

	// Close releases the resources that the queue opened itself. After Close, every method fails, and a running Listen
	// does not call its function any more. Other processes that share the queue are not affected.
	Close() error
}

// QueueInspector is implemented by a Queue that can report its data about one entry, for people.
type QueueInspector interface {
	// Inspect returns the queue's data about an entry. It changes nothing.
	Inspect(ctx context.Context, businessType string, id ID) (Queued, error)
}

// Queued is the data of a queue about an entry.
type Queued struct {
	Has bool // whether the queue has the entry
	// In is the time until the entry is due in the queue, or until its lease in the queue ends. If the entry is due, or
	// if the queue does not have the entry, In is 0.
	In   time.Duration
	Lost bool // whether the type is lost, so that the queue may lack entries of it: see Queue.Rebuild
}

// Never is the result of Peek for a type without entries.
const Never = time.Duration(1<<63 - 1)

// QueueEntry tells the queue when an entry is due.
type QueueEntry struct {
	BusinessType string        // business type of the entry
	ID           ID            // id of the entry
	In           time.Duration // time until the entry is due; ≤ 0: now
}

// EnqueueRules are the rules by which Enqueue treats entries that the queue already has, and types that are full.
type EnqueueRules struct {
	// MaxLease is the longest lease of any process. For a leased entry, the queue stores the end of the lease as the
	// due time. This due time is at most QueueEntry.In plus MaxLease, and Enqueue must not replace it. So Enqueue
	// replaces only a due time that is later than QueueEntry.In plus MaxLease.
	MaxLease time.Duration
	Limit    int // maximum number of members of a type, see Config.QueueLimit; 0: no limit
	// Near is a duration. An entry that is due within this time is added even to a type that has as many members as the
	// field Limit allows.
	Near time.Duration
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
	// Token is the end of the lease, by the queue's clock. Settle recognises the lease by this token.
	Token int64
	IDs   []ID // entries that the caller has leased
	// Next is the time until the next entry without a lease is due: ≤ 0 if one is due now, and Never if there is none.
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
