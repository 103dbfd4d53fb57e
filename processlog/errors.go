package processlog

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// About a transaction.
var (
	// ErrNoTransaction: the handle given to Record has no open transaction, so the entry would have been
	// durable before the business change. Nothing was written.
	ErrNoTransaction = errors.New("compensator: no open transaction")

	// ErrTxAborted: the server rolled the transaction back on its own, after a deadlock say, although the
	// handle looks open. It wraps ErrNoTransaction. Roll back and run the whole transaction again.
	ErrTxAborted = fmt.Errorf("%w: the server rolled it back", ErrNoTransaction)

	// ErrNotRecorded: Commit refused, and rolled back, because an entry of this transaction was refused or could
	// not be written. Connector and InTx return it, so that a swallowed error of Record never commits half.
	ErrNotRecorded = errors.New("compensator: transaction holds an entry that was not written; rolled back")

	// ErrHistoryLost: the database no longer knows what this process has seen it keep: a replica was promoted that
	// lagged, or a backup restored. Nothing is recorded and nothing started here until a person calls AcceptLoss. It
	// comes as a *LossError.
	ErrHistoryLost = errors.New("compensator: the database has gone back")

	// ErrCommitUnknown: the connection broke around COMMIT. The transaction may have happened or not; ask
	// Resolve.
	ErrCommitUnknown = errors.New("compensator: commit outcome unknown")
)

// About one entry.
var (
	ErrNotFound = errors.New("compensator: no such entry")

	// ErrBusy: another transaction holds the entry's row. Try again.
	ErrBusy = errors.New("compensator: entry is locked by another transaction")

	// ErrChanged: the entry does not stand any more as it was seen. Look again.
	ErrChanged = errors.New("compensator: entry has changed since it was seen")

	// ErrAlreadySucceeded: Complete found that the work is done, by the entry's handler or by somebody who completed it
	// before. Whoever was about to do it must not. It comes as a *StateError.
	ErrAlreadySucceeded = errors.New("compensator: entry has succeeded already")
)

// Causes of a handler's context, read with context.Cause.
var (
	// ErrLeaseLost: the entry may already run elsewhere; a failure or a transactional success reported now
	// is dropped.
	ErrLeaseLost = errors.New("compensator: lease lost")

	// ErrCancelled: somebody cancelled, completed or requeued the entry while it ran.
	ErrCancelled = errors.New("compensator: entry was cancelled while it ran")

	// ErrStopping: Run is ending. An attempt that returns with it, or with context.Canceled, as HTTP clients and drivers do,
	// spends nothing.
	ErrStopping = errors.New("compensator: stopping")

	// ErrTimeout: the type's Timeout passed.
	ErrTimeout = errors.New("compensator: handler timed out")
)

// About the Compensator itself.
var (
	ErrRunning = errors.New("compensator: already running")
	ErrClosed  = errors.New("compensator: closed")
)

// FieldError reports a value that was refused before anything was sent to a server.
type FieldError struct {
	Field  string // as the caller knows it: "business type", "content", "Lease"
	Reason string
}

func (e *FieldError) Error() string { return "compensator: " + e.Field + ": " + e.Reason }

// OtherTypeError reports an idempotent id that stands for an event of another business type. Record returns it, and
// the changes made through a Type.
type OtherTypeError struct {
	IdempotentID IdempotentID
	Recorded     string // the business type of the entry that has the id
	Asked        string // the one that the call named
}

func (e *OtherTypeError) Error() string {
	return fmt.Sprintf("compensator: idempotent id %q belongs to an entry of type %q, not %q", e.IdempotentID, e.Recorded, e.Asked)
}

// Refusal is an entry that the database refuses to change, by a trigger or a constraint for example.
type Refusal struct {
	ID  ID
	Err error // what the database says
}

// RefusedError reports entries that the database refuses to change. All other entries of the same call were changed.
type RefusedError struct {
	Refusals []Refusal // at least one
}

// mostRefusalsNamed bounds how many ids a RefusedError names in its text.
const mostRefusalsNamed = 20

