package compensator

import (
	"errors"

	"github.com/compensator-go/compensator/processlog"
)

// Errors of recording. Package processlog describes each of them in full.
var (
	ErrNoTransaction = processlog.ErrNoTransaction // the handle given to Record has no open transaction. Nothing was written
	ErrTxAborted     = processlog.ErrTxAborted     // the server rolled the transaction back: repeat all of it. Wraps ErrNoTransaction
	ErrNotRecorded   = processlog.ErrNotRecorded   // Commit rolled back because an entry was refused or could not be written
	ErrCommitUnknown = processlog.ErrCommitUnknown // the connection broke around COMMIT. Resolve tells whether the transaction committed
	ErrHistoryLost   = processlog.ErrHistoryLost   // the database went back in time: see Health.History and Config.StopOnLoss. A *processlog.LossError

	// ErrDuplicate needs Options.FailOnDuplicate, and ErrOtherContent needs TypeConfig.RefuseOtherContent. Without them
	// the receipt reports the case.
	ErrDuplicate    = errors.New("compensator: idempotent id already recorded")
	ErrOtherContent = errors.New("compensator: idempotent id already recorded with other content")
)

// Errors about one entry, and about the Compensator itself.
var (
	ErrNotFound         = processlog.ErrNotFound
	ErrBusy             = processlog.ErrBusy             // another transaction has locked the entry's row. Try again
	ErrAlreadySucceeded = processlog.ErrAlreadySucceeded // Complete: the work is already done, so do not do it again. A *StateError

	ErrRunning = processlog.ErrRunning // Run was called while Run is running
	ErrClosed  = processlog.ErrClosed
)

// Causes for which the context of a handler ends. Read them with context.Cause.
var (
	ErrLeaseLost = processlog.ErrLeaseLost // the lease was lost and the entry may run elsewhere. A failure or a transactional success from here is dropped
	ErrCancelled = processlog.ErrCancelled // the entry was cancelled, completed or requeued meanwhile
	ErrStopping  = processlog.ErrStopping  // Run is ending. An attempt that returns this cause, or context.Canceled, spends no attempt
	ErrTimeout   = processlog.ErrTimeout   // HandlerConfig.Timeout has passed
)

type (
	FieldError     = processlog.FieldError     // a value that was refused before anything was sent to a server
	OtherTypeError = processlog.OtherTypeError // the idempotency key belongs to an event of another business type
	StateError     = processlog.StateError     // an action that the present state of the entry does not allow
	PanicError     = processlog.PanicError     // a handler panicked or ended its goroutine
	StuckError     = processlog.StuckError     // handlers still ran when Run stopped waiting for them
)
