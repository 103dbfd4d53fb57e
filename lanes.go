package compensator

import (
	"context"
	"slices"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/groupcommit"
	"github.com/compensator-go/compensator/internal/grouped"
	"github.com/compensator-go/compensator/processlog"
)

// statementTimeout bounds each statement and Redis call of the lanes.
const (
	statementTimeout = 10 * time.Second
	queueTimeout     = 2 * time.Second
)

// settlePace is how long an outcome waits for others at most: its handler has left its slot already, and nobody waits
// for it.
const settlePace = 5 * time.Millisecond

// openLanes makes the batchers an entry passes on its way. Callers hand over and go on; what piles up while
// a statement runs is the next statement.
func (c *Compensator) openLanes() {
	c.resolveLane = &groupcommit.Batcher[freshEntry]{Max: processlog.MaxRows, Workers: 1, Bound: 100_000, Flush: c.resolveFresh}
	c.verifyLane = &groupcommit.Batcher[freshEntry]{Max: processlog.MaxRows, Workers: 2, Flush: c.verifyFresh}
	c.claimLane = &groupcommit.Batcher[freshEntry]{Max: processlog.MaxRows, Workers: 1, Flush: c.claimFresh}
	c.announceLane = &groupcommit.Batcher[Announcement]{Max: 1000, Workers: 1, Bound: 100_000, Flush: c.announceBatch}
	c.moveLane = &groupcommit.Batcher[Announcement]{Max: 1000, Workers: 1, Bound: 100_000, Flush: c.moveBatch}
	c.settleLane = &groupcommit.Batcher[settlement]{Max: processlog.MaxRows, Workers: 2, Pace: groupcommit.Pace{Most: settlePace}, Flush: c.settleBatch}
	c.slowLane = &groupcommit.Batcher[settlement]{Max: processlog.MaxRows, Workers: 1, Flush: c.settleSlowly}
	c.ackLane = &groupcommit.Batcher[ack]{Max: 1000, Workers: 1, Bound: 100_000, Flush: c.ackBatch}
	c.debtLane = &groupcommit.Batcher[debt]{Max: 100, Workers: 1, Flush: c.payDebts}
	c.checkLane = &groupcommit.Batcher[struct{}]{Max: 1000, Workers: 1, Flush: func([]struct{}) { c.witness.check(nil) }}
}

func (c *Compensator) statement() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.work, statementTimeout)
}

func (c *Compensator) queueCall() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.work, queueTimeout)
}

// route sends entries whose transaction has committed on their way: born claimed to be read back, due now
// and with a free slot here to be claimed by id, all others to the queue. It keeps fresh.
func (c *Compensator) route(fresh []freshEntry) {
	announce := fresh[:0]
	var verify, claim []freshEntry
	for _, f := range fresh {
		t := c.accepting(f.businessType)
		switch {
		case f.credit == nil && t == nil, f.credit == nil && time.Until(f.due) > 0:
			announce = append(announce, f)
		case f.id.IsZero():
			c.resolveOrDrop(f)
		case f.credit != nil:
			verify = append(verify, f)
		case !c.behind() && t.slots.take(1) == 1:
			claim = append(claim, f)
		default:
			announce = append(announce, f)
		}
	}
	c.verifyLane.Add(verify...)
	c.claimLane.Add(claim...)
	c.witness.recorded(announce)
	c.announceFresh(announce)
}

// announceFresh tells the queue of entries that come due within its horizon; the reconciler tells it of the
// rest in time.
func (c *Compensator) announceFresh(fresh []freshEntry) {
	items := make([]Announcement, 0, len(fresh))
	for _, f := range fresh {
		in := time.Until(f.due)
		switch {
		case !c.announces(f.businessType, in):
		case f.id.IsZero():
			c.resolveOrDrop(f)
		default:
			items = append(items, Announcement{BusinessType: f.businessType, ID: f.id, In: in})
		}
	}
	c.announce(items)
}

