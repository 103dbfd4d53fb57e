package processlog

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/compensator-go/compensator/internal/usererr"
)

// These errors are about a transaction.
var (
	// ErrNoTransaction says that the handle given to Record has no open transaction. Record wrote nothing.
	ErrNoTransaction = errors.New("compensator: no open transaction")

	// ErrTxAborted says that the server rolled the transaction back, for example after a deadlock. The handle still
	// looks open. ErrTxAborted wraps ErrNoTransaction. Roll back and run the whole transaction again.
	ErrTxAborted = fmt.Errorf("%w: the server rolled it back", ErrNoTransaction)

	// ErrNotRecorded says that Commit rolled the transaction back, because one of its entries was refused or could not be
	// written. Connector and InTx return it, even if the caller ignored the error of Record.
	ErrNotRecorded = errors.New("compensator: transaction holds an entry that was not written; rolled back")

	// ErrHistoryLost says that the database lacks entries which this process has seen committed, usually after the
	// promotion of a lagging replica or a restored backup. With Config.StopOnLoss the process claims nothing until a
	// person calls AcceptLoss. The error is a *LossError.
	ErrHistoryLost = errors.New("compensator: the database has gone back")

	// ErrCommitUnknown says that the connection broke during COMMIT. Call Resolve to find out.
	ErrCommitUnknown = errors.New("compensator: commit outcome unknown")
)

// These errors are about one entry.
var (
	// ErrNotFound says that there is no such entry, perhaps because it was purged.
	ErrNotFound = errors.New("compensator: no such entry")

	// ErrBusy says that another transaction has locked the entry's row. Try again.
	ErrBusy = errors.New("compensator: entry is locked by another transaction")

	// ErrChanged says that the entry has changed since it was read. Read it again.
	ErrChanged = errors.New("compensator: entry has changed since it was seen")

	// ErrAlreadySucceeded says that the work is already done, by the handler or by an earlier Complete. The caller must
	// not do it again. The error is a *StateError.
	ErrAlreadySucceeded = errors.New("compensator: entry has succeeded already")
)

// These are the causes with which the context of a handler ends. Read the cause with context.Cause.
var (
	// ErrLeaseLost says that another process may already run the entry. The library drops a failure of this attempt,
	// and also a success of a transactional handler.
	ErrLeaseLost = errors.New("compensator: lease lost")

	// ErrCancelled says that the entry was cancelled, completed or requeued while it ran.
	ErrCancelled = errors.New("compensator: entry was cancelled while it ran")

	// ErrStopping says that Run is ending. If a handler returns this error or context.Canceled, the attempt does not
	// count.
	ErrStopping = errors.New("compensator: stopping")

	// ErrTimeout says that the Timeout of the type has passed.
	ErrTimeout = errors.New("compensator: handler timed out")
)

// These errors are about the Compensator itself.
var (
	// ErrRunning says that Run was called, or a type was registered, while Run is running.
	ErrRunning = errors.New("compensator: already running")

	// ErrClosed says that the Compensator was closed.
	ErrClosed = errors.New("compensator: closed")
)

// FieldError reports a value that the library refused before it sent anything to a server.
type FieldError struct {
	Field  string // name that the caller uses, for example "business type", "content" or "Lease"
	Reason string // text for people that says what is wrong. Do not parse it
}

func (e *FieldError) Error() string { return "compensator: " + e.Field + ": " + e.Reason }

// SessionError says that the library has written nothing, because the session of the transaction would store the entry
// wrongly. A cause is, for example, SET unique_checks=0 or USE. The entry can be recorded in another session. If the
// library began the transaction, it closes the session. SessionError wraps a *FieldError that names the variable.
type SessionError struct {
	Refusal *FieldError // names the variable and says what is wrong with it
}

func (e *SessionError) Error() string { return e.Refusal.Error() }

// Unwrap returns Refusal.
func (e *SessionError) Unwrap() error { return e.Refusal }

// IsSessionError reports whether err is a *SessionError or wraps one.
func IsSessionError(err error) bool {
	var refused *SessionError
	return errors.As(err, &refused)
}

// OtherTypeError says that an idempotency key belongs to an entry of another business type.
type OtherTypeError struct {
	IdempotencyKey IdempotencyKey // key that both types use
	Recorded       string         // business type of the existing entry
	Asked          string         // business type of the call
}

func (e *OtherTypeError) Error() string {
	return fmt.Sprintf("compensator: idempotency key %q belongs to an entry of type %q, not %q", e.IdempotencyKey, e.Recorded, e.Asked)
}

// Refusal names an entry that the database refuses to change, for example because of a trigger or a constraint.
type Refusal struct {
	ID  ID    // id of the unchanged entry
	Err error // error of the database
}

// RefusedError lists entries that the database refuses to change. The call has changed all its other entries.
type RefusedError struct {
	Refusals []Refusal // at least one
}

const maxNamedRefusals = 20

