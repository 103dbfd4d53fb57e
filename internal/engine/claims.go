package engine

import (
	"slices"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/processlog"
)

// claims takes leases in the database, and gives back those that ran nothing.
type claims struct {
	*Base
	holdings         *holdings
	rollbackDetector *rollbackDetector
	pendingReleases  *pendingReleases
	refusals         *refusals
}

// RefusedRetry is when an entry this process must not run now is offered again: one that was refused at its claim, a suspect
// say, one that is owed, one behind another of its key.
const RefusedRetry = time.Second

// claimed is what a claim brought, and when it was asked for: the leases have run since then at the most, however long the
// answer was on its way.
type claimed struct {
	processlog.Claimed
	asked time.Time
	spare []processlog.ID // claimable, and of more calls than there was room for
}

// claim leases as many of the wanted entries of a type in the database as so many calls take, for the caller to start.
func (c *claims) claim(t *Type, want []processlog.Wanted, calls int) (claimed, error) {
	return c.claimOnly(t, want, calls, false)
}

// claimOnly is claim, if hanging of nothing but what a handler of this process is stuck on.
func (c *claims) claimOnly(t *Type, want []processlog.Wanted, calls int, stuckOnly bool) (claimed, error) {
	if err := c.rollbackDetector.refusal(); err != nil {
		return claimed{}, err
	}
	want, pending := c.pendingReleases.without(want)
	want, resting := c.refusals.aside(t.Name, want)
	if len(want) == 0 {
		return claimed{Claimed: processlog.Claimed{Waiting: pending, Rejected: resting}}, nil
	}
	p := picker{t: t, holdings: c.holdings, want: want, room: calls, stuckOnly: stuckOnly}
	token := processlog.NewToken()
	ctx, cancel := c.Statement()
	defer cancel()
	asked := time.Now() // before the claim: its leases run while the answer is on its way (G16)
	found, err := c.Store.Claim(ctx, want, token, t.Lease, p.accept)
	failpoint.Reach(failpoint.ClaimCommitted)
	c.Saw(problemClaim, err)
	// Before anything starts: the claim may have been answered by another server than the last one, which knows less
	// (G19).
	if err == nil {
		err = c.rollbackDetector.verify(found.Mine, asked)
	} else {
		c.rollbackDetector.verifyLater()
	}
	if err != nil {
		// Its COMMIT may have arrived, whatever the error says: nothing runs, and no lease is left behind to count as
		// lost.
		p.keepOnly(nil)
		c.releaseUnknown(want, token)
		return claimed{}, err
	}
	p.keepOnly(found.Mine)
	c.noteRefused(t, found)
	found = p.leave(found)
	found.Waiting = append(found.Waiting, pending...)
	found.Rejected = append(found.Rejected, resting...)
	// Nothing is wrong with what came when there was no room left.
	found.Refused = slices.DeleteFunc(found.Refused, func(row processlog.Row) bool { return slices.Contains(p.spare, row.ID) })
	return claimed{found, asked, p.spare}, nil
}

// noteRefused tells of the entries that the database refuses to lease, and forgets those that it no longer refuses.
func (c *claims) noteRefused(t *Type, found processlog.Claimed) {
	c.refusals.note(problemRefusedClaim, t.Name, found.Rejected)
	if !c.refusals.some.Load() {
		return
	}
	ids := slices.Clone(found.Gone)
	for i := range found.Mine {
		ids = append(ids, found.Mine[i].ID)
	}
	c.refusals.taken(problemRefusedClaim, t.Name, ids...)
}

// unleased asks for entries that hold no lease of ours.
func unleased(ids []processlog.ID) []processlog.Wanted {
	want := make([]processlog.Wanted, len(ids))
	for i, id := range ids {
		want[i] = processlog.Wanted{ID: id}
	}
	return want
}

// release undoes a claim that ran nothing, and offers the entries to whoever is free: one that is owed once it is paid, for
// until then, or until its lease has ended, nobody can claim it.
func (c *claims) release(token processlog.Token, entries ...processlog.QueueEntry) {
	c.pendingReleases.release(entries, true, token)
}

// releaseUnknown gives back what a failed claim may have taken after all: its COMMIT may have arrived.
func (c *claims) releaseUnknown(want []processlog.Wanted, token processlog.Token) {
	entries := make([]processlog.QueueEntry, len(want))
	for i, w := range want {
		entries[i].ID = w.ID
	}
	c.pendingReleases.release(entries, false, token)
}
