package engine

import (
	"slices"

	"github.com/compensator-go/compensator/processlog"
)

// picker decides for each claimable row whether the claim takes it. It takes only rows that this process can run or
// must count. It admits few suspects at a time. A suspect is an entry that may have crashed a process. Its lease would
// count as lost even if it never ran.
//
// The store calls accept while it holds the row locks. accept therefore reads only memory and does not block.
type picker struct {
	t         *Type
	holdings  *holdings
	want      []processlog.Wanted
	room      int              // calls that may still begin
	seats     [companies]int   // free seats in the shared calls that have begun
	stuckOnly bool             // take only entries on which a handler of this process is stuck
	spare     []processlog.ID  // entries that came when no seat was left
	suspects  []processlog.Row // accepted rows that have lost leases
	counted   []processlog.ID  // entries claimed only to count a lost lease, not to run
}

func (p *picker) accept(row *processlog.Row) bool {
	// Check for a free seat first. A suspect without a seat must not take a place in quarantine.
	with := p.t.company(row.State, p.lost(row))
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

// sit takes a seat for an entry. The seat is in a shared call that has begun, or in a new call.
func (p *picker) sit(with Company) {
	switch {
	case p.seats[with] > 0:
		p.seats[with]--
		return
	case with != Alone:
		p.seats[with] = p.t.Seats() - 1
	}
	p.room--
}

// mayHave reports whether this process may claim a row.
//
//   - An entry that this process holds is skipped.
//   - An entry on which a handler of this process is stuck is left to other processes for one lease time. After that it
//     is claimed and counted, but not run.
//   - An entry that has lost three leases is also claimed only to be counted. This leaves one more lease time to a
//     process that has a success to store and cannot reach the database.
//   - An entry that has lost more leases is claimed to be dead-lettered.
func (p *picker) mayHave(row *processlog.Row) bool {
	held, stuck := p.holdings.holds(row)
	switch {
	// The handler has returned meanwhile. A claim would now run the entry, but it has no slot.
	case p.stuckOnly && !stuck:
		return false
	// The entry runs here already, or its success waits to be stored (G8, G16). A stuck entry is left to other processes
	// for one lease time. That time runs from the end of its lease or from its due time, whichever is later.
	case held != nil && !stuck, stuck && min(-row.LeaseLeft, -row.DueIn) < p.t.Lease:
		return false
	// The claim dead-letters this entry without running it, so it needs no place in quarantine.
	case row.DeliveryCount > crashBudget:
		return true
	case stuck, row.DeliveryCount == crashBudget:
		p.counted = append(p.counted, row.ID)
		return true
	}
	lost := p.lost(row)
	accepted := p.t.accepts(row, lost)
	if accepted && lost >= SuspectAfter {
		p.suspects = append(p.suspects, *row)
	}
	return accepted
}

// lost returns how many consecutive leases of the row ended without an outcome. LostLeases does the same for a row
// after its claim. A lease that this process inserted the entry with and now takes over has not been lost, so it does
// not count.
func (p *picker) lost(row *processlog.Row) int {
	if row.Version == 0 && row.DeliveryCount > 0 && row.Token != (processlog.Token{}) && slices.Contains(p.want, processlog.Wanted{ID: row.ID, Token: row.Token}) {
		return row.DeliveryCount - 1
	}
	return row.DeliveryCount
}

// keepOnly tells the admissions which accepted suspects were not claimed.
func (p *picker) keepOnly(mine []processlog.Row) {
	for i := range p.suspects {
		s := &p.suspects[i]
		if !slices.ContainsFunc(mine, func(row processlog.Row) bool { return row.ID == s.ID }) {
			p.t.left(s, p.lost(s), NotClaimed)
		}
	}
}

// Some entries were claimed only to count their lost leases. leave moves these entries from Mine to Waiting, where they wait
// for the end of their new lease. Elapsed time alone would not prove that the database accepted writes in the meantime. The
// written lease proves it.
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