// Error names up to 20 of the refused entries.
func (e *RefusedError) Error() string {
	ids := make([]string, 0, maxNamedRefusals+1)
	for _, r := range e.Refusals[:min(len(e.Refusals), maxNamedRefusals)] {
		ids = append(ids, r.ID.String())
	}
	if unnamed := len(e.Refusals) - len(ids); unnamed > 0 {
		ids = append(ids, fmt.Sprintf("%d more", unnamed))
	}
	return fmt.Sprintf("compensator: the database refuses to change entry %s: %v", strings.Join(ids, ", "), e.Refusals[0].Err)
}

// Unwrap returns the database's error for the first entry.
func (e *RefusedError) Unwrap() error { return e.Refusals[0].Err }

// LossError is the type of ErrHistoryLost.
type LossError struct {
	// Lost lists the entries that this process remembers and the database has lost, ordered by id. A process remembers the
	// newest 512 entries that it has seen, and other processes may know further ones. An entry that no process has read
	// since its commit is in no list.
	Lost []LostEntry

	Stopped bool // this process claims and starts nothing until a person calls AcceptLoss: see Config.StopOnLoss
}

// LostEntry is an entry that the database has lost, or has only in an earlier version.
type LostEntry struct {
	ID             ID             // id that the entry had
	IdempotencyKey IdempotencyKey // idempotency key that the entry had
	BusinessType   string         // business type that the entry had
	Seen           time.Time      // when this process last saw the entry, by its own clock
	Was            State          // state of the entry when this process last saw the entry
	Gone           bool           // whether the entry does not exist; then its id may belong to another entry now
	Is             State          // present state, unless Gone
}

// Error names up to three of the lost entries.
func (e *LossError) Error() string {
	var names []string
	for _, l := range e.Lost[:min(len(e.Lost), 3)] {
		names = append(names, fmt.Sprintf("entry %s %q", l.ID, l.IdempotencyKey))
	}
	return fmt.Sprintf("%v: it has lost what it had of %s remembered here: %s", ErrHistoryLost, EntryCount(len(e.Lost)), strings.Join(names, ", "))
}

// Unwrap returns ErrHistoryLost.
func (e *LossError) Unwrap() error { return ErrHistoryLost }

// StateError reports an action that the present state of the entry does not allow.
type StateError struct {
	ID             ID             // id of the entry
	IdempotencyKey IdempotencyKey // idempotency key of the entry
	State          State          // present state of the entry
	Action         Action         // action that was refused. "wait for" and "read the result of" are from a Type of the root package

	// CompensationBegun says that a compensation of this dead entry has begun. Only a person may complete or cancel such
	// an entry, because somebody must find out how much of the work was undone.
	CompensationBegun bool

	Erased bool // the entry cannot be requeued, because a person erased its content
}

func (e *StateError) Error() string {
	text := fmt.Sprintf("compensator: %s entry %s %q: it is %s", e.Action, e.ID, e.IdempotencyKey, e.State)
	if e.CompensationBegun {
		text += ", and its compensation has begun: a person has to settle it"
	}
	if e.Erased {
		text += ", and was erased: there is no content to run it with"
	}
	return text
}

// Is reports whether e is ErrAlreadySucceeded. For a StateError of Cancel it returns false, because a caller of Cancel
// does not do the work a second time.
func (e *StateError) Is(target error) bool {
	return target == ErrAlreadySucceeded && e.Action == ActionComplete && e.State == Succeeded
}

// StuckError lists handlers that were still running when Run stopped waiting for them. Each of their entries runs again
// after its lease has ended.
type StuckError struct {
	Stuck []StuckAttempt // at least one
}

// StuckAttempt is one handler that did not return.
type StuckAttempt struct {
	ID           ID            // id of the entry
	BusinessType string        // business type of the entry
	Running      time.Duration // time since the handler started
}

// String returns the type, the id and the duration of the attempt.
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

// PanicError is the failure of a handler that panicked, or that ended its goroutine with runtime.Goexit.
type PanicError struct {
	Value any    // argument of panic; nil after runtime.Goexit
	Stack []byte // stack of the goroutine that panicked; the text "runtime.Goexit" if the handler called that function
}

// formatValue returns Value as package fmt prints the field Value. If a method of Value panics, package fmt prints the
// value of the new panic. If package fmt cannot print the new panic either, package fmt itself panics. formatValue
// recovers from that, and returns a text with the type of Value.
func (e *PanicError) formatValue() (text string) {
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
	return fmt.Sprintf("handler panicked: %s\n%s", e.formatValue(), e.Stack)
}

// SafeError returns err if its methods can be called safely. Otherwise SafeError returns a copy with the same text, in
// which errors.Is and errors.As find the same errors. A user's method may panic, and a chain of Unwrap may never end.
func SafeError(err error) error { return usererr.Safe(err) }

// ErrorText returns err.Error(), or a description if that panics. err must not be nil.
func ErrorText(err error) string { return usererr.Text(err) }