func (e *RefusedError) Error() string {
	ids := make([]string, 0, mostRefusalsNamed+1)
	for _, r := range e.Refusals[:min(len(e.Refusals), mostRefusalsNamed)] {
		ids = append(ids, r.ID.String())
	}
	if more := len(e.Refusals) - len(ids); more > 0 {
		ids = append(ids, fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("compensator: the database refuses to change entry %s: %v", strings.Join(ids, ", "), e.Refusals[0].Err)
}

// Unwrap returns the database's error for the first entry.
func (e *RefusedError) Unwrap() error { return e.Refusals[0].Err }

// LossError is ErrHistoryLost with what this process knows to be missing.
type LossError struct {
	// Lost is what this process remembers, its newest 512 entries at most, and the database has lost, by id. Other processes
	// may know of more, and what none has read back since it was committed is on no list.
	Lost []LostEntry
}

// LostEntry is an entry that the database has forgotten, or has in an earlier version than it had.
type LostEntry struct {
	ID           ID
	IdempotentID IdempotentID
	BusinessType string
	Seen         time.Time // when this process was told, by its clock
	Was          State     // as it was then
	Gone         bool      // there is no such entry; its id may be another's by now
	Is           State     // unless Gone: as it is now
}

func (e *LossError) Error() string {
	var names []string
	for _, l := range e.Lost[:min(len(e.Lost), 3)] {
		names = append(names, fmt.Sprintf("entry %s %q", l.ID, l.IdempotentID))
	}
	return fmt.Sprintf("%v: it has lost what it had of %d entries that are remembered here: %s", ErrHistoryLost, len(e.Lost), strings.Join(names, ", "))
}

func (e *LossError) Unwrap() error { return ErrHistoryLost }

// StateError reports an action that the entry's present state does not allow.
type StateError struct {
	ID           ID
	IdempotentID IdempotentID
	State        State
	Action       Action

	// CompensationBegun: what keeps a service from ending this dead entry. How much of its work has been undone only a
	// person can tell.
	CompensationBegun bool

	Erased bool // what keeps it from being requeued: its content is gone
}

func (e *StateError) Error() string {
	text := fmt.Sprintf("compensator: %s entry %s %q: it is %s", e.Action, e.ID, e.IdempotentID, e.State)
	if e.CompensationBegun {
		text += ", and its compensation has begun: a person has to settle it"
	}
	if e.Erased {
		text += ", and was erased: there is no content to run it with"
	}
	return text
}

// Is reports whether this is ErrAlreadySucceeded. A cancellation that comes too late is not: to whoever cancels, that
// the work is done is no duplicate of theirs.
func (e *StateError) Is(target error) bool {
	return target == ErrAlreadySucceeded && e.Action == ActionComplete && e.State == Succeeded
}

// StuckError reports handlers that were still running when Run gave up waiting for them. Their entries are
// attempted again once their leases end.
type StuckError struct {
	Stuck []StuckAttempt
}

// StuckAttempt is one handler that did not return.
type StuckAttempt struct {
	ID           ID
	BusinessType string
	Running      time.Duration
}

func (s StuckAttempt) String() string {
	return fmt.Sprintf("%s %s (%s)", s.BusinessType, s.ID, s.Running.Round(time.Millisecond))
}

func (e *StuckError) Error() string {
	var names []string
	for _, s := range e.Stuck {
		names = append(names, s.String())
	}
	return fmt.Sprintf("compensator: handlers that did not return: %s", strings.Join(names, ", "))
}

// PanicError is the failure of a handler that panicked, or ended its goroutine with runtime.Goexit.
type PanicError struct {
	Value any // nil after runtime.Goexit
	Stack []byte
}

// printed is the value as package fmt prints it. fmt recovers from a String or Error method that panics, unless it panics with a
// value whose own method panics, too.
func (e *PanicError) printed() (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("a value of type %T, whose own method panics", e.Value)
		}
	}()
	return fmt.Sprint(e.Value)
}

func (e *PanicError) Error() string {
	if e.Value == nil {
		return "handler called runtime.Goexit"
	}
	return fmt.Sprintf("handler panicked: %s\n%s", e.printed(), e.Stack)
}
