package compensator

import "github.com/compensator-go/compensator/processlog"

// These types are aliases. Package processlog defines and describes them in full. The group has no doc comment, because
// go doc would repeat it for each type.

type (
	EntryID        = processlog.ID             // identifies one row of the process log. Treat it as opaque: compare it, store its String, pass it back. The zero value names no entry
	IdempotencyKey = processlog.IdempotencyKey // the idempotency key with which an entry was recorded: 1 to 191 characters, without a space at the end
	Ref            = processlog.Ref            // an EntryID or an IdempotencyKey. A method that takes a Ref returns ErrNotFound if there is no such entry
	State          = processlog.State          // says how far an entry has come. The zero value is Pending
	EndedBy        = processlog.EndedBy        // says what moved the entry to its terminal state. It is empty in other states
	Tx             = processlog.Tx             // any handle on an open transaction, for example *sql.Tx. For a *sql.DB the methods return ErrNoTransaction
)

// The states of an entry. Only a person moves an entry out of a terminal state. There is one exception: a service may
// complete or cancel a dead entry that was never compensated.
const (
	Pending         = processlog.Pending         // waits or runs, and has no recorded failure
	Retrying        = processlog.Retrying        // waits or runs, and has failed at least once
	Dead            = processlog.Dead            // terminal: waits for a person
	Compensating    = processlog.Compensating    // attempts used up; the compensation runs, with its own count of attempts
	Succeeded       = processlog.Succeeded       // terminal
	Compensated     = processlog.Compensated     // terminal: the compensation succeeded
	Cancelled       = processlog.Cancelled       // terminal: the work was no longer wanted
	SettledManually = processlog.SettledManually // terminal: a person did the work
)

// The causes that move an entry to a terminal state.
const (
	EndedByHandler   = processlog.EndedByHandler   // the handler or the compensation returned nil
	EndedByComplete  = processlog.EndedByComplete  // a call of Complete or of Once, because the work was done elsewhere
	EndedByCancel    = processlog.EndedByCancel    // a call of Cancel, because the work was no longer wanted
	EndedByPermanent = processlog.EndedByPermanent // the compensation returned Permanent. If the type has no compensation, the handler returned Permanent
	EndedByExhausted = processlog.EndedByExhausted // the attempts were used up. If the type has a compensation, the attempts of the compensation were used up
	EndedByCrash     = processlog.EndedByCrash     // too many consecutive leases ended without an outcome
	EndedByPerson    = processlog.EndedByPerson    // a call of SettleManually
)

// ParseEntryID parses the result of EntryID.String. It accepts no other spelling. Its error is a *FieldError.
func ParseEntryID(s string) (EntryID, error) { return processlog.ParseID(s) }
