package engine

import (
	"slices"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/refusals"
	"github.com/compensator-go/compensator/internal/releases"
	"github.com/compensator-go/compensator/processlog"
)

// claims takes leases in the database and gives back leases that ran nothing.
type claims struct {
	*Base
	holdings *holdings
	releases *releases.List
	refusals *refusals.List
}

// RefusedRetry is the delay before an entry is offered again that this process must not run now. Examples are a
// suspect, an entry with a pending release, and an entry blocked by an earlier one of its key.
const RefusedRetry = time.Second

// claimed is the result of a claim. asked is the time just before the claim statement was sent. The leases began at
// asked or later, so they are valid at least until asked plus the lease time.
type claimed struct {
	processlog.Claimed
	asked time.Time
	spare []processlog.ID // claimable entries for which no call was left
}

// claim leases wanted entries of a type in the database. It takes as many as fit into the given number of calls. The
// caller starts them.
func (c *claims) claim(t *Type, want []processlog.Wanted, calls int) (claimed, error) {
	return c.claimOnly(t, want, calls, false)
}

// claimOnly works like claim. If stuckOnly is set, it leases only entries on which a handler of this process is stuck.
func (c *claims) claimOnly(t *Type, want []processlog.Wanted, calls int, stuckOnly bool) (claimed, error) {
	if err := c.Held(); err != nil {
		return claimed{}, err
	}
	want, pending := c.releases.Without(want, RefusedRetry)
	want, resting := c.refusals.Aside(t.Name, want)
	if len(want) == 0 {
		return claimed{Claimed: processlog.Claimed{Waiting: pending, Rejected: resting}}, nil
	}
	p := picker{t: t, holdings: c.holdings, want: want, room: calls, stuckOnly: stuckOnly}
	token := processlog.NewToken()
	ctx, cancel := c.Statement()
	defer cancel()
	asked := time.Now() // Read the clock before the claim. The leases already run while the answer is on its way (G16).
	found, err := c.Store.Claim(ctx, want, token, t.Lease, p.accept)
	failpoint.Reach(failpoint.ClaimCommitted)
	c.Saw(problemClaim, err)
	if err == nil {
		err = c.sawClaimed(found.Mine, asked)
	} else {
		c.sawFailed()
	}
	if err != nil {
		// The claim may have committed although it returned an error. Run nothing, and release the leases it may have
		// taken. A lease that ends by itself counts as lost.
		p.keepOnly(nil)
		c.releases.ReleaseUnknown(token, want)
		return claimed{}, err
	}
	p.keepOnly(found.Mine)
	c.noteRefused(t, found)
	found = p.leave(found)
	found.Waiting = append(found.Waiting, pending...)
	found.Rejected = append(found.Rejected, resting...)
	// The spare entries could have been claimed, so they do not count as refused.
	found.Refused = slices.DeleteFunc(found.Refused, func(row processlog.Row) bool { return slices.Contains(p.spare, row.ID) })
	return claimed{found, asked, p.spare}, nil
}

// noteRefused reports the entries that the database refuses to lease. It forgets earlier refusals of entries that are
// leased or gone now.
func (c *claims) noteRefused(t *Type, found processlog.Claimed) {
	c.refusals.Note(refusals.Claim, t.Name, found.Rejected)
	if !c.refusals.Some() {
		return
	}
	ids := slices.Clone(found.Gone)
	for i := range found.Mine {
		ids = append(ids, found.Mine[i].ID)
	}
	c.refusals.Taken(refusals.Claim, t.Name, ids...)
}

// unleased returns the ids as wanted entries without a lease of this process.
func unleased(ids []processlog.ID) []processlog.Wanted {
	want := make([]processlog.Wanted, len(ids))
	for i, id := range ids {
		want[i] = processlog.Wanted{ID: id}
	}
	return want
}
