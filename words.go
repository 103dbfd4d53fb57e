package compensator

import (
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// These are aliases of what packages processlog and observe define and describe in full. No comment stands on a group
// of types, because go doc would repeat it at each of them.

type (
	EntryID        = processlog.ID             // identifies one row of the process log. Treat it as opaque: compare it, store its String, pass it back
	IdempotencyKey = processlog.IdempotencyKey // the idempotency key with which an entry was recorded
	Ref            = processlog.Ref            // an EntryID or an IdempotencyKey
	State          = processlog.State          // state of an entry
	EndedBy        = processlog.EndedBy        // what moved the entry to its terminal state
	Action         = processlog.Action         // what a service or a person does to an entry
	Tx             = processlog.Tx             // any handle on an open transaction

	Filter      = processlog.Filter      // selects entries for List
	CountFilter = processlog.CountFilter // selects entries for Count
	Count       = processlog.Count       // number of entries of one state and type
	AuditInfo   = processlog.AuditInfo   // the person who acts, and the reason
	AuditRecord = processlog.AuditRecord // one action of a person: what, on which entry, by whom and why
	AuditState  = processlog.AuditState  // state of the entry before and after the action

	Observer        = observe.Observer        // callbacks for metrics and traces
	RecordedEvent   = observe.RecordedEvent   // an entry was written in an open transaction
	AttemptEvent    = observe.AttemptEvent    // an attempt started or ended
	SettledEvent    = observe.SettledEvent    // an outcome was stored or dropped
	MissingEvent    = observe.MissingEvent    // an entry does not exist any more
	ReconciledEvent = observe.ReconciledEvent // a round of the reconciler ended
	Verdict         = observe.Verdict         // what a handler's error asks for
	Health          = observe.Health          // condition of this process and of the log, for readiness probes and alerts
	OpenBreaker     = observe.OpenBreaker     // a type that this process does not claim at present
	Problem         = observe.Problem         // a task of the library that fails at present
)

// The states of an entry. Only a person moves an entry out of a terminal state. There is one exception: a service may
// complete or cancel a dead entry that was never compensated.
const (
	Pending         = processlog.Pending         // not attempted yet, or attempted without a recorded failure
	Retrying        = processlog.Retrying        // failed at least once, and will be attempted again
	Dead            = processlog.Dead            // terminal: waits for a person
	Compensating    = processlog.Compensating    // attempts used up, and the compensation runs with its own number of attempts
	Succeeded       = processlog.Succeeded       // terminal
	Compensated     = processlog.Compensated     // terminal: the compensation succeeded
	Cancelled       = processlog.Cancelled       // terminal: the work was no longer wanted
	SettledManually = processlog.SettledManually // terminal: a person did the work
)

// States lists every state, in the order of their numbers.
var States = processlog.States

// The causes that move an entry to a terminal state.
const (
	EndedByHandler   = processlog.EndedByHandler   // its handler or its compensation returned nil
	EndedByComplete  = processlog.EndedByComplete  // Complete or Once: the work was done elsewhere
	EndedByCancel    = processlog.EndedByCancel    // Cancel: the work was no longer wanted
	EndedByPermanent = processlog.EndedByPermanent // a Permanent error, of the compensation if there is one
	EndedByExhausted = processlog.EndedByExhausted // attempts used up, of the compensation if there is one
	EndedByCrash     = processlog.EndedByCrash     // too many consecutive leases ended without an outcome
	EndedByPerson    = processlog.EndedByPerson    // SettleManually
)

// The verdicts that a handler's error may ask for: see VerdictOf.
const (
	VerdictSuccess     = observe.Success
	VerdictFailure     = observe.Failure
	VerdictPermanent   = observe.Permanent
	VerdictSnooze      = observe.Snooze
	VerdictUnavailable = observe.Unavailable
)

// Actions of people. The last two concern the log as a whole.
const (
	ActionComplete       = processlog.ActionComplete
	ActionCancel         = processlog.ActionCancel
	ActionReschedule     = processlog.ActionReschedule
	ActionRequeue        = processlog.ActionRequeue
	ActionSettleManually = processlog.ActionSettleManually
	ActionErase          = processlog.ActionErase
	ActionAcceptLoss     = processlog.ActionAcceptLoss
	ActionPurge          = processlog.ActionPurge
)

// Observers returns an Observer that calls all of them in order. A panic in one does not keep the others from being
// called.
func Observers(all ...Observer) Observer { return observe.Observers(all...) }

// ParseEntryID parses the result of EntryID.String. It accepts no other spelling.
func ParseEntryID(s string) (EntryID, error) { return processlog.ParseID(s) }

// ParseState parses the result of State.String, for example "dead". For any other word it returns a *FieldError that
// lists all states.
func ParseState(s string) (State, error) { return processlog.ParseState(s) }
