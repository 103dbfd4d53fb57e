package compensator

import (
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// The root's names for what packages processlog and observe have in full. No comment stands on a group of types: go doc would
// repeat it at each of them.

type (
	EntryID      = processlog.ID           // names one row of the process log. Opaque: compare it, store its String, hand it back
	IdempotentID = processlog.IdempotentID // names an entry by the key it was recorded with
	Ref          = processlog.Ref          // an EntryID or an IdempotentID
	State        = processlog.State        // where an entry stands
	EndedBy      = processlog.EndedBy      // what brought it to its terminal state
	Action       = processlog.Action       // what a service or a person does to it
	Tx           = processlog.Tx           // any handle on an open transaction

	Filter      = processlog.Filter      // what List lists
	CountFilter = processlog.CountFilter // what Count counts
	Count       = processlog.Count       // how many entries of one state and type there are
	ByHand      = processlog.ByHand      // who does something, and why
	AuditRecord = processlog.AuditRecord // what was done by hand, to which entry, by whom and why
	AuditState  = processlog.AuditState  // how it found and left the entry

	Observer        = observe.Observer        // functions that are told what happens, for metrics and traces
	RecordedEvent   = observe.RecordedEvent   // a new entry in an open transaction
	AttemptEvent    = observe.AttemptEvent    // an attempt
	SettledEvent    = observe.SettledEvent    // an outcome
	MissingEvent    = observe.MissingEvent    // an entry that is not there
	ReconciledEvent = observe.ReconciledEvent // a round of the reconciler
	Verdict         = observe.Verdict         // what a handler's error asks for
	Health          = observe.Health          // how this process and the log are, for a readiness probe and for alerts
	OpenBreaker     = observe.OpenBreaker     // a type that is not claimed here for now
	Trouble         = observe.Trouble         // what of the library's own fails at present
)

// The states of an entry. Only a person leaves a terminal one, but for a dead one that was never compensated: a service
// may still complete or cancel that.
const (
	Pending       = processlog.Pending       // not attempted yet, or attempted without a recorded failure
	Retrying      = processlog.Retrying      // failed at least once, will be attempted again
	Dead          = processlog.Dead          // terminal: waits for a person
	Compensating  = processlog.Compensating  // attempts used up; the type's undo runs, with a budget of its own
	Succeeded     = processlog.Succeeded     // terminal
	Compensated   = processlog.Compensated   // terminal: the undo succeeded
	Cancelled     = processlog.Cancelled     // terminal: the work was no longer wanted
	SettledByHand = processlog.SettledByHand // terminal: a person did the work
)

// States lists every state, in the order of their numbers.
var States = processlog.States

// What may end an entry.
const (
	EndedByHandler   = processlog.EndedByHandler   // its handler, or its compensation, returned nil
	EndedByComplete  = processlog.EndedByComplete  // Complete, Once: somebody else did the work
	EndedByCancel    = processlog.EndedByCancel    // Cancel: the work was no longer wanted
	EndedByPermanent = processlog.EndedByPermanent // a Permanent error, of the compensation where there is one
	EndedByExhausted = processlog.EndedByExhausted // attempts used up, of the compensation where there is one
	EndedByCrash     = processlog.EndedByCrash     // too many leases in a row ended with no outcome
	EndedByPerson    = processlog.EndedByPerson    // SettleByHand
)

// What a handler's error may ask for; see VerdictOf.
const (
	VerdictSuccess     = observe.Success
	VerdictFailure     = observe.Failure
	VerdictPermanent   = observe.Permanent
	VerdictSnooze      = observe.Snooze
	VerdictUnavailable = observe.Unavailable
)

// The actions. The last two are on the log as a whole.
const (
	ActionComplete     = processlog.ActionComplete
	ActionCancel       = processlog.ActionCancel
	ActionReschedule   = processlog.ActionReschedule
	ActionRequeue      = processlog.ActionRequeue
	ActionSettleByHand = processlog.ActionSettleByHand
	ActionErase        = processlog.ActionErase
	ActionAcceptLoss   = processlog.ActionAcceptLoss
	ActionPurge        = processlog.ActionPurge
)

// Observers is one Observer that tells each of all, in their order; a panic of one keeps the others from nothing.
func Observers(all ...Observer) Observer { return observe.Observers(all...) }

// ParseEntryID reads what EntryID.String wrote, and no other spelling of it.
func ParseEntryID(s string) (EntryID, error) { return processlog.ParseID(s) }

// ParseState reads what State.String wrote: "dead". Any other word is a *FieldError that names them all.
func ParseState(s string) (State, error) { return processlog.ParseState(s) }
