package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/operating"
	"github.com/compensator-go/compensator/processlog"
)

type (
	Filter      = processlog.Filter      // selects entries for List. The zero value selects all, 50 a page
	CountFilter = processlog.CountFilter // selects entries for Count. The zero value selects all entries
	Count       = processlog.Count       // number of entries of one state and type
	AuditInfo   = processlog.AuditInfo   // the person or program that acts, and the reason. Both are required
	AuditRecord = processlog.AuditRecord // one action: what, on which entry, by whom and why
	AuditState  = processlog.AuditState  // state of the entry before and after the action
	LostEntry   = processlog.LostEntry   // an entry that the database has lost
)

// ErrChanged says that an entry has changed since it was read. Read it again.
var ErrChanged = processlog.ErrChanged

// Log reads and changes the log of one Compensator. A Log is for programs: it asks for no rights and needs no
// Config.Operations. Each change still needs an actor and a reason, and is stored in the audit table. If people act, use
// an Admin instead, which admin.New returns.
//
// The methods may be called concurrently. After Compensator.Close, the methods that change the log return
// compensator.ErrClosed.
type Log struct{ c operating.Log }

// Of returns the Log of c. It sends no query.
func Of(c *compensator.Compensator) *Log { return &Log{operating.Of(c)} }

// Page is one page of a listing.
type Page struct {
	Entries []compensator.Entry `json:"entries"`        // in the order that Filter asks for
	Next    string              `json:"next,omitempty"` // cursor of the following page; empty at the end
	Read    int                 `json:"read"`           // number of rows that were read: see Filter.MaxRead

	Partial []string `json:"partial,omitempty"` // types of which the page may lack entries: see Filter.Leased
}

// List reads one page of entries. A cursor is a position, so pages do not shift when entries are added or change their
// state. More pages may follow a short page. On the last page Next is empty. An invalid filter or cursor is a
// *FieldError.
func (l *Log) List(ctx context.Context, filter Filter) (Page, error) {
	found, err := l.c.Store().List(ctx, filter)
	page := Page{Next: found.Next, Read: found.Read, Partial: found.Partial}
	for i := range found.Rows {
		page.Entries = append(page.Entries, *l.c.Entry(&found.Rows[i]).(*compensator.Entry))
	}
	return page, err
}

// Count counts entries by state and type. The number for each state and type is at most CountFilter.AtMost. An invalid
// filter is a *FieldError.
func (l *Log) Count(ctx context.Context, filter CountFilter) ([]Count, error) {
	return l.c.Store().Count(ctx, nil, filter)
}

// History lists what people and programs did to an entry, oldest first. For the zero EntryID it lists each AcceptLoss,
// and each Purge of entries that are less than an hour old. For an entry without records, History returns an empty list
// and no error.
func (l *Log) History(ctx context.Context, id compensator.EntryID) ([]AuditRecord, error) {
	return l.c.Store().History(ctx, id)
}

// RequeueOptions say how a requeued entry runs.
type RequeueOptions struct {
	AuditInfo               // required
	Delay     time.Duration // time until the entry is due, 0 to 100 years
	// Compensate runs the compensation instead of the handler, even if the compensation has run before, or if the entry
	// has succeeded. The compensation gets a new Entry.CallKey. If the type has no compensation, the entry stays
	// compensating until a person settles it.
	Compensate bool
	DryRun     bool // change nothing, and return what Requeue would return, except ErrBusy
}

func (opts RequeueOptions) newChange() (processlog.Change, error) {
	if err := opts.Validate(); err != nil {
		return processlog.Change{}, err
	}
	if opts.Delay < 0 || opts.Delay > processlog.MaxDelay {
		return processlog.Change{}, &compensator.FieldError{Field: "delay", Reason: fmt.Sprintf("%v: want 0 to 100 years", opts.Delay)}
	}
	return processlog.Change{Action: processlog.ActionRequeue, Delay: opts.Delay, Compensate: opts.Compensate, Actor: opts.Actor, Reason: opts.Reason}, nil
}

// Requeue runs an entry again. The entry gets the full number of attempts. The entry gets a new epoch, and results of
// the former epoch are dropped. A pending or compensating entry cannot be requeued: Requeue returns a
// *compensator.StateError. It may also return ErrNotFound, ErrBusy or ErrClosed. Invalid options are a *FieldError.
func (l *Log) Requeue(ctx context.Context, ref compensator.Ref, opts RequeueOptions) error {
	change, err := opts.newChange()
	if err != nil {
		return err
	}
	change.Ref = ref
	if opts.DryRun {
		row, err := l.c.Row(ctx, ref)
		if err == nil {
			_, err = change.After(row)
		}
		return err
	}
	_, err = l.c.Change(ctx, change)
	return err
}

