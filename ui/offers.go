package ui

import (
	"slices"

	"github.com/compensator-go/compensator/admin"
)

var changes = []admin.Right{admin.Requeue, admin.SettleManually, admin.Compensate, admin.Reschedule, admin.Cancel, admin.Complete}

const (
	doTake        = "take case"
	doAssign      = "assign case"
	doGiveBack    = "give back"
	doNote        = "note"
	doReveal      = "see content"
	doPause       = "pause"
	doChangePause = "change pause" // only in the audit log: a person has changed an existing pause
	doStop        = "stop"         // only in the audit log: a person has stopped an action on several entries
	doResume      = "resume"
	doLimit       = "change limit"
	doResetLimit  = "reset limit"
)

type allForm struct {
	AllActions  []string    // actions on all entries of the search; empty: the page offers none of these actions
	AllFields   []formField // fields of the search
	AllN        int         // number of entries that match the search; 0: unknown
	ChooseState bool        // whether AllActions is empty because the search names no state
}

func (rq *request) offeredActions(lines []admin.Line) []string {
	var actions []string
	for _, right := range changes {
		if slices.ContainsFunc(lines, func(l admin.Line) bool { return rq.s.admin.Offers(rq.ctx, rq.Actor, right, l) }) {
			actions = append(actions, string(right))
		}
	}
	return actions
}

func (rq *request) caseActions(lines []admin.Line) []string {
	var canTake, canGiveBack, canAssign bool
	for _, l := range lines {
		if !isOpen(l.Case) {
			continue
		}
		subject := admin.Subject{Type: l.Entry.BusinessType, Amount: l.Amount, Count: 1}
		isOwner := l.Case.Owner == rq.Actor.ID
		canTake = canTake || !isOwner && rq.May(admin.TakeCase, subject) // Call Access only until the answer is known, because a page may have hundreds of rows.
		canGiveBack = canGiveBack || isOwner && (rq.May(admin.TakeCase, subject) || rq.May(admin.AssignCase, subject))
		canAssign = canAssign || rq.May(admin.AssignCase, subject)
	}
	var actions []string
	for _, do := range []struct {
		name      string
		isOffered bool
	}{{doTake, canTake}, {doGiveBack, canGiveBack}, {doAssign, canAssign}} {
		if do.isOffered {
			actions = append(actions, do.name)
		}
	}
	return actions
}

func isOpen(c *admin.Case) bool { return c != nil && c.ClosedAt.IsZero() }

func isUncertain(c *admin.Case) bool {
	return isOpen(c) && c.Kind == admin.CaseUnknown
}
