package ui

import (
	"slices"

	"github.com/compensator-go/compensator/admin"
)

// changes are what may be done to entries, what is done most first.
var changes = []admin.Right{admin.Requeue, admin.SettleManually, admin.Compensate, admin.Reschedule, admin.Cancel, admin.Complete}

// What may be done beside the Admin's actions on entries.
const (
	doTake     = "take case"
	doAssign   = "assign case"
	doGiveBack = "give back"
	doNote     = "note"
	doReveal   = "see content"
	doPause    = "pause"
	doResume   = "resume"
)

// actionsOn are the actions that lead somewhere for any of these, and that somebody may do to it.
func (rq *request) actionsOn(lines []admin.Line) []string {
	var may []string
	for _, right := range changes {
		if slices.ContainsFunc(lines, func(l admin.Line) bool { return rq.s.admin.Offers(rq.ctx, rq.Actor, right, l) }) {
			may = append(may, string(right))
		}
	}
	return may
}

// onCases are what somebody may do about whose the open cases of any of these are.
func (rq *request) onCases(lines []admin.Line) []string {
	var take, giveBack, assign bool
	for _, l := range lines {
		if !open(l.Case) {
			continue
		}
		on := admin.Subject{Type: l.Entry.BusinessType, Amount: l.Amount, Count: 1}
		mine := l.Case.Owner == rq.Actor.ID
		take = take || !mine && rq.May(admin.TakeCase, on) // what is known is not asked again, of hundreds of rows
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

// open reports whether there is a case, and it is open.
func open(c *admin.Case) bool { return c != nil && c.ClosedAt.IsZero() }

// unsure reports whether nobody knows what an entry's attempts have done.
func unsure(c *admin.Case) bool {
	return open(c) && c.Kind == admin.CaseUnknown
}