// announces reports whether the queue wants to know of an entry: not beyond its horizon, and a wheel only
// of types that run here.
func (c *Compensator) announces(businessType string, in time.Duration) bool {
	if in > c.cfg.Horizon+c.cfg.ReconcileInterval {
		return false
	}
	return !c.local || c.accepting(businessType) != nil
}

func (c *Compensator) resolveOrDrop(f freshEntry) {
	if !c.resolveLane.Add(f) {
		c.giveBack(f) // more than anybody can work off: the database keeps it, and the reconciler finds it
	}
}

// giveBack frees the slot of an entry that will not run from here.
func (c *Compensator) giveBack(f freshEntry) {
	if f.credit != nil {
		c.cancelCredit(f.businessType, f.credit)
	}
}

// cancelCredit frees the slots a credit holds, and free slots that were taken; entries may be waiting for them.
func (c *Compensator) cancelCredit(businessType string, credit *credit) {
	t := c.types.named(businessType)
	t.slots.use(credit, 0)
	c.scanner.freed(t)
}

func (c *Compensator) free(t *handlerType, n int) {
	t.slots.release(n)
	c.scanner.freed(t)
}

// resolveFresh asks for the ids of a bulk insert, now that its rows are committed.
func (c *Compensator) resolveFresh(batch []freshEntry) {
	keys := make([]string, len(batch))
	for i, f := range batch {
		keys[i] = f.key
	}
	ctx, cancel := c.statement()
	defer cancel()
	ids, err := c.store.IDs(ctx, nil, keys)
	c.saw(troubleReadBack, err)
	var found, unfound []freshEntry
	for _, f := range batch {
		if f.id = ids[f.key]; f.id.IsZero() {
			c.giveBack(f) // the reconciler's, if it is there
			unfound = append(unfound, f)
			continue
		}
		found = append(found, f)
	}
	failpoint.Reach(failpoint.IDsResolved)
	c.route(found)
	if err == nil {
		c.reportMissing(unfound)
	}
}

// verifyFresh reads born-claimed rows back. What the caller inserted is not proof that it was committed: a
// savepoint may have been rolled back, a deadlock swallowed. Only what is there, untouched, is run.
func (c *Compensator) verifyFresh(batch []freshEntry) {
	ids := make([]EntryID, len(batch))
	for i, f := range batch {
		ids[i] = f.id
	}
	ctx, cancel := c.statement()
	defer cancel()
	asked := time.Now()
	rows, err := c.store.Load(ctx, ids)
	c.saw(troubleReadBack, err)
	c.witness.sawRead(rows, asked)
	failpoint.Reach(failpoint.EntryReadBack)
	byID := make(map[EntryID]*Row, len(rows))
	for i := range rows {
		byID[rows[i].ID] = &rows[i]
	}
	var unfound []freshEntry
	for _, f := range batch {
		c.startFresh(f, byID[f.id], asked)
		if byID[f.id] == nil {
			unfound = append(unfound, f)
		}
	}
	if err == nil {
		c.reportMissing(unfound)
	}
}

// startFresh runs a verified row, which was asked for when asked says. One that was committed too late for its lease, or
// whose credit lapsed, is claimed anew.
func (c *Compensator) startFresh(f freshEntry, row *Row, asked time.Time) {
	t := c.types.named(f.businessType)
	if row == nil || row.Version != 0 || row.Token != f.token || row.State != Pending {
		c.giveBack(f)
		return
	}
	intime := time.Until(asked.Add(row.LeaseLeft)) >= t.cfg.Lease/2
	switch slot := t.slots.use(f.credit, 1); {
	case !c.accepts.Load(), c.witness.stopped() != nil:
		if slot {
			c.free(t, 1)
		}
		c.release(f.token, Announcement{BusinessType: t.name, ID: row.ID})
	case slot && intime:
		c.startClaimed(t, []Row{*row}, asked, 0)
	case slot || t.slots.take(1) == 1:
		c.claimLane.Add(f)
	default:
		c.release(f.token, Announcement{BusinessType: t.name, ID: row.ID})
	}
}

