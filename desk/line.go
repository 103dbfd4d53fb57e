package desk

import (
	"context"
	"slices"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// Line is one entry in short, where a page shows many.
type Line struct {
	Entry  compensator.Entry  `json:"entry"`          // without content, headers and user name
	Amount compensator.Amount `json:"amount"`         // where it is known
	Case   *Case              `json:"case,omitempty"` // also a closed one
}

// Lines reads up to MaxEntries entries in short, in the order of ids, which may name one twice. Those that are not there,
// or may not be seen, are left out. It wants SeeEntries, asked for each type.
func (d *Desk) Lines(ctx context.Context, a Actor, ids []compensator.EntryID) ([]Line, error) {
	if len(ids) > MaxEntries {
		return nil, &compensator.FieldError{Field: "entries", Reason: "more than 500"}
	}
	seen := make([]Seen, len(ids))
	for i, id := range ids {
		seen[i].ID = id
	}
	rows, amounts, err := d.look(ctx, a, seen)
	if err != nil {
		return nil, err
	}
	cases, err := d.log.Operations().CasesOf(ctx, ids)
	if err != nil {
		return nil, err
	}
	sees, inFull := d.sight(a, SeeEntries), d.sight(a, SeeErrors)
	lines := make([]Line, 0, len(ids))
	for _, id := range ids {
		row, found := rows[id]
		if !found || !sees.sees(ctx, row.BusinessType) {
			continue
		}
		e, full := entryOf(row), inFull.sees(ctx, row.BusinessType)
		line := Line{Entry: d.masked(&e, full), Amount: amounts[id]}
		if i := slices.IndexFunc(cases, func(c Case) bool { return c.EntryID == id }); i >= 0 {
			c := d.maskedCase(cases[i], full)
			line.Case = &c
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// entryOf is a row as users know it, but for what masked takes away.
func entryOf(r processlog.Row) compensator.Entry {
	return compensator.Entry{ID: r.ID, IdempotentID: r.IdempotentID, BusinessType: r.BusinessType, BatchID: r.BatchID, BusinessID: r.BusinessID,
		BusinessExtID: r.BusinessExtID, UserID: r.UserID, State: r.State, ProcessCount: r.ProcessCount, MaxProcessCount: r.MaxProcessCount,
		CompensateCount: r.CompensateCount, DeliveryCount: r.DeliveryCount, Version: r.Version, Epoch: r.Epoch, NextAt: r.NextAt, EndedBy: r.EndedBy,
		LastError: r.LastError, Erased: r.Erased, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt}
}
