package compensator

import (
	"slices"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/processlog"
)

// refusedRetry is when an entry this process must not run now is offered again.
const refusedRetry = time.Second

// claimed is what a claim brought, and when it was asked for: the leases have run since then at the most, however long the
// answer was on its way.
type claimed struct {
	Claimed
	asked time.Time
}

// claim leases up to limit of the wanted entries of a type in the database, for the caller to start.
func (c *Compensator) claim(t *handlerType, want []Wanted, limit int) (claimed, error) {
	return c.claimOnly(t, want, limit, false)
}

// claimOnly is claim, if hanging of nothing but what a handler of this process is stuck on.
func (c *Compensator) claimOnly(t *handlerType, want []Wanted, limit int, hanging bool) (claimed, error) {
	if err := c.witness.refusal(); err != nil {
		return claimed{}, err
	}
	want, owed := c.debts.without(want)
	if len(want) == 0 {
		return claimed{Claimed: Claimed{Waiting: owed}}, nil
	}
	p := picker{t: t, d: c.dispatcher, want: want, room: limit, hanging: hanging}
	token := processlog.NewToken()
	ctx, cancel := c.statement()
	defer cancel()
	asked := time.Now()
	found, err := c.store.Claim(ctx, want, token, t.cfg.Lease, p.accept)
	failpoint.Reach(failpoint.ClaimCommitted)
	c.saw(troubleClaim, err)
	if err == nil && !c.witness.trusts(found.Mine, asked) {
		err = c.witness.refusal()
	} else if err != nil {
		c.witness.doubt()
	}
	if err != nil {
		p.settle(nil)
		c.releaseUnknown(want, token)
		return claimed{}, err
	}
	p.settle(found.Mine)
	found = p.leave(found)
	found.Waiting = append(found.Waiting, owed...)
	found.Refused = found.Refused[:max(0, len(found.Refused)-p.spare)] // nothing is wrong with what came too late
	return claimed{found, asked}, nil
}

// picker takes of the claimable entries only what this process can do something with, and of those that may have killed
// a process only a few, or one, at a time: claiming the others would count against them although they never ran.
type picker struct {
	t        *handlerType
	d        *dispatcher
	want     []Wanted
	room     int
	hanging  bool      // nothing but what a handler of this process is stuck on
	spare    int       // came when there was no room left
	suspects []suspect // that were let in
	counted  []EntryID // claimed to be counted, not run
}

func (p *picker) accept(row *Row) bool {
	if p.room == 0 {
		p.spare++
		return false
	}
	if row.BusinessType != p.t.name || row.State == Compensating && !p.t.compensates() || !p.mayHave(row) {
		return false
	}
	p.room--
	return true
}

// mayHave: what this process holds comes first. What a handler of this process is stuck on is left to others for a lease
// from when it is due and free, and then counted, not run. So is the last lease of an entry that has lost three: a process
// that lives and could not reach the database may have a success to store, which finds the entry open still.
func (p *picker) mayHave(row *Row) bool {
	held, stuck := p.d.holds(row)
	switch {
	case p.hanging && !stuck:
		return false
	case held != nil && !stuck, stuck && min(-row.LeaseLeft, -row.DueIn) < p.t.cfg.Lease:
		return false
	case row.DeliveryCount > crashBudget:
		return true
	case stuck, row.DeliveryCount == crashBudget:
		p.counted = append(p.counted, row.ID)
		return true
	}
	lost := p.lost(row)
	return lost < suspectAfter || p.admit(row.ID, lost)
}

// suspect is an entry that was given a place in quarantine.
type suspect struct {
	id   EntryID
	lost int
}

// lost counts the leases in a row that ended with no outcome. One that the entry was born with here is not over: it is taken
// on, however late the commit was.
func (p *picker) lost(row *Row) int {
	if row.Version == 0 && row.DeliveryCount > 0 && row.Token != (Token{}) && slices.Contains(p.want, Wanted{ID: row.ID, Token: row.Token}) {
		return row.DeliveryCount - 1
	}
	return row.DeliveryCount
}

// admit takes a place in quarantine.
func (p *picker) admit(id EntryID, lost int) bool {
	if !p.d.quarantine.enter(p.t, lost) {
		return false
	}
	p.suspects = append(p.suspects, suspect{id, lost})
	return true
}

// settle gives the places of those back that were not claimed after all.
func (p *picker) settle(mine []Row) {
	for _, s := range p.suspects {
		if !slices.ContainsFunc(mine, func(row Row) bool { return row.ID == s.id }) {
			p.d.quarantine.leave(p.t, s.lost)
		}
	}
}

// leave makes of what was claimed to be counted something that waits for the end of its lease, as if somebody else held
// it. A lease that a claim has written is proof that the database took writes meanwhile, which time that has passed is not.
func (p *picker) leave(found Claimed) Claimed {
	if len(p.counted) == 0 {
		return found
	}
	found.Mine = slices.DeleteFunc(found.Mine, func(row Row) bool {
		counted := slices.Contains(p.counted, row.ID)
		if counted {
			found.Waiting = append(found.Waiting, Scheduled{ID: row.ID, In: p.t.cfg.Lease})
		}
		return counted
	})
	return found
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

// startClaimed starts rows that one write of ours has leased, as a statement tells that was sent when asked says; token is
// that of the queue's lease, or 0. What comes too late for this Run, or for its lease, is given back.
func (c *Compensator) startClaimed(t *handlerType, rows []Row, asked time.Time, token int64) {
	attempts := make([]*attempt, 0, len(rows))
	for _, row := range rows {
		a := &attempt{t: t, row: row, token: token, leaseEnd: asked.Add(row.LeaseLeft)}
		lost := lostLeases(&row)
		if lost > crashBudget {
			c.takeOut(a)
			continue
		}
		a.suspect.Store(lost >= suspectAfter)
		attempts = append(attempts, a)
	}
	if refused := c.dispatcher.start(t, attempts); len(refused) > 0 {
		c.giveBackClaimed(t, refused)
	}
}

// takeOut ends an entry whose leases keep ending with no outcome.
func (c *Compensator) takeOut(a *attempt) {
	failpoint.Reach(failpoint.CrashesCounted)
	stuck, _ := c.dispatcher.holds(&a.row)
	c.settleLane.Add(settlement{a: a, outcome: a.t.crashed(&a.row, stuck), takesOut: true})
	c.free(a.t, 1)
}

// withdraw leaves out of a batch what would take out entries whose stuck handlers have returned: what they report comes
// first.
func (c *Compensator) withdraw(batch []settlement) []settlement {
	return slices.DeleteFunc(batch, func(s settlement) bool {
		if !s.takesOut {
			return false
		}
		held, stuck := c.dispatcher.holds(&s.a.row)
		return held != nil && !stuck
	})
}

func (c *Compensator) giveBackClaimed(t *handlerType, attempts []*attempt) {
	entries := make([]Announcement, len(attempts))
	for i, a := range attempts {
		entries[i] = Announcement{BusinessType: t.name, ID: a.row.ID}
	}
	c.free(t, len(attempts))
	c.release(attempts[0].row.Token, entries...)
	for _, a := range attempts {
		c.dispatcher.leaveQuarantine(a)
	}
}
