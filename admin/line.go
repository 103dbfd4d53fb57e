package admin

import (
	"context"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// Line describes one entry, as a list of entries shows it.
type Line struct {
	Entry  compensator.Entry  `json:"entry"`          // without content, headers and user name
	Amount compensator.Amount `json:"amount"`         // zero if the amount is unknown
	Case   *Case              `json:"case,omitempty"` // the entry's case, open or closed; nil if the entry has no case

	// OutcomeUnknown reports whether an attempt of the present epoch may have had an effect that the log does not know.
	// Change then needs Change.Checked, except for Reschedule. OutcomeUnknown is true in these cases:
	//   - An attempt timed out, was cut off or never ended.
	//   - An attempt lost the result of its call.
	//   - An attempt is running.
	//   - An attempt held the entry when the entry was cancelled or rescheduled.
	//
	// OutcomeUnknown is false once the entry has succeeded, was compensated or was settled manually.
	OutcomeUnknown bool `json:"outcome_unknown,omitempty"`

	Lease *Lease `json:"lease,omitempty"` // set by EntryLines with Filter.Leased, if a process holds the entry
}

// Lease says which process holds an entry.
type Lease struct {
	Process string        `json:"process,omitempty"` // name of the process. Empty if it is not known, or without SeeOverview for the empty type
	Since   time.Time     `json:"since"`             // when the process claimed the entry, by the database's clock
	Left    time.Duration `json:"left"`              // time until the lease ends, unless the process renews it, in nanoseconds
}

// Lines reads up to MaxEntries entries as lines, in the order of ids. ids may name an entry twice. Lines leaves out
// entries that do not exist or that the actor may not see. It asks Access for SeeEntries for each type. More than
// MaxEntries ids are a *FieldError.
func (d *Admin) Lines(ctx context.Context, a Actor, ids []compensator.EntryID) ([]Line, error) {
	if len(ids) > MaxEntries {
		return nil, &compensator.FieldError{Field: "entries", Reason: "more than 500"}
	}
	rows, err := d.outlines(ctx, a, ids)
	if err != nil {
		return nil, err
	}
	amounts, cases, err := d.readAmountsAndCases(ctx, rows)
	if err != nil {
		return nil, err
	}
	return d.lines(ctx, a, ids, rows, amounts, cases)
}

// CaseLines lists cases as Cases does, each with the Line of its entry. It leaves out cases whose entry was purged. It
// needs the same rights as Cases.
func (d *Admin) CaseLines(ctx context.Context, a Actor, filter CaseFilter) (LinePage, error) {
	page, err := d.cases(ctx, a, filter)
	if err != nil {
		return LinePage{}, err
	}
	ids := make([]compensator.EntryID, len(page.Cases))
	for i := range page.Cases {
		ids[i] = page.Cases[i].EntryID
	}
	rows, err := d.outlines(ctx, a, ids)
	if err != nil {
		return LinePage{}, err
	}
	amounts, err := d.readAmounts(ctx, rows, page.Cases)
	if err != nil {
		return LinePage{}, err
	}
	lines, err := d.lines(ctx, a, ids, rows, amounts, page.Cases)
	return LinePage{Lines: lines, Next: page.Next}, err
}

func (d *Admin) lines(ctx context.Context, a Actor, ids []compensator.EntryID, outlines []processlog.Row, amounts map[compensator.EntryID]compensator.Amount, cases []Case) ([]Line, error) {
	unknownOutcomes, err := d.outcomesUnknown(ctx, entriesOf(outlines), cases)
	if err != nil {
		return nil, err
	}
	rows, seesErrors := rowsByID(outlines), d.rightsOf(a, SeeErrors)
	lines := make([]Line, 0, len(ids))
	for _, id := range ids {
		if row, isFound := rows[id]; isFound {
			e, isFull := entryOf(row), seesErrors.holds(ctx, row.BusinessType)
			lines = append(lines, Line{Entry: d.visibleEntry(&e, isFull), Amount: amounts[id], Case: d.caseOf(cases, id, isFull), OutcomeUnknown: unknownOutcomes[id]})
		}
	}
	return lines, nil
}

func entriesOf(rows []processlog.Row) []compensator.Entry {
	entries := make([]compensator.Entry, len(rows))
	for i, row := range rows {
		entries[i] = entryOf(row)
	}
	return entries
}

func rowsByID(outlines []processlog.Row) map[compensator.EntryID]processlog.Row {
	rows := make(map[compensator.EntryID]processlog.Row, len(outlines))
	for _, row := range outlines {
		rows[row.ID] = row
	}
	return rows
}

// LinePage is one page of lines. It may be short or empty although further pages follow. Only Next says whether there
// are more.
type LinePage struct {
	Lines []Line `json:"lines"`          // one Line per entry
	Next  string `json:"next,omitempty"` // cursor of the following page; empty at the end

	Partial []string `json:"partial,omitempty"` // same as EntryPage.Partial
}

// EntryLines lists the same entries as Entries, as lines. It needs the same rights.
func (d *Admin) EntryLines(ctx context.Context, a Actor, filter Filter) (LinePage, error) {
	page, err := d.entries(ctx, a, filter, SeeEntries)
	if err != nil {
		return LinePage{}, err
	}
	lines, err := d.newLinePage(ctx, a, page)
	if err == nil && filter.Leased {
		err = d.addLeases(ctx, a, lines.Lines)
	}
	return lines, err
}

func (d *Admin) addLeases(ctx context.Context, a Actor, lines []Line) error {
	ids := make([]compensator.EntryID, len(lines))
	for i, line := range lines {
		ids[i] = line.Entry.ID
	}
	outlines, err := d.outlines(ctx, a, ids)
	if err != nil {
		return err
	}
	processes, rows := d.visibleInstances(ctx, a), rowsByID(outlines)
	for i := range lines {
		row := rows[lines[i].Entry.ID]
		if row.LeaseLeft <= 0 {
			continue
		}
		lines[i].Lease = &Lease{Since: row.UpdatedAt, Left: row.LeaseLeft}
		for _, p := range holdersOf(row.Token, processes) {
			lines[i].Lease.Process = p.Name
		}
	}
	return nil
}

func (d *Admin) newLinePage(ctx context.Context, a Actor, page EntryPage) (LinePage, error) {
	rows := make([]processlog.Row, len(page.Entries))
	for i, e := range page.Entries {
		rows[i] = processlog.Row{ID: e.ID, BusinessType: e.BusinessType}
	}
	amounts, cases, err := d.readAmountsAndCases(ctx, rows)
	if err != nil {
		return LinePage{}, err
	}
	unknownOutcomes, err := d.outcomesUnknown(ctx, page.Entries, cases)
	if err != nil {
		return LinePage{}, err
	}
	seesErrors := d.rightsOf(a, SeeErrors)
	linePage := LinePage{Lines: make([]Line, len(page.Entries)), Next: page.Next, Partial: page.Partial}
	for i, e := range page.Entries {
		isFull := seesErrors.holds(ctx, e.BusinessType)
		linePage.Lines[i] = Line{Entry: d.visibleEntry(&e, isFull), Amount: amounts[e.ID], Case: d.caseOf(cases, e.ID, isFull), OutcomeUnknown: unknownOutcomes[e.ID]}
	}
	return linePage, nil
}

// entryOf keeps the fields that need further rights. The method visibleEntry removes them.
func entryOf(r processlog.Row) compensator.Entry {
	return compensator.Entry{ID: r.ID, IdempotencyKey: r.IdempotencyKey, BusinessType: r.BusinessType, BatchID: r.BatchID, BusinessID: r.BusinessID,
		BusinessExtID: r.BusinessExtID, UserID: r.UserID, State: r.State, ProcessCount: r.ProcessCount, MaxAttempts: r.MaxAttempts,
		CompensateCount: r.CompensateCount, DeliveryCount: r.DeliveryCount, Version: r.Version, Epoch: r.Epoch, NextAt: r.NextAt, EndedBy: r.EndedBy,
		LastError: r.LastError, Erased: r.Erased, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt}
}
