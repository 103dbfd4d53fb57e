package compensator

import (
	"errors"

	"github.com/compensator-go/compensator/processlog"
)

// While recording.
var (
	// ErrNoTransaction: the handle given to Record has no open transaction, so the entry would have been
	// durable before the business change. Nothing was written.
	ErrNoTransaction = processlog.ErrNoTransaction

	// ErrTxAborted: the server rolled the transaction back on its own (deadlock 1213, or 1020) although the
	// handle looks open. It wraps ErrNoTransaction. Roll back and run the whole transaction again.
	ErrTxAborted = processlog.ErrTxAborted

	// ErrDuplicate: an entry with this idempotent id exists. Record returns it only for entries recorded
	// with Options.FailOnDuplicate; otherwise the receipt tells.
	ErrDuplicate = errors.New("compensator: idempotent id already recorded")

	// ErrOtherContent: an entry with this idempotent id exists, with other content. Record returns it only for
	// types that say TypeConfig.RefuseOtherContent; otherwise the receipt tells.
	ErrOtherContent = errors.New("compensator: idempotent id already recorded with other content")

	// ErrNotRecorded: Commit refused, and rolled back, because an entry of this transaction was refused or could
	// not be written. Connector and InTx return it, so that a swallowed error of Record never commits half.
	ErrNotRecorded = processlog.ErrNotRecorded

	// ErrHistoryLost: the database no longer knows what this process has seen it keep: a replica was promoted that
	// lagged, or a backup restored. Nothing is recorded and nothing started here until a person calls AcceptLoss. It
	// comes as a *LossError.
	ErrHistoryLost = processlog.ErrHistoryLost

	// ErrCommitUnknown: the connection broke around COMMIT. The transaction may have happened or not; ask
	// Resolve.
	ErrCommitUnknown = processlog.ErrCommitUnknown
)

// About one entry.
var (
	ErrNotFound = processlog.ErrNotFound

	// ErrBusy: another transaction holds the entry's row. Try again.
	ErrBusy = processlog.ErrBusy

	// ErrAlreadySucceeded: Complete found that the work is done, by the entry's handler or by somebody who completed it
	// before. Whoever was about to do it must not. It comes as a *StateError.
	ErrAlreadySucceeded = processlog.ErrAlreadySucceeded
)

// Causes of a handler's context, read with context.Cause.
var (
	// ErrLeaseLost: the entry may already run elsewhere; a failure or a transactional success reported now
	// is dropped.
	ErrLeaseLost = processlog.ErrLeaseLost

	// ErrCancelled: somebody cancelled, completed or requeued the entry while it ran.
	ErrCancelled = processlog.ErrCancelled

	// ErrStopping: Run is ending. An attempt that returns with it spends nothing.
	ErrStopping = processlog.ErrStopping

	// ErrTimeout: the type's Timeout passed.
	ErrTimeout = processlog.ErrTimeout
)

// About the Compensator itself.
var (
	ErrRunning = processlog.ErrRunning
	ErrClosed  = processlog.ErrClosed
)

type (
	FieldError     = processlog.FieldError     // a value that was refused before anything was sent to a server
	OtherTypeError = processlog.OtherTypeError // an idempotent id that stands for an event of another business type
	StateError     = processlog.StateError     // an action that the entry's present state does not allow
	LossError      = processlog.LossError      // ErrHistoryLost, with what this process knows to be missing
	LostEntry      = processlog.LostEntry      // one such entry
	PanicError     = processlog.PanicError     // the failure of a handler that panicked, or ended its goroutine
	StuckError     = processlog.StuckError     // handlers that were still running when Run gave up waiting for them
	StuckAttempt   = processlog.StuckAttempt   // one such handler
)
