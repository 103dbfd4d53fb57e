// Package operating gives packages admin and intake access to parts of the root package that are not exported.
package operating

import (
	"context"
	"time"

	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// Log is what package admin can do with a Compensator.
type Log interface {
	// Store returns the store of the log.
	Store() processlog.Store

	// Operations returns the store's methods for operations, or nil if Config.Operations is not set. If the result is
	// nil, do not call ChangeAll, Amounts or Scrub.
	Operations() processlog.Operations

	// KeepsAttempts reports whether failed attempts are kept.
	KeepsAttempts() bool

	// KeepsStatistics reports whether statistics are kept.
	KeepsStatistics() bool

	// KeepsInstances reports whether each process stores a description of itself.
	KeepsInstances() bool

	// Entry converts a row into a *compensator.Entry with the codec of its type.
	Entry(row *processlog.Row) any

	// Row reads one committed entry. It returns ErrNotFound if there is none.
	Row(ctx context.Context, ref processlog.Ref) (processlog.Row, error)

	// RememberedFor returns how long a process remembers an entry. A purge of younger entries must write a note into
	// the audit table.
	RememberedFor() time.Duration

	// SharedQueue reports whether there is a queue beside the database: Redis, or a queue of the user.
	SharedQueue() bool

	// Knows reports whether this process has a handler or a declaration of a business type.
	Knows(businessType string) bool

	// OpenBreakers returns the open breakers.
	OpenBreakers() []observe.OpenBreaker

	// Limited returns the types with entries that wait for a limit, as far as this process knows.
	Limited() []observe.LimitedType

	Local(row *processlog.Row) Local

	// Schedules returns the schedules of the periodic types of this process.
	Schedules() []Schedule
	SlotKey(businessType string, slot time.Time) string

	// Queued asks the shared queue what it knows about an entry. known is false if there is no shared queue, or if the
	// queue cannot answer this question. An error says that the queue cannot be used.
	Queued(ctx context.Context, row *processlog.Row) (queued processlog.Queued, known bool, err error)

	// Scrub returns an error's text without confidential data.
	Scrub(text string) string

	// Change changes one entry. It also notifies the queue, and an attempt that runs in this process. ChangeTx works in
	// tx and sends these notifications when tx commits.
	Change(ctx context.Context, change processlog.Change) (processlog.Row, error)
	ChangeTx(ctx context.Context, tx processlog.Tx, change processlog.Change) (processlog.Row, error)

	// RequeueAll requeues the entries that still have the versions in seen, in one transaction. ChangeAll does the same
	// for any change, and also closes the cases of entries that are no longer dead. Both notify as Change does.
	RequeueAll(ctx context.Context, seen []processlog.Version, change processlog.Change) ([]processlog.Changed, error)
	ChangeAll(ctx context.Context, seen []processlog.Version, change processlog.Change) ([]processlog.Changed, error)

	// ChangeBulk works like ChangeAll, and stores a record of the whole batch in the same transaction.
	ChangeBulk(ctx context.Context, seen []processlog.Version, change processlog.Change, batch processlog.BulkBatch) (record uint64, answers []processlog.Changed, err error)

	// Amounts leaves out entries whose type has no Amount function.
	Amounts(ctx context.Context, rows []processlog.Row) (map[processlog.ID]processlog.Amount, error)

	// AcceptLoss resumes work after ErrHistoryLost.
	AcceptLoss(ctx context.Context, by processlog.AuditInfo) ([]processlog.LostEntry, error)
}

// Schedule computes the slots of a periodic type.
type Schedule struct {
	Name string
	Next func(after time.Time) (time.Time, error) // first slot after a time; the zero time: no further slot
}

// Of returns the Log of a *compensator.Compensator. The root package sets this variable.
var Of func(of any) Log

// ServerDown reports whether the server serves no requests or no writes, according to an error. The error may come from
// a statement on any database. The root package sets this variable.
var ServerDown func(err error) bool

// Local is what one process knows about an entry and its type.
type Local struct {
	Handlers          int
	Handler           bool
	Running           bool
	ReconcileInterval time.Duration
	PollInterval      time.Duration
	Horizon           time.Duration

	Held     bool      // whether this process runs the entry, or stores its outcome
	Since    time.Time // if Held: when the attempt began
	Stuck    bool      // if Held: whether the handler still runs after its timeout
	Returned bool      // if Held: whether the handler has returned, so that only the outcome is not stored yet

	Slots     int                   // number of handler calls of the type that this process may run at once
	Full      bool                  // whether all slots of the type are taken, so that no further call can begin now
	Hold      *processlog.ClaimHold // why this process does not claim the entry now; nil: no ClaimHoldReason applies
	BatchWait time.Duration         // how long a due entry of the type may wait for others to share its call

	Known      bool
	Limit      string // if Known: name of the type's limit; empty: none
	LimitHolds bool   // whether the limit applies to the entry
	LimitKey   string
	KeyUnknown error // why this process could not compute LimitHolds and LimitKey; nil: it could

	Serial   bool
	PassDead bool // whether later entries of an ordering key may run after a dead entry of the key

	AfterBatch  string
	Undecodable error

	Lost     error // the database was rolled back to an earlier state, and nobody has accepted the loss
	Problems []observe.Problem
}
