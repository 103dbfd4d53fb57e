package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// Why holds the reason that an actor gives for an action.
type Why struct {
	Reason string // required; at most 1,000 characters together with the ticket
	Ticket string // optional; at most 64 characters: ASCII letters, digits and - _ . / : #. The records store "[OPS-988] " before the reason
}

const maxTicketLength = 64

func (w Why) text() (string, error) {
	text := w.Reason
	if w.Ticket != "" {
		if len(w.Ticket) > maxTicketLength || strings.ContainsFunc(w.Ticket, func(r rune) bool { return !strings.ContainsRune(ticketRunes, r) }) {
			return "", &compensator.FieldError{Field: "ticket", Reason: "want at most 64 letters, digits and - _ . / : #"}
		}
		text = "[" + w.Ticket + "] " + text
	}
	switch {
	case processlog.IsBlank(w.Reason):
		return "", &compensator.FieldError{Field: "reason", Reason: "is empty"}
	case !utf8.ValidString(text):
		return "", &compensator.FieldError{Field: "reason", Reason: "is not valid UTF-8"}
	case utf8.RuneCountInString(text) > processlog.MaxText:
		return "", &compensator.FieldError{Field: "reason", Reason: "with the ticket is longer than 1,000 characters"}
	}
	return text, nil
}

const ticketRunes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:#"

// Seen identifies an entry in the version that the actor saw.
type Seen struct {
	ID      compensator.EntryID // Entry.ID
	Version uint64              // Entry.Version that the actor saw
}

// Change is one action on one or more entries.
type Change struct {
	Action  Right  // Requeue, Compensate, SettleManually, Cancel, Complete or Reschedule
	Entries []Seen // entries to change, 1 to MaxEntries; none may be named twice
	Why
	Delay time.Duration // delay until the entries are due; for Requeue, Compensate and Reschedule

	// Checked confirms that a person has checked the effects of the entries' attempts outside the log. If the outcome of
	// one entry is unknown (Line.OutcomeUnknown) and Checked is not set, Change does nothing. Reschedule needs no check.
	Checked bool

	// Again confirms that finished entries may run again: entries that are succeeded, compensated, cancelled or settled
	// manually. Without Again, Requeue and Compensate do nothing if one of the entries is finished.
	Again bool
}

// MaxEntries is the maximum number of entries in one action.
const MaxEntries = 500

// Change applies the action to each entry that is still in the version that the actor saw. One transaction changes the
// entries, writes the audit records and closes the cases.
//
// Change needs SeeEntries and the right named by Action. Change also needs RequeueSucceeded to run an entry again that
// succeeded or was settled manually. It needs the same right to compensate an entry that was compensated already.
//
// Change returns one answer per entry, in the order of the entries:
//   - nil: the entry was changed.
//   - compensator.ErrNotFound: there is no such entry, or the actor may not see it.
//   - ErrNotAllowed: the actor lacks the right for this type or amount.
//   - ErrChanged: the entry changed since the actor saw it.
//   - ErrBusy: another transaction has locked the row. Try again.
//   - *StateError: the action is impossible in the entry's state.
//
// If the second result is an error, Change changed nothing. There is one exception: if the answer to COMMIT was lost,
// Change may have changed all entries, and a second call returns ErrChanged. An *UncheckedError says that a person must
// check the entries first: see Checked and Again. If Options.ReadOnly is set, Change returns ErrReadOnly. An invalid
// field of ch is a *FieldError.
func (d *Admin) Change(ctx context.Context, a Actor, ch Change) ([]error, error) {
	if d.readOnly {
		return nil, ErrReadOnly
	}
	c, err := d.checkChange(ctx, a, ch, part{total: len(ch.Entries)})
	if err != nil {
		return nil, err
	}
	if len(c.versions) == 0 {
		return c.answers, nil
	}
	defer d.actionCount.Add(1) // Count the action even if the answer to COMMIT is lost.
	results, err := d.log.ChangeAll(ctx, c.versions, c.change)
	if err != nil {
		return nil, err
	}
	c.addAnswers(results)
	return c.answers, nil
}

// checkedChange is a Change after the checks of the Admin.
type checkedChange struct {
	change   processlog.Change
	answers  []error              // one for each entry of the Change: why the Admin refuses it, or nil
	versions []processlog.Version // the entries that the Admin does not refuse
	indexes  []int                // for each version in versions: the index of its entry in answers
}

func (c *checkedChange) addAnswers(results []processlog.Changed) {
	for i, index := range c.indexes {
		c.answers[index] = results[i].Err
	}
}

