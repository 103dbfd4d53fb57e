package compensator

import (
	"errors"

	"github.com/compensator-go/compensator/processlog"
)

// While recording. Package processlog says more of each.
var (
	ErrNoTransaction = processlog.ErrNoTransaction // Record's handle has no open transaction. Nothing was written
	ErrTxAborted     = processlog.ErrTxAborted     // the server rolled back: do all of it again. Wraps ErrNoTransaction
	ErrNotRecorded   = processlog.ErrNotRecorded   // Commit rolled back: an entry was refused or could not be written
	ErrCommitUnknown = processlog.ErrCommitUnknown // the connection broke around COMMIT. Ask Resolve whether it happened
	ErrHistoryLost   = processlog.ErrHistoryLost   // the database went back: no recording, no start until AcceptLoss. A *LossError

	// Only with Options.FailOnDuplicate, and TypeConfig.RefuseOtherContent; otherwise the receipt tells.
	ErrDuplicate    = errors.New("compensator: idempotent id already recorded")
	ErrOtherContent = errors.New("compensator: idempotent id already recorded with other content")
)

// About one entry, and the Compensator itself.
var (
	ErrNotFound         = processlog.ErrNotFound
	ErrBusy             = processlog.ErrBusy             // another transaction holds the entry's row. Try again
	ErrChanged          = processlog.ErrChanged          // of RequeueAll: the entry is not any more as it was seen
	ErrAlreadySucceeded = processlog.ErrAlreadySucceeded // of Complete: the work is done, do not do it. A *StateError

	ErrRunning = processlog.ErrRunning // Run is running already
	ErrClosed  = processlog.ErrClosed
)

// Causes of a handler's context, read with context.Cause.
var (
	ErrLeaseLost = processlog.ErrLeaseLost // it may run elsewhere; a failure or a transactional success is dropped now
	ErrCancelled = processlog.ErrCancelled // somebody cancelled, completed or requeued the entry
	ErrStopping  = processlog.ErrStopping  // Run is ending. An attempt that returns with it, or with context.Canceled, spends nothing
	ErrTimeout   = processlog.ErrTimeout   // the type's Timeout passed
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
