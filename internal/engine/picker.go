package engine

import (
	"slices"

	"github.com/compensator-go/compensator/processlog"
)

// picker takes of the claimable entries only what this process can do something with, and of those that may have killed
// a process only a few, or one, at a time: claiming the others would count against them although they never ran.
// It is asked while the rows are locked, so it looks into maps and waits for nobody.
type picker struct {
	t         *Type
	holdings  *holdings
	want      []processlog.Wanted
	room      int              // calls that may begin
	seats     [companies]int   // left in the calls that have begun for several
	stuckOnly bool             // nothing but what a handler of this process is stuck on
	spare     []processlog.ID  // came when there was no room left
	suspects  []processlog.Row // accepted, and have lost leases
	counted   []processlog.ID  // claimed to be counted, not run
}

func (p *picker) accept(row *processlog.Row) bool {
	// First, so that no suspect takes a place in quarantine for nothing.
	with := alone
	if p.t.RunBatch != nil {
		with = p.t.company(row.State, p.lost(row))
	}
	if p.room == 0 && p.seats[with] == 0 {
		p.spare = append(p.spare, row.ID)
		return false
	}
	if row.BusinessType != p.t.Name || p.t.Paused() || row.State == processlog.Compensating && !p.t.compensates() || !p.mayHave(row) {
		return false
	}
	p.sit(with)
	return true
}

// sit gives an entry its seat: in a call that has begun with its company, or in a call of its own.
func (p *picker) sit(with company) {
	switch {
	case p.seats[with] > 0:
		p.seats[with]--
		return
	case with != alone:
		p.seats[with] = p.t.Seats() - 1
	}
	p.room--
}

// mayHave: what this process holds comes first. What a handler of this process is stuck on is left to others for a lease
// from when it is due and free, and then counted, not run. So is the last lease of an entry that has lost three: a process
// that lives and could not reach the database may have a success to store, which finds the entry open still.
func (p *picker) mayHave(row *processlog.Row) bool {
	held, stuck := p.holdings.holds(row)
	switch {
	// The handler has returned meanwhile: it would be claimed to run, and no slot was taken for that.
	case p.stuckOnly && !stuck:
		return false
	// Run beside itself, or taken for lost while its success waits to be stored (G8, G16). Of a stuck one, free since
	// its lease has ended or due since somebody has set it: the shorter of both is how long others have had for it.
	case held != nil && !stuck, stuck && min(-row.LeaseLeft, -row.DueIn) < p.t.Lease:
		return false
	// It is claimed to be taken out, and runs nothing: it needs no place in quarantine.
	case row.DeliveryCount > crashBudget:
		return true
	case stuck, row.DeliveryCount == crashBudget:
		p.counted = append(p.counted, row.ID)
		return true
	}
	lost := p.lost(row)
	accepted := p.t.Accepts(row, lost)
	if accepted && lost >= SuspectAfter {
		p.suspects = append(p.suspects, *row)
	}
	return accepted
}

// lost counts the leases in a row that ended with no outcome, as lostLeases does of a row that this claim has
// counted. One that the entry was born with here is not over: it is taken on, however late the commit was.
func (p *picker) lost(row *processlog.Row) int {
	if row.Version == 0 && row.DeliveryCount > 0 && row.Token != (processlog.Token{}) && slices.Contains(p.want, processlog.Wanted{ID: row.ID, Token: row.Token}) {
		return row.DeliveryCount - 1
	}
	return row.DeliveryCount
}

// keepOnly tells the admissions which of the accepted entries were not claimed after all.
func (p *picker) keepOnly(mine []processlog.Row) {
	for i := range p.suspects {
		s := &p.suspects[i]
		if !slices.ContainsFunc(mine, func(row processlog.Row) bool { return row.ID == s.ID }) {
			p.t.left(s, p.lost(s), NotClaimed)
		}
	}
}

// leave makes of what was claimed to be counted something that waits for the end of its lease, as if somebody else held
// it. A lease that a claim has written is proof that the database took writes meanwhile, which time that has passed is not.
func (p *picker) leave(found processlog.Claimed) processlog.Claimed {
	if len(p.counted) == 0 {
		return found
	}
	found.Mine = slices.DeleteFunc(found.Mine, func(row processlog.Row) bool {
		counted := slices.Contains(p.counted, row.ID)
		if counted {
			found.Waiting = append(found.Waiting, processlog.Scheduled{ID: row.ID, In: p.t.Lease})
		}
		return counted
	})
	return found
}
