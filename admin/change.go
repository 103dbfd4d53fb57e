package admin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// Why says why somebody does something.
type Why struct {
	Reason string // required: with the ticket at most 1,000 characters
	Ticket string // optional: at most 64 letters, digits and - _ . / : # of ASCII. Kept before the reason, as "[OPS-988] "
}

const maxTicket = 64

// text is what the records keep.
func (w Why) text() (string, error) {
	text := w.Reason
	if w.Ticket != "" {
		if len(w.Ticket) > maxTicket || strings.ContainsFunc(w.Ticket, func(r rune) bool { return !strings.ContainsRune(ticketRunes, r) }) {
			return "", &compensator.FieldError{Field: "ticket", Reason: "want at most 64 letters, digits and - _ . / : #"}
		}
		text = "[" + w.Ticket + "] " + text
	}
	switch {
	case strings.TrimSpace(w.Reason) == "":
		return "", &compensator.FieldError{Field: "reason", Reason: "is empty"}
	case !utf8.ValidString(text):
		return "", &compensator.FieldError{Field: "reason", Reason: "is not valid UTF-8"}
	case utf8.RuneCountInString(text) > processlog.MaxText:
		return "", &compensator.FieldError{Field: "reason", Reason: "with the ticket is longer than 1,000 characters"}
	}
	return text, nil
}

const ticketRunes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:#"

// Seen names an entry as it was seen: Entry.ID and Entry.Version.
type Seen struct {
	ID      compensator.EntryID
	Version uint64
}

// Change is one action on entries.
type Change struct {
	Action  Right // Requeue, Compensate, SettleManually, Cancel, Complete or Reschedule
	Entries []Seen
	Why
	Delay time.Duration // Requeue, Compensate, Reschedule: until due

	// Checked says that somebody has found out what the attempts of these entries did outside the log. Without it Change
	// does nothing if the outcome of one of them is unknown, as Line.OutcomeUnknown tells. Reschedule needs no check.
	Checked bool

	// Again says that entries may run again although they have ended: succeeded, compensated, cancelled or settled manually.
	// Without it Requeue and Compensate do nothing if there is one among them.
	Again bool
}

// MaxEntries is how many entries an action names at most.
const MaxEntries = 500

// Change does what it says to each entry that still stands as it was seen, in one transaction with the records and the
// closing of their cases, and answers for each in their order: nil, or why it was left alone. compensator.ErrNotFound: it is
// not there, or may not be seen; ErrNotAllowed: the right is missing for this type or amount; ErrChanged; ErrBusy;
// *StateError. It wants SeeEntries and the Action's right, and RequeueSucceeded to do again what has succeeded, was settled
// manually, or to compensate what was compensated. An *UncheckedError means that nothing was done, and that somebody must
// look first: see Checked and Again. With another error nothing was done, or all, when the answer to COMMIT was lost: then a
// second call finds ErrChanged.
func (d *Admin) Change(ctx context.Context, a Actor, ch Change) ([]error, error) {
	if d.readOnly {
		return nil, ErrReadOnly
	}
	ids := make([]compensator.EntryID, len(ch.Entries))
	for i, seen := range ch.Entries {
		ids[i] = seen.ID
	}
	change, err := ch.change(a, ids)
	if err != nil {
		return nil, err
	}
	ctx = acting(ctx)
	answers := make([]error, len(ch.Entries))
	outlines, err := d.outlines(ctx, a, ids)
	if err != nil {
		return nil, err
	}
	amounts, cases, err := d.worth(ctx, outlines)
	if err != nil {
		return nil, err
	}
	rows := byID(outlines)
	var versions []processlog.Version
	var places []int
	var toChange []Line
	refused := rejected{of: len(ch.Entries)}
	for i, seen := range ch.Entries {
		row, found := rows[seen.ID]
		on := Subject{Type: row.BusinessType, Amount: amounts[seen.ID], Count: len(ch.Entries)}
		switch {
		case !found: // or not to be seen
			answers[i] = notFound(seen.ID)
			refused.add(seen.ID, "")
		case !d.may(ctx, a, ch.Action, on):
			answers[i] = ErrNotAllowed
			refused.add(row.ID, row.BusinessType)
		case row.Version != seen.Version:
			answers[i] = fmt.Errorf("%s entry %s: %w", ch.Action, seen.ID, compensator.ErrChanged)
		case !d.mayAgain(ctx, a, ch.Action, row.State, on):
			answers[i] = ErrNotAllowed
			refused.add(row.ID, row.BusinessType)
		default:
			versions = append(versions, processlog.Version{ID: row.ID, IdempotencyKey: row.IdempotencyKey, State: row.State, Number: row.Version, Epoch: row.Epoch})
			places = append(places, i)
			toChange = append(toChange, d.lineOf(row, cases))
		}
	}
	if err := d.refuseSome(ctx, a, processlog.Operation{Action: string(ch.Action), Reason: change.Reason}, refused); err != nil {
		return nil, err
	}
	// ChangeAll changes only the versions that were read here, so no outcome can become unknown in between.
	if unchecked := ch.Unchecked(toChange); unchecked != nil {
		return nil, unchecked
	}
	if len(versions) == 0 {
		return answers, nil
	}
	defer d.acts.Add(1) // also when the answer to COMMIT was lost
	done, err := d.log.ChangeAll(ctx, versions, change)
	if err != nil {
		return nil, err
	}
	for i, place := range places {
		answers[place] = done[i].Err
	}
	return answers, nil
}