const maxRequeued = 1000

// RequeueAll requeues up to 1,000 entries in one transaction, for example a page of List. It returns one error for each
// entry, in the order of seen. The error is nil, ErrChanged if the entry does not have the given version any more, or
// an error of Requeue. RequeueAll does not wait for a locked row and returns ErrBusy for it. If the second result is an
// error, no entry was requeued. There is one exception: if the answer to COMMIT was lost, all entries may have been
// requeued. A second call then returns ErrChanged for each entry. Invalid options, more than 1,000 entries, or an entry
// named twice are a *FieldError.
func (l *Log) RequeueAll(ctx context.Context, seen []compensator.Entry, opts RequeueOptions) ([]error, error) {
	change, err := opts.newChange()
	if err != nil {
		return nil, err
	}
	versions, err := versionsOf(seen)
	if err != nil {
		return nil, err
	}
	if opts.DryRun {
		return l.planRequeue(ctx, seen, versions, change)
	}
	answers, err := l.c.RequeueAll(ctx, versions, change)
	if err != nil || len(answers) == 0 {
		return nil, err
	}
	refusals := make([]error, len(answers))
	for i, answer := range answers {
		refusals[i] = answer.Err
	}
	return refusals, nil
}

func versionsOf(seen []compensator.Entry) ([]processlog.Version, error) {
	if len(seen) > maxRequeued {
		return nil, &compensator.FieldError{Field: "entries", Reason: fmt.Sprintf("%d, at most %d", len(seen), maxRequeued)}
	}
	versions := make([]processlog.Version, len(seen))
	seenIDs := make(map[compensator.EntryID]bool, len(seen))
	for i, e := range seen {
		if seenIDs[e.ID] {
			return nil, &compensator.FieldError{Field: "entries", Reason: fmt.Sprintf("name entry %s twice", e.ID)}
		}
		seenIDs[e.ID] = true
		versions[i] = processlog.Version{ID: e.ID, IdempotencyKey: e.IdempotencyKey, State: e.State, Number: e.Version, Epoch: e.Epoch}
	}
	return versions, nil
}

// If an entry still has the version in seen, its other fields have not changed either, so planRequeue takes them from
// seen.
func (l *Log) planRequeue(ctx context.Context, seen []compensator.Entry, versions []processlog.Version, change processlog.Change) ([]error, error) {
	ids := make([]compensator.EntryID, len(seen))
	for i, e := range seen {
		ids[i] = e.ID
	}
	versionsRead, err := l.c.Store().Versions(ctx, ids)
	if err != nil {
		return nil, err
	}
	current := make(map[compensator.EntryID]processlog.Version, len(versionsRead))
	for _, v := range versionsRead {
		current[v.ID] = v
	}
	refusals := make([]error, len(seen))
	for i, v := range versions {
		version, isFound := current[v.ID]
		if !isFound {
			refusals[i] = compensator.ErrNotFound
			continue
		}
		_, refusals[i] = change.AfterSeen(processlog.Row{ID: v.ID, IdempotencyKey: version.IdempotencyKey, State: version.State, Version: version.Number, Erased: seen[i].Erased}, v)
	}
	return refusals, nil
}

// SettleManually records that a person did the work of a dead, retrying or compensating entry. In any other state it
// returns a *compensator.StateError. It may also return ErrNotFound, ErrBusy or ErrClosed. A missing actor or reason is
// a *FieldError.
func (l *Log) SettleManually(ctx context.Context, ref compensator.Ref, by AuditInfo) error {
	if err := by.Validate(); err != nil {
		return err
	}
	_, err := l.c.Change(ctx, newSettleChange(ref, by))
	return err
}

// SettleManuallyTx does the same as SettleManually inside the caller's open transaction, audit record included. It
// takes effect when that transaction commits. Without an open transaction it returns compensator.ErrNoTransaction. Its
// other errors are those of SettleManually.
func (l *Log) SettleManuallyTx(ctx context.Context, tx compensator.Tx, ref compensator.Ref, by AuditInfo) error {
	if err := by.Validate(); err != nil {
		return err
	}
	_, err := l.c.ChangeTx(ctx, tx, newSettleChange(ref, by))
	return err
}

func newSettleChange(ref compensator.Ref, by AuditInfo) processlog.Change {
	return processlog.Change{Ref: ref, Action: processlog.ActionSettleManually, Actor: by.Actor, Reason: by.Reason}
}

