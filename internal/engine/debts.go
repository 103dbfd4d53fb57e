package engine

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/groupcommit"
	"github.com/compensator-go/compensator/processlog"
)

// debts are leases that are to be given back and could not be: of claims whose end is not known, or that ran nothing.
// Left to end by themselves they would count as lost, and an entry that loses three is dead-lettered as if it had killed a
// process each time.
type debts struct {
	*base
	enqueuer *enqueuer
	refusals *refusals
	batcher  groupcommit.Batcher[debt]
	some     atomic.Bool // there is any: a claim asks for no more than this

	mu   sync.Mutex // guards the field below
	owed map[processlog.ID]int
}

// debt is what one write of ours may have leased.
type debt struct {
	entries []processlog.QueueEntry
	offered bool // to whoever is free, once it is paid
	token   processlog.Token
	failed  int       // tries
	rests   time.Time // the database refuses it, so it is not tried before
}

func (d *debt) ids() []processlog.ID {
	ids := make([]processlog.ID, len(d.entries))
	for i, e := range d.entries {
		ids[i] = e.ID
	}
	return ids
}

// debtParts is in how many parts a debt is paid of which a row is locked. A part with such a row waits two seconds for it, and
// the others for nothing, so that many are better than two.
const debtParts = 8

// after returns what is left of a debt when paying it ended so. Entries that the database refuses are a debt that rests. Where a
// row is locked the others are split, since most of the parts can be paid.
func (d *debt) after(err error) []debt {
	var parts []debt
	rest := *d
	var refused *processlog.RefusedError
	if errors.As(err, &refused) {
		refusing := func(e processlog.QueueEntry) bool { return refuses(refused.Refusals, e.ID) }
		parts = append(parts, debt{
			entries: slices.DeleteFunc(slices.Clone(d.entries), func(e processlog.QueueEntry) bool { return !refusing(e) }),
			offered: d.offered, token: d.token, failed: d.failed + 1, rests: time.Now().Add(refusalPause(d.failed + 1)),
		})
		if !errors.Is(err, processlog.ErrBusy) {
			return parts
		}
		if rest.entries = slices.DeleteFunc(slices.Clone(d.entries), refusing); len(rest.entries) == 0 {
			return parts
		}
	}
	if !errors.Is(err, processlog.ErrBusy) || len(rest.entries) == 1 {
		return append(parts, debt{entries: rest.entries, offered: d.offered, token: d.token, failed: d.failed + 1})
	}
	for part := range slices.Chunk(rest.entries, (len(rest.entries)+debtParts-1)/debtParts) {
		parts = append(parts, debt{entries: part, offered: d.offered, token: d.token})
	}
	return parts
}

// paidBy returns the part of a debt that was paid although paying it ended so.
func (d *debt) paidBy(err error) debt {
	var refused *processlog.RefusedError
	if !errors.As(err, &refused) || errors.Is(err, processlog.ErrBusy) {
		return debt{} // which of the others are locked is not known
	}
	return debt{entries: slices.DeleteFunc(slices.Clone(d.entries), func(e processlog.QueueEntry) bool { return refuses(refused.Refusals, e.ID) }), offered: d.offered}
}

func newDebts(b *base, n *enqueuer, r *refusals) *debts {
	d := &debts{base: b, enqueuer: n, refusals: r}
	d.batcher.Max, d.batcher.Workers, d.batcher.Flush = 100, 1, d.payAll
	return d
}

// owe counts, because of two claims under way at once both may have asked for an entry.
func (d *debts) owe(ids []processlog.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range ids {
		setIn(&d.owed, id, d.owed[id]+1)
	}
	d.some.Store(true)
}

func (d *debts) paid(ids []processlog.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range ids {
		if d.owed[id]--; d.owed[id] <= 0 {
			delete(d.owed, id)
		}
	}
	d.some.Store(len(d.owed) > 0)
}

