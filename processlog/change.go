package processlog

import (
	"fmt"
	"slices"
	"time"
)

// Action is what a service or a person does to an entry.
type Action string

// The actions on one entry. Only people requeue, settle manually and erase. These three start a new epoch.
const (
	ActionComplete       Action = "complete"
	ActionCancel         Action = "cancel"
	ActionReschedule     Action = "reschedule"
	ActionRequeue        Action = "requeue"
	ActionSettleManually Action = "settle by hand"
	ActionErase          Action = "erase"
)

// The actions on the log as a whole: see Keeper.Note.
const (
	ActionAcceptLoss Action = "accept loss"
	ActionPurge      Action = "purge"
)

var allActions = [...]Action{ActionComplete, ActionCancel, ActionReschedule, ActionRequeue, ActionSettleManually, ActionErase, ActionAcceptLoss, ActionPurge}

// MarshalText returns the stored word. It also accepts the word of a later version.
func (a Action) MarshalText() ([]byte, error) { return []byte(a), nil }

// UnmarshalText parses a known word. Any other word is a *FieldError that lists all of them.
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
	BusinessType string // if set, an entry of another type is refused
	Action       Action
	Token        Token
	Delay        time.Duration // for reschedule and requeue: time until due
	Compensate   bool          // for requeue: run the compensation again instead of the handler
	Cases        bool          // for erase: also erase the errors and reasons in cases and operations; see Operations
	Actor        string        // the person who acts; stored in the audit table
	Reason       string        // the reason of that person
}

// changeRules lists the state changes that each action may make.
var changeRules = map[Action]struct {
	from []State
	to   State // ignored for reschedule and erase, which keep the state
	by   EndedBy
}{
	ActionComplete:       {from: []State{Pending, Retrying, Dead}, to: Succeeded, by: EndedByComplete},
	ActionCancel:         {from: []State{Pending, Retrying, Dead}, to: Cancelled, by: EndedByCancel},
	ActionReschedule:     {from: []State{Pending, Retrying}},
	ActionRequeue:        {from: []State{Dead, Succeeded, Compensated, Cancelled, SettledManually, Retrying}, to: Pending},
	ActionSettleManually: {from: []State{Dead, Retrying, Compensating}, to: SettledManually, by: EndedByPerson},
	ActionErase:          {from: []State{Dead, Succeeded, Compensated, Cancelled, SettledManually}},
}

// After returns the row as the change leaves it. It returns a *StateError if the state of the row does not allow the
// change, and an *OtherTypeError for another type. If the change would alter nothing, the returned row equals before,
// its version included. All rules for actions of services and people are in this method.
func (ch Change) After(before Row) (Row, error) {
	if ch.BusinessType != "" && ch.BusinessType != before.BusinessType {
		return before, &OtherTypeError{IdempotencyKey: before.IdempotencyKey, Recorded: before.BusinessType, Asked: ch.BusinessType}
	}
	rule := changeRules[ch.Action]
	switch {
	case ch.Action == ActionCancel && before.State == Cancelled:
		return before, nil
	case ch.Action == ActionErase && before.Erased:
		return before, nil
	case ch.Action == ActionRequeue && before.Erased:
		return before, &StateError{ID: before.ID, IdempotencyKey: before.IdempotencyKey, State: before.State, Action: ch.Action, Erased: true}
	case !slices.Contains(rule.from, before.State):
		return before, &StateError{ID: before.ID, IdempotencyKey: before.IdempotencyKey, State: before.State, Action: ch.Action}
	case before.State == Dead && before.CompensateCount > 0 && !ch.persons():
		return before, &StateError{ID: before.ID, IdempotencyKey: before.IdempotencyKey, State: before.State, Action: ch.Action, CompensationBegun: true}
	}
	after := before
	after.Version++
	after.Token = ch.Token
	if ch.Action == ActionErase { // Keep ids, state and times. They tell what happened, and keep it from happening again.
		after.Epoch++
		after.UserName, after.Content, after.Headers, after.LastError, after.Erased = "", nil, nil, "", true
		return after, nil
	}
	after.State, after.EndedBy, after.DueIn = rule.to, rule.by, ch.Delay
	switch ch.Action {
	case ActionReschedule: // a running attempt keeps its lease, but its outcome does not fit the new version
		after.State = before.State
		if before.LeaseLeft > 0 && before.DeliveryCount > 0 {
			after.DeliveryCount-- // its outcome may be dropped now, which must not count as a crash
		}
		return after, nil
	case ActionRequeue:
		after.ProcessCount, after.CompensateCount = 0, 0
		after.Epoch++
		if ch.Compensate {
			after.State = Compensating
		}
	case ActionSettleManually:
		after.Epoch++
	}
	after.DeliveryCount, after.LeaseLeft = 0, 0
	return after, nil
}

// AfterSeen is After for a row that still has the version seen. For any other row it returns ErrChanged.
func (ch Change) AfterSeen(before Row, seen Version) (Row, error) {
	if before.Version != seen.Number || before.IdempotencyKey != seen.IdempotencyKey {
		return before, fmt.Errorf("%s entry %s: %w", ch.Action, before.ID, ErrChanged)
	}
	return ch.After(before)
}

// Audited reports whether the change is written to the audit table. A change by a service has no actor and is not.
func (ch Change) Audited() bool { return ch.persons() || ch.Actor != "" }

// persons reports whether only people may make this change.
func (ch Change) persons() bool {
	return ch.Action == ActionRequeue || ch.Action == ActionSettleManually || ch.Action == ActionErase
}

// Record returns the audit record of a person's change. The record of an erasure holds no erased text.
func (ch Change) Record(before, after Row) AuditRecord {
	if ch.Action == ActionErase {
		before.LastError = ""
	}
	return AuditRecord{EntryID: before.ID, Action: ch.Action, Actor: ch.Actor, Reason: ch.Reason, Before: auditState(before), After: auditState(after)}
}

func auditState(r Row) AuditState {
	return AuditState{State: r.State, Version: r.Version, Epoch: r.Epoch, ProcessCount: r.ProcessCount, LastError: r.LastError}
}

// Erased returns an earlier audit record of an entry that is erased. It keeps who did what and when, and the states. It
// drops errors and reasons, because they are free text.
func (r AuditRecord) Erased() AuditRecord {
	r.Reason, r.Before.LastError, r.After.LastError = "", "", ""
	return r
}

// AuditInfo names the person who acts on an entry, and the reason. Both are required. They are stored in the audit table
// in the same transaction.
type AuditInfo struct {
	Actor  string // at most 191 characters
	Reason string // at most 1,000 characters
}