// EraseResult describes the entry as Erase found it.
type EraseResult struct {
	WasAlready bool // the entry was erased before. Nothing has changed
}

// Erase removes the personal data of an ended entry, dead ones included. It blanks the content, headers, user name and
// last error, the reasons and errors in earlier audit records, and the errors of failed attempts. It keeps ids (which
// must hold no personal data), the state, times, and who did what. The idempotency key still prevents that the event is
// recorded again.
//
// An erased entry cannot be requeued: Requeue returns a *StateError whose field Erased is true. If the entry has not
// ended, Erase returns a *StateError whose field Erased is false. Erase may also return ErrNotFound, ErrBusy or
// ErrClosed. A missing actor or reason is a *FieldError. docs/how-to/erase.md lists what Erase cannot reach.
func (l *Log) Erase(ctx context.Context, ref compensator.Ref, by AuditInfo) (EraseResult, error) {
	if err := by.Validate(); err != nil {
		return EraseResult{}, err
	}
	before, err := l.c.Change(ctx, processlog.Change{Ref: ref, Action: processlog.ActionErase, Actor: by.Actor, Reason: by.Reason})
	return EraseResult{WasAlready: err == nil && before.Erased}, err
}

var purged = []compensator.State{compensator.Succeeded, compensator.Compensated, compensator.Cancelled}

const purgeStep = 1000

// Purge deletes entries of the given states, if they reached their state long enough ago. The parameter age is the time
// that must have passed since then, at least a minute. Without states, Purge deletes succeeded, compensated and
// cancelled entries. Purge returns the number of deleted entries. It stops when ctx ends.
//
// Choose an age that is longer than the time within which the same event may come again. If age is below an hour, Purge
// writes a note into the audit table. Because of the note, other processes do not report the missing entries as a loss.
//
// Purge works in steps of at most 1,000 entries. Producers do not wait for a step.
//
// Some entries stay:
//   - entries that another transaction has locked;
//   - dead entries with Config.Operations set, because their cases are open until a person settles, cancels or requeues
//     them;
//   - entries that the database refuses to delete, for example because a foreign key refers to them. A
//     *processlog.RefusedError names these entries, and Purge counts only the deleted ones.
//
// If Purge fails or its process dies, the entries that it has deleted stay deleted. The returned number counts them. An
// age below a minute is a *FieldError.
func (l *Log) Purge(ctx context.Context, age time.Duration, states ...compensator.State) (int, error) {
	if age < time.Minute {
		return 0, &compensator.FieldError{Field: "age", Reason: fmt.Sprintf("%v is less than 1m", age)}
	}
	if len(states) == 0 {
		states = purged
	}
	if l.c.Operations() != nil {
		states = slices.DeleteFunc(slices.Clone(states), func(s compensator.State) bool { return s == compensator.Dead })
		if len(states) == 0 {
			return 0, nil
		}
	}
	// The note in the audit table covers only entries that ended before the purge began. A purge may take long, so the
	// age of an entry counts from this time. Otherwise the purge could also delete entries that ended later.
	startedAt := time.Now()
	if age < l.c.RememberedFor() {
		if err := l.c.Store().Note(ctx, processlog.ActionPurge, AuditInfo{Actor: "Purge", Reason: fmt.Sprintf("entries older than %v", age)}); err != nil {
			return 0, err
		}
	}
	deleted := 0
	var errs []error
	for _, state := range states {
		for {
			n, err := l.c.Store().Purge(ctx, "", state, age+time.Since(startedAt), purgeStep)
			deleted += n
			if err != nil {
				errs = append(errs, err)
				if !errors.As(err, new(*processlog.RefusedError)) {
					return deleted, errors.Join(errs...)
				}
			}
			// Only 0 deleted entries mean the end. A smaller number than purgeStep may have another cause: the step has passed
			// over entries that other transactions have locked. More entries may come after the locked entries.
			if n == 0 {
				break
			}
		}
	}
	return deleted, errors.Join(errs...)
}

// AcceptLoss ends the report of ErrHistoryLost, and resumes work in processes with Config.StopOnLoss. The other
// processes read the acceptance from the audit table within ReconcileInterval. AcceptLoss returns the entries that this
// process remembers and that the database has lost. The other processes log the lost entries that they remember. A
// later loss needs another AcceptLoss. A missing actor or reason is a *FieldError. After Close it returns ErrClosed.
func (l *Log) AcceptLoss(ctx context.Context, by AuditInfo) ([]LostEntry, error) {
	if err := by.Validate(); err != nil {
		return nil, err
	}
	return l.c.AcceptLoss(ctx, by)
}