// without leaves out of what a claim wants the entries that are owed: claimed anew, their lost lease could be given back no
// more.
func (d *debts) without(want []processlog.Wanted) (rest []processlog.Wanted, owed []processlog.Scheduled) {
	if !d.some.Load() {
		return want, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	rest = slices.DeleteFunc(slices.Clone(want), func(w processlog.Wanted) bool {
		out := d.owed[w.ID] > 0
		if out {
			owed = append(owed, processlog.Scheduled{ID: w.ID, In: refusedRetry})
		}
		return out
	})
	return rest, owed
}

// release gives leases back, and offers the entries to whoever is free if offered says so. What cannot be given back is owed.
// The first try is the caller's own, so that what is given back is free before anybody is told of it.
func (d *debts) release(entries []processlog.QueueEntry, offered bool, token processlog.Token) {
	owed := debt{entries: entries, offered: offered, token: token}
	err := d.pay(&owed)
	d.sawPaying(err)
	if err == nil {
		d.offer(&owed)
		return
	}
	if paid := owed.paidBy(err); len(paid.entries) > 0 {
		d.offer(&paid)
	}
	// Noted before it is handed over: paid first it would be owed for ever, and the entry never asked for here again.
	left := owed.after(err)
	for i := range left {
		d.owe(left[i].ids())
	}
	d.batcher.Add(left...)
}

// sawPaying takes the result of a try. Entries that the database refuses are told by their ids, and say nothing of the database.
func (d *debts) sawPaying(err error) {
	var refused *processlog.RefusedError
	if errors.As(err, &refused) {
		d.refusals.note(problemRefusedRelease, "", refused.Refusals)
		err = nil
	}
	d.saw(problemRelease, err)
}

// later gives leases back as release does, but lets its batcher try: the caller has just seen that the database does not answer.
func (d *debts) later(token processlog.Token, entries ...processlog.QueueEntry) {
	owed := debt{entries: entries, offered: true, token: token}
	d.owe(owed.ids())
	d.batcher.Add(owed)
}

// pay tries once.
func (d *debts) pay(owed *debt) error {
	ctx, cancel := d.statement()
	defer cancel()
	return d.Store.Release(ctx, owed.ids(), owed.token)
}

func (d *debts) offer(paid *debt) {
	if paid.offered {
		failpoint.Reach(failpoint.ClaimReleased)
		d.enqueuer.enqueue(paid.entries)
	}
}

// payAll tries each debt once that does not rest. What is left comes again, behind what has come meanwhile: one row may be locked,
// or refused, for as long as somebody likes, and the others wait neither for it nor behind it. A row that somebody else has claimed
// since carries another token, and keeps its lease.
func (d *debts) payAll(batch []debt) {
	var left []debt
	var why error
	fresh := false // of a debt there are parts now, which nobody has tried
	began := time.Now()
	for i := range batch {
		if time.Since(began) > statementTimeout {
			left = append(left, batch[i:]...) // enough of waiting for locks
			break
		}
		if began.Before(batch[i].rests) {
			left = append(left, batch[i])
			continue
		}
		err := d.pay(&batch[i])
		if err == nil {
			d.settled(&batch[i])
			continue
		}
		if part := batch[i].paidBy(err); len(part.entries) > 0 {
			d.settled(&part)
		}
		again := batch[i].after(err)
		fresh = fresh || slices.ContainsFunc(again, func(p debt) bool { return p.failed == 0 })
		left = append(left, again...)
		var refused *processlog.RefusedError
		if errors.As(err, &refused) {
			d.refusals.note(problemRefusedRelease, "", refused.Refusals)
			continue
		}
		if why = err; !errors.Is(err, processlog.ErrBusy) {
			// The database does not answer, or not to this one, which comes last now.
			left, fresh = append(append(left[:len(left)-len(again)], batch[i+1:]...), again...), false
			break
		}
	}
	d.saw(problemRelease, why)
	// Closed, it adds nothing: the leases end by themselves, and count.
	if len(left) > 0 && (fresh || d.pause(delay(settleBackoff, max(1, left[len(left)-1].failed)))) {
		d.batcher.Add(left...)
	}
}

// settled takes note that a debt was paid.
func (d *debts) settled(paid *debt) {
	d.paid(paid.ids())
	d.refusals.taken(problemRefusedRelease, "", paid.ids()...)
	d.offer(paid)
}