var (
	errNoMatch  = errors.New("admin: the entry does not match the search any more")
	errUnknown  = errors.New("admin: the outcome is unknown, and Checked is not set")
	errFinished = errors.New("admin: the entry has ended already, and Again is not set")
)

// part says how checkChange treats the entries of one Change. A bulk action carries out several Changes, and each of
// them is a part of the action.
type part struct {
	total int // number of entries of the whole action, for Subject.Count

	// leavesOut says what happens to an entry that Change.Unchecked names. If it is true, only this entry stays as it is,
	// and its answer is an error. If it is false, checkChange returns an *UncheckedError, and no entry is changed.
	leavesOut bool

	// match selects the entries that may be changed, whatever their versions. Nil means that an entry must have the
	// version in Change.Entries.
	match *processlog.Match
}

func (d *Admin) checkChange(ctx context.Context, a Actor, ch Change, of part) (c checkedChange, err error) {
	ids := make([]compensator.EntryID, len(ch.Entries))
	for i, seen := range ch.Entries {
		ids[i] = seen.ID
	}
	if c.change, err = ch.newChange(a); err != nil {
		return c, err
	}
	if err := validateNames(ids); err != nil {
		return c, err
	}
	ctx = withAction(ctx)
	c.answers = make([]error, len(ch.Entries))
	outlines, err := d.outlines(ctx, a, ids)
	if err != nil {
		return c, err
	}
	amounts, cases, err := d.readAmountsAndCases(ctx, outlines)
	if err != nil {
		return c, err
	}
	unknownOutcomes, err := d.outcomesUnknown(ctx, entriesOf(outlines), cases)
	if err != nil {
		return c, err
	}
	rows := rowsByID(outlines)
	var toChange []Line
	rejections := refusedEntries{total: len(ch.Entries)}
	for i, seen := range ch.Entries {
		row, isFound := rows[seen.ID]
		subject := Subject{Type: row.BusinessType, Amount: amounts[seen.ID], Count: of.total}
		line := Line{Entry: entryOf(row), OutcomeUnknown: unknownOutcomes[row.ID]}
		var leftOut error
		if of.leavesOut {
			leftOut = ch.leftOut(line)
		}
		switch {
		case of.match != nil && !(isFound && of.match.Admits(&row, caseOf(cases, row.ID))):
			c.answers[i] = errNoMatch
		case !isFound: // The entry does not exist, or the actor may not see it.
			c.answers[i] = newNotFoundError(seen.ID)
			rejections.addRefusal(seen.ID, "")
		case !d.mayDo(ctx, a, ch.Action, subject):
			c.answers[i] = ErrNotAllowed
			rejections.addRefusal(row.ID, row.BusinessType)
		case of.match == nil && row.Version != seen.Version:
			c.answers[i] = fmt.Errorf("%s entry %s: %w", ch.Action, seen.ID, ErrChanged)
		case !d.checkRepeat(ctx, a, ch.Action, row.State, subject):
			c.answers[i] = ErrNotAllowed
			rejections.addRefusal(row.ID, row.BusinessType)
		case leftOut != nil:
			c.answers[i] = leftOut
		default:
			c.versions = append(c.versions, processlog.Version{ID: row.ID, IdempotencyKey: row.IdempotencyKey, State: row.State, Number: row.Version, Epoch: row.Epoch})
			c.indexes = append(c.indexes, i)
			toChange = append(toChange, line)
		}
	}
	if err := d.recordRefusals(ctx, a, processlog.Operation{Action: string(ch.Action), Reason: c.change.Reason}, rejections); err != nil {
		return c, err
	}
	// This check also holds at the time of the change. The log changes an entry only if it still has its version in
	// c.versions, and toChange describes the entries in these versions.
	if unchecked := ch.Unchecked(toChange); unchecked != nil {
		return c, unchecked
	}
	return c, nil
}

func (ch Change) leftOut(line Line) error {
	switch unchecked := ch.Unchecked([]Line{line}); {
	case unchecked == nil:
		return nil
	case len(unchecked.Unknown) > 0:
		return errUnknown
	}
	return errFinished
}

// Offers reports whether Change would apply an action to the entry that line shows. Offers assumes three things: the
// entry has not changed since line was read, and the fields Change.Checked and Change.Again are true. It sends no query
// and records nothing.
func (d *Admin) Offers(ctx context.Context, a Actor, action Right, line Line) bool {
	if d.readOnly || !changesContent(action, line.Entry) {
		return false
	}
	subject := Subject{Type: line.Entry.BusinessType, Amount: line.Amount, Count: 1}
	return d.mayDo(ctx, a, action, subject) && d.checkRepeat(ctx, a, action, line.Entry.State, subject)
}

