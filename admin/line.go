package admin

import (
	"context"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// Line is one entry in short, where a page shows many.
type Line struct {
	Entry  compensator.Entry  `json:"entry"`          // without content, headers and user name
	Amount compensator.Amount `json:"amount"`         // where it is known
	Case   *Case              `json:"case,omitempty"` // also a closed one

	// OutcomeUnknown: the entry has not ended well, and an attempt timed out, never ended or runs now, so that its effect may
	// have happened. Change wants Change.Checked for it. The log remembers the last attempts alone.
	OutcomeUnknown bool `json:"outcome_unknown,omitempty"`
}

// Lines reads up to MaxEntries entries in short, in the order of ids, which may name one twice. Those that are not there,
// or may not be seen, are left out. It wants SeeEntries, asked for each type.
func (d *Admin) Lines(ctx context.Context, a Actor, ids []compensator.EntryID) ([]Line, error) {
	if len(ids) > MaxEntries {
		return nil, &compensator.FieldError{Field: "entries", Reason: "more than 500"}
	}
	rows, err := d.outlines(ctx, a, ids)
	if err != nil {
		return nil, err
	}
	amounts, cases, err := d.worth(ctx, rows)
	if err != nil {
		return nil, err
	}
	return d.lines(ctx, a, ids, rows, amounts, cases), nil
}

// CaseLines is Cases as lines, each case with its entry; cases whose entry has gone are left out. It wants what Cases wants.
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
	amounts, err := d.amounts(ctx, rows, page.Cases)
	if err != nil {
		return LinePage{}, err
	}
	return LinePage{d.lines(ctx, a, ids, rows, amounts, page.Cases), page.Next}, nil
}

// lines are those of rows, in the order of ids.
func (d *Admin) lines(ctx context.Context, a Actor, ids []compensator.EntryID, outlines []processlog.Row, amounts map[compensator.EntryID]compensator.Amount, cases []Case) []Line {
	rows, inFull := byID(outlines), d.sight(a, SeeErrors)
	lines := make([]Line, 0, len(ids))
	for _, id := range ids {
		if row, found := rows[id]; found {
			line, full := d.lineOf(row, cases), inFull.sees(ctx, row.BusinessType)
			line.Entry, line.Amount, line.Case = d.masked(&line.Entry, full), amounts[id], d.caseAmong(cases, id, full)
			lines = append(lines, line)
		}
	}
	return lines
}

// lineOf tells what a row and its case say, of which nothing is masked.
func (d *Admin) lineOf(row processlog.Row, cases []Case) Line {
	e := entryOf(row)
	return Line{Entry: e, OutcomeUnknown: d.outcomeUnknown(e, cases)}
}

func byID(outlines []processlog.Row) map[compensator.EntryID]processlog.Row {
	rows := make(map[compensator.EntryID]processlog.Row, len(outlines))
	for _, row := range outlines {
		rows[row.ID] = row
	}
	return rows
}

// LinePage is one page of a listing. It may be short, or empty, and not the last: Next tells.
type LinePage struct {
	Lines []Line `json:"lines"`
	Next  string `json:"next,omitempty"`
}

// EntryLines is Entries, with what Line has beside. It wants what Entries wants.
func (d *Admin) EntryLines(ctx context.Context, a Actor, filter compensator.Filter) (LinePage, error) {
	page, err := d.entries(ctx, a, filter, SeeEntries)
	if err != nil {
		return LinePage{}, err
	}
	return d.lined(ctx, a, page)
}

// lined masks a page of entries and adds what Line has beside.
func (d *Admin) lined(ctx context.Context, a Actor, page EntryPage) (LinePage, error) {
	rows := make([]processlog.Row, len(page.Entries))
	for i, e := range page.Entries {
		rows[i] = processlog.Row{ID: e.ID, BusinessType: e.BusinessType}
	}
	amounts, cases, err := d.worth(ctx, rows)
	if err != nil {
		return LinePage{}, err
	}
	inFull := d.sight(a, SeeErrors)
	found := LinePage{Lines: make([]Line, len(page.Entries)), Next: page.Next}
	for i, e := range page.Entries {
		full := inFull.sees(ctx, e.BusinessType)
		found.Lines[i] = Line{Entry: d.masked(&e, full), Amount: amounts[e.ID], Case: d.caseAmong(cases, e.ID, full), OutcomeUnknown: d.outcomeUnknown(e, cases)}
	}
	return found, nil
}

// entryOf is a row as users know it, but for what masked takes away.
func entryOf(r processlog.Row) compensator.Entry {
	return compensator.Entry{ID: r.ID, IdempotencyKey: r.IdempotencyKey, BusinessType: r.BusinessType, BatchID: r.BatchID, BusinessID: r.BusinessID,
		BusinessExtID: r.BusinessExtID, UserID: r.UserID, State: r.State, ProcessCount: r.ProcessCount, MaxProcessCount: r.MaxProcessCount,
		CompensateCount: r.CompensateCount, DeliveryCount: r.DeliveryCount, Version: r.Version, Epoch: r.Epoch, NextAt: r.NextAt, EndedBy: r.EndedBy,
		LastError: r.LastError, Erased: r.Erased, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt}
}
