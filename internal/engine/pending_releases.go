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

// pendingReleases are leases that are to be given back and could not be: of claims whose end is not known, or that ran nothing.
// Left to end by themselves they would count as lost, and an entry that loses three is dead-lettered as if it had killed a
// process each time.
type pendingReleases struct {
	*Base
	source   *source
	refusals *refusals
	batcher  groupcommit.Batcher[pendingRelease]
	some     atomic.Bool // there is any: a claim asks for no more than this

	mu      sync.Mutex // guards the field below
	pending map[processlog.ID]int
}

// pendingRelease is what one write of ours may have leased.
type pendingRelease struct {
	entries []processlog.QueueEntry
	offered bool // to whoever is free, once it is paid
	token   processlog.Token
	failed  int       // tries
	rests   time.Time // the database refuses it, so it is not tried before
}

func (d *pendingRelease) ids() []processlog.ID {
	ids := make([]processlog.ID, len(d.entries))
	for i, e := range d.entries {
		ids[i] = e.ID
	}
	return ids
}

// releaseParts is in how many parts a pending release is paid of which a row is locked. A part with such a row waits two seconds for it, and
// the others for nothing, so that many are better than two.
const releaseParts = 8

// after returns what is left of a pending release when paying it ended so. Entries that the database refuses are a pending release that rests. Where a
// row is locked the others are split, since most of the parts can be paid.
func (d *pendingRelease) after(err error) []pendingRelease {
	var parts []pendingRelease
	rest := *d
	var refused *processlog.RefusedError
	if errors.As(err, &refused) {
		refusing := func(e processlog.QueueEntry) bool { return refuses(refused.Refusals, e.ID) }
		parts = append(parts, pendingRelease{
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
		return append(parts, pendingRelease{entries: rest.entries, offered: d.offered, token: d.token, failed: d.failed + 1})
	}
	for part := range slices.Chunk(rest.entries, (len(rest.entries)+releaseParts-1)/releaseParts) {
		parts = append(parts, pendingRelease{entries: part, offered: d.offered, token: d.token})
	}
	return parts
}

// releasedBy returns the part of a pending release that was paid although paying it ended so.
func (d *pendingRelease) releasedBy(err error) pendingRelease {
	var refused *processlog.RefusedError
	if !errors.As(err, &refused) || errors.Is(err, processlog.ErrBusy) {
		return pendingRelease{} // which of the others are locked is not known
	}
	return pendingRelease{entries: slices.DeleteFunc(slices.Clone(d.entries), func(e processlog.QueueEntry) bool { return refuses(refused.Refusals, e.ID) }), offered: d.offered}
}

func newPendingReleases(b *Base, source *source, r *refusals) *pendingReleases {
	d := &pendingReleases{Base: b, source: source, refusals: r}
	d.batcher.Max, d.batcher.Workers, d.batcher.Flush = 100, 1, d.releaseAll
	return d
}

// track counts, because of two claims under way at once both may have asked for an entry.
func (d *pendingReleases) track(ids []processlog.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range ids {
		setIn(&d.pending, id, d.pending[id]+1)
	}
	d.some.Store(true)
}

func (d *pendingReleases) released(ids []processlog.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range ids {
		if d.pending[id]--; d.pending[id] <= 0 {
			delete(d.pending, id)
		}
	}
	d.some.Store(len(d.pending) > 0)
}

// without leaves out of what a claim wants the entries that are owed: claimed anew, their lost lease could be given back no
// more.
func (d *pendingReleases) without(want []processlog.Wanted) (rest []processlog.Wanted, pending []processlog.Scheduled) {
	if !d.some.Load() {
		return want, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	rest = slices.DeleteFunc(slices.Clone(want), func(w processlog.Wanted) bool {
		out := d.pending[w.ID] > 0
		if out {
			pending = append(pending, processlog.Scheduled{ID: w.ID, In: RefusedRetry})
		}
		return out
	})
	return rest, pending
}

// release gives leases back, and offers the entries to whoever is free if offered says so. What cannot be given back is owed.
// The first try is the caller's own, so that what is given back is free before anybody is told of it.
func (d *pendingReleases) release(entries []processlog.QueueEntry, offered bool, token processlog.Token) {
	pending := pendingRelease{entries: entries, offered: offered, token: token}
	err := d.tryRelease(&pending)
	d.sawRelease(err)
	if err == nil {
		d.offer(&pending)
		return
	}
	if released := pending.releasedBy(err); len(released.entries) > 0 {
		d.offer(&released)
	}
	// Noted before it is handed over: paid first it would be owed for ever, and the entry never asked for here again.
	left := pending.after(err)
	for i := range left {
		d.track(left[i].ids())
	}
	d.batcher.Add(left...)
}

// sawRelease takes the result of a try. Entries that the database refuses are told by their ids, and say nothing of the database.
func (d *pendingReleases) sawRelease(err error) {
	var refused *processlog.RefusedError
	if errors.As(err, &refused) {
		d.refusals.note(problemRefusedRelease, "", refused.Refusals)
		err = nil
	}
	d.Saw(problemRelease, err)
}

// later gives leases back as release does, but lets its batcher try: the caller has just seen that the database does not answer.
func (d *pendingReleases) later(token processlog.Token, entries ...processlog.QueueEntry) {
	pending := pendingRelease{entries: entries, offered: true, token: token}
	d.track(pending.ids())
	d.batcher.Add(pending)
}

// tryRelease tries once.
func (d *pendingReleases) tryRelease(pending *pendingRelease) error {
	ctx, cancel := d.Statement()
	defer cancel()
	return d.Store.Release(ctx, pending.ids(), pending.token)
}

func (d *pendingReleases) offer(released *pendingRelease) {
	if released.offered {
		failpoint.Reach(failpoint.ClaimReleased)
		d.source.Enqueue(released.entries)
	}
}

// releaseAll tries each pending release once that does not rest. What is left comes again, behind what has come meanwhile: one row may be locked,
// or refused, for as long as somebody likes, and the others wait neither for it nor behind it. A row that somebody else has claimed
// since carries another token, and keeps its lease.
func (d *pendingReleases) releaseAll(batch []pendingRelease) {
	var left []pendingRelease
	var why error
	fresh := false // of a pending release there are parts now, which nobody has tried
	began := time.Now()
	for i := range batch {
		if time.Since(began) > StatementTimeout {
			left = append(left, batch[i:]...) // enough of waiting for locks
			break
		}
		if began.Before(batch[i].rests) {
			left = append(left, batch[i])
			continue
		}
		err := d.tryRelease(&batch[i])
		if err == nil {
			d.settled(&batch[i])
			continue
		}
		if part := batch[i].releasedBy(err); len(part.entries) > 0 {
			d.settled(&part)
		}
		again := batch[i].after(err)
		fresh = fresh || slices.ContainsFunc(again, func(p pendingRelease) bool { return p.failed == 0 })
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
	d.Saw(problemRelease, why)
	// Closed, it adds nothing: the leases end by themselves, and count.
	if len(left) > 0 && (fresh || d.Wait(delay(settleBackoff, max(1, left[len(left)-1].failed)))) {
		d.batcher.Add(left...)
	}
}

// settled takes note that a pending release was paid.
func (d *pendingReleases) settled(released *pendingRelease) {
	d.released(released.ids())
	d.refusals.taken(problemRefusedRelease, "", released.ids()...)
	d.offer(released)
}
