package processlog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Action is what a service or a person does to an entry.
type Action string

// The actions on one entry. Only people may requeue, settle manually and erase. These three actions start a new epoch.
const (
	ActionComplete       Action = "complete"       // the work was done elsewhere
	ActionCancel         Action = "cancel"         // the work is no longer wanted
	ActionReschedule     Action = "reschedule"     // the entry is due at another time
	ActionRequeue        Action = "requeue"        // the entry runs again, with all its attempts
	ActionSettleManually Action = "settle by hand" // a person did the work
	ActionErase          Action = "erase"          // content, headers, user name and errors are removed
)

// The actions on the log as a whole: see Keeper.Note.
const (
	ActionAcceptLoss Action = "accept loss" // a person let work go on after the database had lost entries
	ActionPurge      Action = "purge"       // a program deleted entries that had ended less than an hour before
)

var actionValues = [...]Action{ActionComplete, ActionCancel, ActionReschedule, ActionRequeue, ActionSettleManually, ActionErase, ActionAcceptLoss, ActionPurge}

// MarshalText returns the stored word, also one that only a later version knows.
func (a Action) MarshalText() ([]byte, error) { return []byte(a), nil }

// UnmarshalText parses a known word. For any other word it returns a *FieldError.
func (a *Action) UnmarshalText(text []byte) error {
	word := Action(text)
	if !slices.Contains(actionValues[:], word) {
		return newWordError("action", string(text), actionValues[:])
	}
	*a = word
	return nil
}

// Change is one action on one entry.
type Change struct {
	Ref          Ref           // entry to change
	BusinessType string        // if it is set and the entry has another type, the change fails
	Action       Action        // what to do
	Token        Token         // token of this write, which the row keeps
	Delay        time.Duration // time until the entry is due; for reschedule and requeue
	Compensate   bool          // whether to run the compensation instead of the handler; for requeue
	Actor        string        // the person who acts; stored in the audit table
	Reason       string        // reason that Actor gives
}

var changeRules = map[Action]struct {
	fromStates []State
	toState    State // state after the action; not used for reschedule and erase, which keep the state
	endedBy    EndedBy
}{
	ActionComplete:       {fromStates: []State{Pending, Retrying, Dead}, toState: Succeeded, endedBy: EndedByComplete},
	ActionCancel:         {fromStates: []State{Pending, Retrying, Dead}, toState: Cancelled, endedBy: EndedByCancel},
	ActionReschedule:     {fromStates: []State{Pending, Retrying}},
	ActionRequeue:        {fromStates: []State{Dead, Succeeded, Compensated, Cancelled, SettledManually, Retrying}, toState: Pending},
	ActionSettleManually: {fromStates: []State{Dead, Retrying, Compensating}, toState: SettledManually, endedBy: EndedByPerson},
	ActionErase:          {fromStates: []State{Dead, Succeeded, Compensated, Cancelled, SettledManually}},
}

