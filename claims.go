package compensator

import (
	"time"
)

// refusedRetry is when an entry this process must not run now is offered again.
const refusedRetry = time.Second

// suspectAfter is how many leases in a row an entry may lose before it runs one at a time.
const suspectAfter = 2

// claim leases entries of a type in the database, for the caller to start. It takes only what this process
// can run, and of those that may have killed a process one at a time: claiming the others would count
// against them although they never ran.
func (c *Compensator) claim(t *handlerType, want []Wanted) (Claimed, error) {
	d := c.dispatcher
	var suspect EntryID
	accept := func(row *Row) bool {
		switch {
		case row.BusinessType != t.name, row.State == Compensating && !t.compensates():
			return false
		case row.DeliveryCount < suspectAfter, row.DeliveryCount >= crashBudget:
			return true // the latter are taken out, not run
		case !suspect.IsZero():
			return false
		}
		select {
		case d.suspect <- struct{}{}:
			suspect = row.ID
			return true
		default:
			return false
		}
	}
	token := newToken()
	ctx, cancel := c.statement()
	defer cancel()
	found, err := c.store.Claim(ctx, want, token, t.cfg.Lease, accept)
	if !suspect.IsZero() && !holds(found.Mine, suspect) {
		<-d.suspect
	}
	if err != nil {
		c.releaseUnknown(want, token)
	}
	return found, err
}

func holds(rows []Row, id EntryID) bool {
	for i := range rows {
		if rows[i].ID == id {
			return true
		}
	}
	return false
}

// releaseUnknown gives back what a failed claim may have taken after all: its COMMIT may have arrived.
func (c *Compensator) releaseUnknown(want []Wanted, token Token) {
	ids := make([]EntryID, len(want))
	for i, w := range want {
		ids[i] = w.ID
	}
	ctx, cancel := c.statement()
	defer cancel()
	if err := c.store.Release(ctx, ids, token); err != nil {
		c.log.Debug("compensator: release after a failed claim", "err", err) // the leases end by themselves
	}
}

// startClaimed starts claimed rows; token is that of the queue's lease, or 0.
func (c *Compensator) startClaimed(t *handlerType, rows []Row, token int64) {
	attempts := make([]*attempt, len(rows))
	for i, row := range rows {
		lost := lostLeases(&row)
		attempts[i] = &attempt{row: row, token: token, suspect: lost >= suspectAfter && lost < crashBudget}
	}
	c.dispatcher.start(t, attempts)
}