// claimFresh claims committed entries by id; each holds a slot.
func (c *Compensator) claimFresh(batch []freshEntry) {
	byType := grouped.By(batch, func(f freshEntry) string { return f.businessType })
	for _, name := range byType.Order {
		list := byType.Groups[name]
		want := make([]Wanted, len(list))
		for i, f := range list {
			want[i] = Wanted{ID: f.id, Token: f.token}
			if f.credit == nil {
				want[i].Token = Token{} // not born claimed: nothing of ours to take over
			}
		}
		t := c.types.named(name)
		found, err := c.claim(t, want, len(want))
		if err != nil {
			c.free(t, len(want))
			continue // the reconciler finds them
		}
		failpoint.Reach(failpoint.FreshClaimed)
		c.free(t, len(want)-len(found.Mine))
		c.announceWaiting(t, found.Claimed)
		c.startClaimed(t, found.Mine, found.asked, 0)
		c.reportMissing(slices.DeleteFunc(list, func(f freshEntry) bool { return !slices.Contains(found.Gone, f.id) }))
	}
}

// announceWaiting tells the queue of entries that could not be claimed yet.
func (c *Compensator) announceWaiting(t *handlerType, found Claimed) {
	var items []Announcement
	for _, w := range found.Waiting {
		items = append(items, Announcement{BusinessType: t.name, ID: w.ID, In: w.In})
	}
	for _, r := range found.Refused {
		items = append(items, Announcement{BusinessType: r.BusinessType, ID: r.ID, In: refusedRetry})
	}
	c.announce(items)
}

// announce hands items to the queue.
func (c *Compensator) announce(items []Announcement) { c.handOver(c.announceLane, items) }

func (c *Compensator) handOver(lane *groupcommit.Batcher[Announcement], items []Announcement) {
	if len(items) == 0 || !c.health.up() {
		return // the database is polled, and the queue is rebuilt when it is back
	}
	if !lane.Add(items...) {
		c.health.forgot() // too many to keep in memory
	}
}

func (c *Compensator) announceBatch(batch []Announcement) {
	ctx, cancel := c.queueCall()
	defer cancel()
	_ = c.announceNow(ctx, batch, c.types.leaseRange().longest) // the queue's health has been told
}

// moveBatch tells of entries whose due moment somebody has moved: the place the queue knows, which may be a
// lease's end, is no longer worth keeping.
func (c *Compensator) moveBatch(batch []Announcement) {
	ctx, cancel := c.queueCall()
	defer cancel()
	_ = c.announceNow(ctx, batch, 0)
}

// announceNow tells the queue, and whoever sleeps for these entries.
func (c *Compensator) announceNow(ctx context.Context, batch []Announcement, maxLease time.Duration) error {
	failpoint.Reach(failpoint.AnnounceNext)
	heads, lost, err := c.queue.Announce(ctx, batch, AnnounceRules{MaxLease: maxLease, Limit: c.cfg.QueueLimit, Near: c.near()})
	failpoint.Reach(failpoint.Announced)
	c.health.saw(err)
	if err != nil {
		return err
	}
	c.losses.add(lost...)
	for _, a := range batch {
		c.scanner.expect(a.BusinessType, a.In)
	}
	elsewhere := slices.DeleteFunc(heads, func(head string) bool {
		t := c.accepting(head)
		return t != nil && c.scanner.canClaim(t)
	})
	if len(elsewhere) > 0 && !c.local {
		c.saw(troubleNotify, c.queue.Notify(ctx, elsewhere)) // a hint; every scanner looks by itself before long
	}
	return nil
}

// release undoes a claim that ran nothing, and offers the entry to whoever is free.
func (c *Compensator) release(token Token, entries ...Announcement) {
	ids := make([]EntryID, len(entries))
	for i, e := range entries {
		ids[i] = e.ID
	}
	if c.releaseIDs(ids, token) {
		failpoint.Reach(failpoint.ClaimReleased)
		c.announce(entries)
	}
}
