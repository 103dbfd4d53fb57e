package processlog

import (
	"fmt"
	"slices"
	"time"
)

// Action is what a service or a person does to an entry.
type Action string

// The actions. Requeue, SettleByHand and Erase are a person's and start a new epoch.
const (
	ActionComplete     Action = "complete"
	ActionCancel       Action = "cancel"
	ActionReschedule   Action = "reschedule"
	ActionRequeue      Action = "requeue"
	ActionSettleByHand Action = "settle by hand"
	ActionErase        Action = "erase"
)

// Actions on the log as a whole; see Note.
const (
	ActionAcceptLoss Action = "accept loss"
	ActionPurge      Action = "purge"
)

var allActions = [...]Action{ActionComplete, ActionCancel, ActionReschedule, ActionRequeue, ActionSettleByHand, ActionErase, ActionAcceptLoss, ActionPurge}

// MarshalText writes the word as it is stored, also one of a later version's.
func (a Action) MarshalText() ([]byte, error) { return []byte(a), nil }

// UnmarshalText takes a known word. Any other is a *FieldError that names them all.
func (a *Action) UnmarshalText(text []byte) error {
	word := Action(text)
	if !slices.Contains(allActions[:], word) {
		return noSuchWord("action", string(text), allActions[:])
	}
	*a = word
	return nil
}

// Change is one action on one entry.
type Change struct {
	Ref          Ref
	BusinessType string // when given, an entry of another type is refused
	Action       Action
	Token        Token
	Delay        time.Duration // reschedule, requeue: until due
	Compensate   bool          // requeue: run the compensation again instead of the handler
	Cases        bool          // erase: also what a case and operations tell of the entry; see Operations
	Actor        string        // of a person's action: who, kept in the audit table
	Reason       string        // and why
}

// changeRules are the lines of the table's contract that a Change may use.
var changeRules = map[Action]struct {
	from []State
	to   State // the state stays as it is for reschedule and erase
	by   EndedBy
}{
	ActionComplete:     {from: []State{Pending, Retrying, Dead}, to: Succeeded, by: EndedByComplete},
	ActionCancel:       {from: []State{Pending, Retrying, Dead}, to: Cancelled, by: EndedByCancel},
	ActionReschedule:   {from: []State{Pending, Retrying}},
	ActionRequeue:      {from: []State{Dead, Succeeded, Compensated, Cancelled, SettledByHand, Retrying}, to: Pending},
	ActionSettleByHand: {from: []State{Dead, Retrying, Compensating}, to: SettledByHand, by: EndedByPerson},
	ActionErase:        {from: []State{Dead, Succeeded, Compensated, Cancelled, SettledByHand}},
}

// After is the row as the change leaves it, a *StateError when the contract has no such line, or an *OtherTypeError.
// A row that is to stay as it is, its version included, is what the change would make of it already.
// It is the one place where the rules of a person's and a service's actions are written.
func (ch Change) After(before Row) (Row, error) {
	if ch.BusinessType != "" && ch.BusinessType != before.BusinessType {
		return before, &OtherTypeError{IdempotentID: before.IdempotentID, Recorded: before.BusinessType, Asked: ch.BusinessType}
	}
	rule := changeRules[ch.Action]
	switch {
	case ch.Action == ActionCancel && before.State == Cancelled:
		return before, nil
	case ch.Action == ActionErase && before.Erased:
		return before, nil
	case ch.Action == ActionRequeue && before.Erased:
		return before, &StateError{ID: before.ID, IdempotentID: before.IdempotentID, State: before.State, Action: ch.Action, Erased: true}
	case !slices.Contains(rule.from, before.State):
		return before, &StateError{ID: before.ID, IdempotentID: before.IdempotentID, State: before.State, Action: ch.Action}
	case before.State == Dead && before.CompensateCount > 0 && !ch.persons():
		return before, &StateError{ID: before.ID, IdempotentID: before.IdempotentID, State: before.State, Action: ch.Action, CompensationBegun: true}
	}
	after := before
	after.Version++
	after.Token = ch.Token
	if ch.Action == ActionErase { // ids, state and times stay: what happened, and that it must not happen again
		after.Epoch++
		after.UserName, after.Content, after.Headers, after.LastError, after.Erased = "", nil, nil, "", true
		return after, nil
	}
	after.State, after.EndedBy, after.DueIn = rule.to, rule.by, ch.Delay
	switch ch.Action {
	case ActionReschedule: // a running attempt keeps its lease, and loses its fence
		after.State = before.State
		if before.LeaseLeft > 0 && before.DeliveryCount > 0 {
			after.DeliveryCount-- // its outcome may be dropped now, which must not look like a crash
		}
		return after, nil
	case ActionRequeue:
		after.ProcessCount, after.CompensateCount = 0, 0
		after.Epoch++
		if ch.Compensate {
			after.State = Compensating
		}
	case ActionSettleByHand:
		after.Epoch++
	}
	after.DeliveryCount, after.LeaseLeft = 0, 0
	return after, nil
}

// AfterSeen is After of a row that still stands as it was seen, and otherwise ErrChanged.
func (ch Change) AfterSeen(before Row, seen Version) (Row, error) {
	if before.Version != seen.Number || before.IdempotentID != seen.IdempotentID {
		return before, fmt.Errorf("%s entry %s: %w", ch.Action, before.ID, ErrChanged)
	}
	return ch.After(before)
}

// Audited reports whether the change is a person's and goes into the audit table: that of a service has no actor.
func (ch Change) Audited() bool { return ch.persons() || ch.Actor != "" }

// persons reports whether only people do this.
func (ch Change) persons() bool {
	return ch.Action == ActionRequeue || ch.Action == ActionSettleByHand || ch.Action == ActionErase
}

// Record is what the audit table keeps of a person's change. That of an erasure holds nothing of what was erased.
func (ch Change) Record(before, after Row) AuditRecord {
	if ch.Action == ActionErase {
		before.LastError = ""
	}
	return AuditRecord{EntryID: before.ID, Action: ch.Action, Actor: ch.Actor, Reason: ch.Reason, Before: auditState(before), After: auditState(after)}
}

func auditState(r Row) AuditState {
	return AuditState{State: r.State, Version: r.Version, Epoch: r.Epoch, ProcessCount: r.ProcessCount, LastError: r.LastError}
}

// Erased is an earlier record of an entry that is erased: who did what and when, and how the entry stood. Errors and
// reasons are free text, and go.
func (r AuditRecord) Erased() AuditRecord {
	r.Reason, r.Before.LastError, r.After.LastError = "", "", ""
	return r
}

// ByHand says who does something to an entry and why. Both are required, and kept in the audit table in the
// same transaction.
type ByHand struct {
	Actor  string // at most 191 characters
	Reason string // at most 1,000 characters
}