func (d *Admin) checkRepeat(ctx context.Context, a Actor, action Right, state compensator.State, subject Subject) bool {
	switch {
	case action == Requeue && (state == compensator.Succeeded || state == compensator.SettledManually), action == Compensate && state == compensator.Compensated:
		return d.mayDo(ctx, a, RequeueSucceeded, subject)
	}
	return true
}

var actions = map[Right]processlog.Action{Requeue: processlog.ActionRequeue, Compensate: processlog.ActionRequeue, SettleManually: processlog.ActionSettleManually,
	Cancel: processlog.ActionCancel, Complete: processlog.ActionComplete, Reschedule: processlog.ActionReschedule}

func validateNames(ids []compensator.EntryID) error {
	if len(ids) == 0 || len(ids) > MaxEntries {
		return &compensator.FieldError{Field: "entries", Reason: fmt.Sprintf("%d, want 1 to %d", len(ids), MaxEntries)}
	}
	seen := make(map[compensator.EntryID]bool, len(ids))
	for _, id := range ids {
		if seen[id] {
			return &compensator.FieldError{Field: "entries", Reason: fmt.Sprintf("name entry %s twice", id)}
		}
		seen[id] = true
	}
	return nil
}

func (ch Change) newChange(a Actor) (processlog.Change, error) {
	change := processlog.Change{Action: actions[ch.Action], Delay: ch.Delay, Compensate: ch.Action == Compensate, Actor: a.ID}
	newFieldError := func(field, reason string) (processlog.Change, error) {
		return change, &compensator.FieldError{Field: field, Reason: reason}
	}
	switch {
	case a.isInvalid():
		return change, ErrNotAllowed
	case change.Action == "":
		return newFieldError("action", fmt.Sprintf("%q is none", ch.Action))
	case ch.Delay < 0 || ch.Delay > processlog.MaxDelay:
		return newFieldError("delay", fmt.Sprintf("%v: want 0 to 100 years", ch.Delay))
	case ch.Delay > 0 && change.Action != processlog.ActionRequeue && change.Action != processlog.ActionReschedule:
		return newFieldError("delay", "is none of "+string(ch.Action)+"'s")
	}
	var err error
	change.Reason, err = ch.text()
	return change, err
}

func (d *Admin) outlines(ctx context.Context, a Actor, ids []compensator.EntryID) ([]processlog.Row, error) {
	ids = slices.SortedFunc(slices.Values(ids), compensator.EntryID.Compare)
	rows, err := runQuery(ctx, d, func(ctx context.Context) ([]processlog.Row, error) { return d.log.Operations().Outlines(ctx, ids) })
	mayRead := d.rightsOf(a, SeeEntries) // Drop hidden rows before the amounts are read. Reading amounts reads contents and calls functions of the service.
	return slices.DeleteFunc(rows, func(row processlog.Row) bool { return !mayRead.holds(ctx, row.BusinessType) }), err
}

func (d *Admin) readAmountsAndCases(ctx context.Context, rows []processlog.Row) (map[compensator.EntryID]compensator.Amount, []Case, error) {
	ids := make([]compensator.EntryID, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	cases, err := d.casesOf(ctx, ids)
	if err != nil {
		return nil, nil, err
	}
	amounts, err := d.readAmounts(ctx, rows, cases)
	return amounts, cases, err
}

// readAmounts takes the amount from the case or else calls the amount function of the type.
func (d *Admin) readAmounts(ctx context.Context, rows []processlog.Row, cases []Case) (map[compensator.EntryID]compensator.Amount, error) {
	amounts := make(map[compensator.EntryID]compensator.Amount, len(rows))
	for _, c := range cases {
		if c.Amount.Known() {
			amounts[c.EntryID] = c.Amount
		}
	}
	missing := slices.DeleteFunc(slices.Clone(rows), func(r processlog.Row) bool { return amounts[r.ID].Known() })
	for chunk := range slices.Chunk(missing, contentsAtOnce) {
		readAmounts, err := runQuery(ctx, d, func(ctx context.Context) (map[compensator.EntryID]compensator.Amount, error) {
			return d.log.Amounts(ctx, chunk)
		})
		if err != nil {
			return nil, err
		}
		maps.Copy(amounts, readAmounts)
	}
	return amounts, nil
}

// contentsAtOnce limits how many contents a request holds in memory.
const contentsAtOnce = 16