// After returns the row as it is after the change. It returns a *StateError if the state of the row does not allow the
// change, and an *OtherTypeError for an entry of another type.
//
// If the change would alter nothing, the result has the same version. If the result has Faults, a store must write them,
// too. The given row needs no Faults.
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
	case !slices.Contains(rule.fromStates, before.State):
		return before, &StateError{ID: before.ID, IdempotencyKey: before.IdempotencyKey, State: before.State, Action: ch.Action}
	case before.State == Dead && before.CompensateCount > 0 && !ch.needsPerson():
		return before, &StateError{ID: before.ID, IdempotencyKey: before.IdempotencyKey, State: before.State, Action: ch.Action, CompensationBegun: true}
	}
	after := before
	after.Version++
	after.Token = ch.Token
	// An erasure keeps ids, state and times. They say what happened, and they prevent that the work is done again.
	if ch.Action == ActionErase {
		after.Epoch++
		after.UserName, after.Content, after.Headers, after.LastError, after.Erased = "", nil, nil, "", true
		return after, nil
	}
	if ch.dropsAttempt(before) {
		after.Faults = before.Faults.In(&before)
		after.Faults.OutcomeUnknown = true
		// A claim ignores the Faults of a row whose LastError is empty. So set LastError.
		after.LastError = cmp.Or(before.LastError, abandonedError)
	}
	after.State, after.EndedBy, after.DueIn = rule.toState, rule.endedBy, ch.Delay
	switch ch.Action {
	case ActionReschedule: // A running attempt keeps its lease, but its outcome will be dropped, because the change raises the version.
		after.State = before.State
		if before.LeaseLeft > 0 && before.DeliveryCount > 0 {
			after.DeliveryCount-- // The outcome of the running attempt may be dropped now. That must not count as a crash.
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

const abandonedError = "compensator: an attempt held the entry when it was cancelled or rescheduled, so its outcome is unknown"

// dropsAttempt reports whether the change drops the outcome of an attempt that may be running. The effect of this
// attempt may still happen. So the Faults must say that an outcome is unknown.
func (ch Change) dropsAttempt(before Row) bool {
	return before.DeliveryCount > 0 && (ch.Action == ActionCancel || ch.Action == ActionReschedule && before.LeaseLeft > 0)
}

// AfterSeen works like After, but returns ErrChanged if the row no longer has the version in seen.
func (ch Change) AfterSeen(before Row, seen Version) (Row, error) {
	if before.Version != seen.Number || before.IdempotencyKey != seen.IdempotencyKey {
		return before, fmt.Errorf("%s entry %s: %w", ch.Action, before.ID, ErrChanged)
	}
	return ch.After(before)
}

// Audited reports whether the change is written to the audit table.
func (ch Change) Audited() bool { return ch.needsPerson() || ch.Actor != "" }

func (ch Change) needsPerson() bool {
	return ch.Action == ActionRequeue || ch.Action == ActionSettleManually || ch.Action == ActionErase
}

// Record returns the audit record of a person's change. The record of an erasure lacks the error text that the erasure
// removes.
func (ch Change) Record(before, after Row) AuditRecord {
	if ch.Action == ActionErase {
		before.LastError = ""
	}
	return AuditRecord{EntryID: before.ID, Action: ch.Action, Actor: ch.Actor, Reason: ch.Reason, Before: auditState(before), After: auditState(after)}
}

func auditState(r Row) AuditState {
	return AuditState{State: r.State, Version: r.Version, Epoch: r.Epoch, ProcessCount: r.ProcessCount, LastError: r.LastError}
}

// Erased returns the record as it is after an erasure of the entry: without the reason and without the error texts.
func (r AuditRecord) Erased() AuditRecord {
	r.Reason, r.Before.LastError, r.After.LastError = "", "", ""
	return r
}

// AuditInfo names the person who acts on an entry, and the person's reason. Both are required, and
// stored in the transaction of the change.
type AuditInfo struct {
	Actor  string // at most 191 characters
	Reason string // at most 1,000 characters
}

// Validate returns a *FieldError if the name or the reason is missing, too long, or not valid text.
func (by AuditInfo) Validate() error {
	for _, f := range []struct {
		name, value string
		limit       int
	}{{"actor", by.Actor, MaxIdempotencyKey}, {"reason", by.Reason, MaxText}} {
		reason := ""
		switch {
		case IsBlank(f.value):
			reason = "is empty"
		case !utf8.ValidString(f.value):
			reason = "is not valid UTF-8"
		case utf8.RuneCountInString(f.value) > f.limit:
			reason = fmt.Sprintf("%d characters, at most %d", utf8.RuneCountInString(f.value), f.limit)
		case strings.ContainsRune(f.value, 0):
			reason = "holds a NUL character"
		}
		if reason != "" {
			return &FieldError{Field: f.name, Reason: reason}
		}
	}
	return nil
}
