package compensator

import (
	"errors"

	"github.com/compensator-go/compensator/processlog"
)

// These errors come from recording. Package processlog describes each of them in full.
var (
	ErrNoTransaction = processlog.ErrNoTransaction // the handle given to Record has no open transaction. Nothing was written
	ErrTxAborted     = processlog.ErrTxAborted     // the server rolled the transaction back, so repeat all of it. It wraps ErrNoTransaction
	ErrNotRecorded   = processlog.ErrNotRecorded   // Commit rolled back because an entry was refused or could not be written
	ErrCommitUnknown = processlog.ErrCommitUnknown // the connection broke during COMMIT. Call Resolve to find out whether the transaction committed
	ErrHistoryLost   = processlog.ErrHistoryLost   // the database went back to an earlier state: see Health.History and Config.StopOnLoss. It is a *processlog.LossError

	// ErrDuplicate says that an entry with this idempotency key exists. Record returns it only if Options.FailOnDuplicate
	// is set. Otherwise Record returns nil, and the receipt reports the duplicate.
	ErrDuplicate = errors.New("compensator: idempotency key already recorded")

	// ErrOtherContent says that an entry with this idempotency key exists and has other content. Record returns it only if
	// TypeConfig.RefuseOtherContent is set. Otherwise Receipt.Entries reports the difference in ContentMatches.
	ErrOtherContent = errors.New("compensator: idempotency key already recorded with other content")
)

// These errors are about one entry, or about the Compensator itself.
var (
	ErrNotFound         = processlog.ErrNotFound         // there is no such entry, perhaps because it was purged
	ErrBusy             = processlog.ErrBusy             // another transaction has locked the entry's row. Try again
	ErrAlreadySucceeded = processlog.ErrAlreadySucceeded // Complete returns it if the work is already done, so do not do the work again. It is a *StateError

	ErrRunning = processlog.ErrRunning // Run was called, or a type was registered, while Run is running
	ErrClosed  = processlog.ErrClosed  // the Compensator was closed
)

// These are the causes with which the context of a handler ends. Read the cause with context.Cause.
var (
	ErrLeaseLost = processlog.ErrLeaseLost // the lease was lost, and another process may run the entry. The library drops a failure of this attempt, and also a success if the handler is transactional (HandleTx, HandleCall)
	ErrCancelled = processlog.ErrCancelled // the entry was cancelled, completed or requeued during the attempt
	ErrStopping  = processlog.ErrStopping  // Run is ending. If an attempt returns this cause or context.Canceled, it is not counted
	ErrTimeout   = processlog.ErrTimeout   // HandlerConfig.Timeout has passed
)

// These types are errors for errors.As. Each is returned as a pointer. Package processlog describes their fields.

type (
	FieldError     = processlog.FieldError     // reports a value that was refused before anything was sent to a server. Another call with this value fails, too
	OtherTypeError = processlog.OtherTypeError // reports an idempotency key that belongs to an event of another business type. Record and the methods of a Type return it
	StateError     = processlog.StateError     // reports an action that the present state of the entry does not allow. Complete, Cancel and Reschedule return it
	PanicError     = processlog.PanicError     // reports that a handler panicked or ended its goroutine. Observer.AttemptEnded gets it. The attempt counts as failed
	StuckError     = processlog.StuckError     // reports handlers that still ran when Run stopped waiting for them. Run returns it
)
