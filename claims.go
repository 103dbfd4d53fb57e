package compensator

import (
	"slices"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
)

// refusedRetry is when an entry this process must not run now is offered again.
const refusedRetry = time.Second

// suspectAfter is how many leases in a row an entry may lose before it runs one at a time.
const suspectAfter = 2

// claim leases up to limit of the wanted entries of a type in the database, for the caller to start.
func (c *Compensator) claim(t *handlerType, want []Wanted, limit int) (Claimed, error) {
	p := picker{t: t, room: limit, suspects: c.dispatcher.suspect}
	token := newToken()
	ctx, cancel := c.statement()
	defer cancel()
	found, err := c.store.Claim(ctx, want, token, t.cfg.Lease, p.accept)
	failpoint.Reach(failpoint.ClaimCommitted)
	if err != nil {
		p.settle(nil)
		c.releaseUnknown(want, token)
		return Claimed{}, err
	}
	p.settle(found.Mine)
	found.Refused = found.Refused[:max(0, len(found.Refused)-p.spare)] // nothing is wrong with what came too late
	return found, nil
}

// picker takes of the claimable entries only what this process can run, and of those that may have killed a
// process one at a time: claiming the others would count against them although they never ran.
type picker struct {
	t        *handlerType
	room     int
	spare    int // came when there was no room left
	suspects chan struct{}
	suspect  EntryID // the one that was let in
}

func (p *picker) accept(row *Row) bool {
	if p.room == 0 {
		p.spare++
		return false
	}
	if row.BusinessType != p.t.name || row.State == Compensating && !p.t.compensates() {
		return false
	}
	dangerous := row.DeliveryCount >= suspectAfter && row.DeliveryCount < crashBudget // beyond, it is taken out, not run
	if dangerous && !p.admit(row.ID) {
		return false
	}
	p.room--
	return true
}

func (p *picker) admit(id EntryID) bool {
	if !p.suspect.IsZero() {
		return false
	}
	select {
	case p.suspects <- struct{}{}:
		p.suspect = id
		return true
	default:
		return false
	}
}

// settle gives the lane back when the suspect was not claimed after all.
func (p *picker) settle(mine []Row) {
	claimed := slices.ContainsFunc(mine, func(row Row) bool { return row.ID == p.suspect })
	if !p.suspect.IsZero() && !claimed {
		<-p.suspects
	}
}

// unleased asks for entries that hold no lease of ours.
func unleased(ids []EntryID) []Wanted {
	want := make([]Wanted, len(ids))
	for i, id := range ids {
		want[i] = Wanted{ID: id}
	}
	return want
}

// releaseUnknown gives back what a failed claim may have taken after all: its COMMIT may have arrived.
func (c *Compensator) releaseUnknown(want []Wanted, token Token) {
	ids := make([]EntryID, len(want))
	for i, w := range want {
		ids[i] = w.ID
	}
	c.releaseIDs(ids, token)
}

// startClaimed starts claimed rows, which one write of ours has leased; token is that of the queue's lease, or
// 0. What was claimed too late for this Run is given back.
func (c *Compensator) startClaimed(t *handlerType, rows []Row, token int64) {
	if len(rows) == 0 {
		return
	}
	attempts := make([]*attempt, len(rows))
	for i, row := range rows {
		lost := lostLeases(&row)
		attempts[i] = &attempt{row: row, token: token}
		attempts[i].suspect.Store(lost >= suspectAfter && lost < crashBudget)
	}
	if !c.dispatcher.start(t, attempts) {
		c.giveBackClaimed(t, attempts)
	}
}

func (c *Compensator) giveBackClaimed(t *handlerType, attempts []*attempt) {
	entries := make([]Announcement, len(attempts))
	for i, a := range attempts {
		entries[i] = Announcement{BusinessType: t.name, ID: a.row.ID}
		c.dispatcher.leaveLane(a)
	}
	c.free(t, len(attempts))
	c.release(attempts[0].row.Token, entries...)
}