// Offers reports whether Change would do an action to this entry alone, if it still stands as the line has it, for a page that
// shows no button in vain: the log's own rules let it, it would change something, and the actor has the rights. Checked and
// Again are taken as set. It reads and records nothing.
func (d *Admin) Offers(ctx context.Context, a Actor, action Right, line Line) bool {
	if d.readOnly || !changes(action, line.Entry) {
		return false
	}
	on := Subject{Type: line.Entry.BusinessType, Amount: line.Amount, Count: 1}
	return d.may(ctx, a, action, on) && d.mayAgain(ctx, a, action, line.Entry.State, on)
}

// mayAgain asks for the right to do again what was done, where an action does.
func (d *Admin) mayAgain(ctx context.Context, a Actor, action Right, state compensator.State, on Subject) bool {
	switch {
	case action == Requeue && (state == compensator.Succeeded || state == compensator.SettledManually), action == Compensate && state == compensator.Compensated:
		return d.may(ctx, a, RequeueSucceeded, on)
	}
	return true
}

// actions are what a Change may do.
var actions = map[Right]compensator.Action{Requeue: compensator.ActionRequeue, Compensate: compensator.ActionRequeue, SettleManually: compensator.ActionSettleManually,
	Cancel: compensator.ActionCancel, Complete: compensator.ActionComplete, Reschedule: compensator.ActionReschedule}

// named checks the entries that an action names.
func named(ids []compensator.EntryID) error {
	if len(ids) == 0 || len(ids) > MaxEntries {
		return &compensator.FieldError{Field: "entries", Reason: fmt.Sprintf("%d, want 1 to %d", len(ids), MaxEntries)}
	}
	before := make(map[compensator.EntryID]bool, len(ids))
	for _, id := range ids {
		if before[id] {
			return &compensator.FieldError{Field: "entries", Reason: fmt.Sprintf("name entry %s twice", id)}
		}
		before[id] = true
	}
	return nil
}

// change checks what was asked for, of these entries.
func (ch Change) change(a Actor, ids []compensator.EntryID) (processlog.Change, error) {
	change := processlog.Change{Action: actions[ch.Action], Delay: ch.Delay, Compensate: ch.Action == Compensate, Actor: a.ID}
	refuse := func(field, reason string) (processlog.Change, error) {
		return change, &compensator.FieldError{Field: field, Reason: reason}
	}
	switch {
	case a.invalid():
		return change, ErrNotAllowed
	case change.Action == "":
		return refuse("action", fmt.Sprintf("%q is none", ch.Action))
	case ch.Delay < 0 || ch.Delay > processlog.MaxDelay:
		return refuse("delay", fmt.Sprintf("%v: want 0 to 100 years", ch.Delay))
	case ch.Delay > 0 && change.Action != compensator.ActionRequeue && change.Action != compensator.ActionReschedule:
		return refuse("delay", "is none of "+string(ch.Action)+"'s")
	}
	if err := named(ids); err != nil {
		return change, err
	}
	var err error
	change.Reason, err = ch.text()
	return change, err
}

// outlines reads entries as they are, of those that an actor may see, in the order of their ids.
func (d *Admin) outlines(ctx context.Context, a Actor, ids []compensator.EntryID) ([]processlog.Row, error) {
	ids = slices.SortedFunc(slices.Values(ids), compensator.EntryID.Compare)
	rows, err := read(ctx, d, func(ctx context.Context) ([]processlog.Row, error) { return d.log.Operations().Outlines(ctx, ids) })
	sees := d.sight(a, SeeEntries) // contents are read for amounts, and the service's own functions called
	return slices.DeleteFunc(rows, func(row processlog.Row) bool { return !sees.sees(ctx, row.BusinessType) }), err
}

// worth is what entries are worth, and their cases.
func (d *Admin) worth(ctx context.Context, rows []processlog.Row) (map[compensator.EntryID]compensator.Amount, []Case, error) {
	ids := make([]compensator.EntryID, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	cases, err := d.casesOf(ctx, ids)
	if err != nil {
		return nil, nil, err
	}
	amounts, err := d.amounts(ctx, rows, cases)
	return amounts, cases, err
}

// amounts is what entries are worth: their cases tell, or the functions of their types.
func (d *Admin) amounts(ctx context.Context, rows []processlog.Row, cases []Case) (map[compensator.EntryID]compensator.Amount, error) {
	known := make(map[compensator.EntryID]compensator.Amount, len(rows))
	for _, c := range cases {
		if c.Amount.Known() {
			known[c.EntryID] = c.Amount
		}
	}
	rest := slices.DeleteFunc(slices.Clone(rows), func(r processlog.Row) bool { return known[r.ID].Known() })
	for chunk := range slices.Chunk(rest, contentsAtOnce) {
		more, err := read(ctx, d, func(ctx context.Context) (map[compensator.EntryID]compensator.Amount, error) {
			return d.log.Amounts(ctx, chunk)
		})
		if err != nil {
			return nil, err
		}
		maps.Copy(known, more)
	}
	return known, nil
}

// contentsAtOnce bounds what of the entries of a request is in memory.
const contentsAtOnce = 16
