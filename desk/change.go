package desk

import (
	"context"
	"errors"
	"time"

	"github.com/compensator-go/compensator"
)

var errNotYet = errors.New("desk: not yet")

// Why says why somebody does something.
type Why struct {
	Reason string // required
	Ticket string // optional: letters, digits and - _ . / # : only, at most 64 of them. Kept before the reason, as "[OPS-988] "
}

// Seen names an entry as it was seen: Entry.ID and Entry.Version.
type Seen struct {
	ID      compensator.EntryID
	Version uint64
}

// Change is one action on entries.
type Change struct {
	Action  Right // Requeue, Compensate, SettleByHand, Cancel, Complete or Reschedule
	Entries []Seen
	Why
	Delay time.Duration // Requeue, Compensate, Reschedule: until due
}

// MaxEntries is how many entries a Change names at most.
const MaxEntries = 500

// Change does what it says to each entry that still stands as it was seen, in one transaction with the records and the
// closing of their cases, and answers for each in their order: nil, or why it was left alone. compensator.ErrNotFound: it is
// not there, or may not be seen; ErrNotAllowed: the right is missing for this type or amount; ErrChanged; ErrBusy;
// *StateError. It wants SeeEntries and the Action's right, and RequeueSucceeded to do again what has succeeded, was settled
// by hand, or to compensate what was compensated. With another error nothing was done, or all, when the answer to COMMIT
// was lost: then a second call finds ErrChanged.
func (d *Desk) Change(ctx context.Context, a Actor, ch Change) ([]error, error) {
	return nil, errNotYet
}
