package ui

import (
	"slices"

	"github.com/compensator-go/compensator/admin"
)

// changes lists the actions on entries, the most common first.
var changes = []admin.Right{admin.Requeue, admin.SettleManually, admin.Compensate, admin.Reschedule, admin.Cancel, admin.Complete}

// Actions of the pages that are not in changes.
const (
	doTake       = "take case"
	doAssign     = "assign case"
	doGiveBack   = "give back"
	doNote       = "note"
	doReveal     = "see content"
	doPause      = "pause"
	doResume     = "resume"
	doLimit      = "change limit"
	doResetLimit = "reset limit"
)

// actionsOn returns the actions that the actor may do, and that would change at least one of these lines.
func (rq *request) actionsOn(lines []admin.Line) []string {
	var may []string
	for _, right := range changes {
		if slices.ContainsFunc(lines, func(l admin.Line) bool { return rq.s.admin.Offers(rq.ctx, rq.Actor, right, l) }) {
			may = append(may, string(right))
		}
	}
	return may
}

// onCases returns the actions on owners of cases that the actor may do for at least one of the open cases.
func (rq *request) onCases(lines []admin.Line) []string {
	var take, giveBack, assign bool
	for _, l := range lines {
		if !open(l.Case) {
			continue
		}
		on := admin.Subject{Type: l.Entry.BusinessType, Amount: l.Amount, Count: 1}
		mine := l.Case.Owner == rq.Actor.ID
		take = take || !mine && rq.May(admin.TakeCase, on) // Call Access only until the answer is known, because a page may have hundreds of rows.
		giveBack = giveBack || mine && (rq.May(admin.TakeCase, on) || rq.May(admin.AssignCase, on))
		assign = assign || rq.May(admin.AssignCase, on)
	}
	var may []string
	for _, do := range []struct {
		name string
		may  bool
	}{{doTake, take}, {doGiveBack, giveBack}, {doAssign, assign}} {
		if do.may {
			may = append(may, do.name)
		}
	}
	return may
}

// open reports whether c is an open case.
func open(c *admin.Case) bool { return c != nil && c.ClosedAt.IsZero() }

// unsure reports whether c is an open case of an entry whose outcome is unknown.
func unsure(c *admin.Case) bool {
	return open(c) && c.Kind == admin.CaseUnknown
}
