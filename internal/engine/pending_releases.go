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

// pendingReleases holds leases that must be released and could not be released yet. They belong to claims that ran
// nothing or whose result is unknown. A lease that ends by itself counts as lost. An entry that loses three leases is
// dead-lettered, as if it had crashed a process each time.
type pendingReleases struct {
	*Base
	source   *source
	refusals *refusals
	batcher  groupcommit.Batcher[pendingRelease]
	some     atomic.Bool // whether any release is pending; lets a claim skip the mutex

	mu      sync.Mutex // guards the field below
	pending map[processlog.ID]int
}

// pendingRelease is the set of entries that one claim or insert may have leased.
type pendingRelease struct {
	entries []processlog.QueueEntry
	offered bool // offer the entries to all processes once they are released
	token   processlog.Token
	failed  int       // number of failed tries
	rests   time.Time // no try before this time, because the database refused the release
}

func (d *pendingRelease) ids() []processlog.ID {
	ids := make([]processlog.ID, len(d.entries))
	for i, e := range d.entries {
		ids[i] = e.ID
	}
	return ids
}

// releaseParts is the number of parts into which a pending release is split if one of its rows is locked. A part with a
// locked row waits two seconds for the lock. The other parts do not wait.
const releaseParts = 8

// after returns the pending releases that are left after a try that returned err. Entries that the database refuses
// form a release of their own, which rests. If a row is locked, the other entries are split into parts, because most
// parts can be released.
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

// releasedBy returns the entries that were released although the try returned err.
func (d *pendingRelease) releasedBy(err error) pendingRelease {
	var refused *processlog.RefusedError
	if !errors.As(err, &refused) || errors.Is(err, processlog.ErrBusy) {
		return pendingRelease{} // it is unknown which of the other rows are locked
	}
	return pendingRelease{entries: slices.DeleteFunc(slices.Clone(d.entries), func(e processlog.QueueEntry) bool { return refuses(refused.Refusals, e.ID) }), offered: d.offered}
}

func newPendingReleases(b *Base, source *source, r *refusals) *pendingReleases {
	d := &pendingReleases{Base: b, source: source, refusals: r}
	d.batcher.Max, d.batcher.Workers, d.batcher.Flush = 100, 1, d.releaseAll
	return d
}

// track adds entries to pending. It counts them, because two claims at once may have asked for the same entry.
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

// without removes entries with a pending release from want. A new claim would give them another token, and the lost
// lease could no longer be released.
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

// release gives leases back. If offered is set, it then offers the entries to all processes. The first try runs in the
// caller's goroutine, so that the leases are free before the entries are offered. If it fails, the batcher tries again.
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
	// Track the release before the batcher gets it. If the batcher finished first, the entry would stay in pending
	// forever, and this process would never claim it again.
	left := pending.after(err)
	for i := range left {
		d.track(left[i].ids())
	}
	d.batcher.Add(left...)
}

// sawRelease records the result of a try. Refused entries are reported by their ids and do not count as a failure of
// the database.
func (d *pendingReleases) sawRelease(err error) {
	var refused *processlog.RefusedError
	if errors.As(err, &refused) {
		d.refusals.note(problemRefusedRelease, "", refused.Refusals)
		err = nil
	}
	d.Saw(problemRelease, err)
}

// later gives leases back as release does, but leaves the first try to the batcher. Callers use it when the database
// has just failed to answer.
func (d *pendingReleases) later(token processlog.Token, entries ...processlog.QueueEntry) {
	pending := pendingRelease{entries: entries, offered: true, token: token}
	d.track(pending.ids())
	d.batcher.Add(pending)
}

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

// releaseAll tries each pending release once, except those that rest. Releases that fail go to the end of the list. One
// row may stay locked or refused for any time, and the other releases do not wait for it. A row that another process
// has claimed since has another token and keeps its lease.
func (d *pendingReleases) releaseAll(batch []pendingRelease) {
	var left []pendingRelease
	var why error
	fresh := false // a failed release was split into parts that have not been tried yet
	began := time.Now()
	for i := range batch {
		if time.Since(began) > StatementTimeout {
			left = append(left, batch[i:]...) // stop waiting for locks in this run
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
			// The database does not answer, perhaps only for this release. Put it last.
			left, fresh = append(append(left[:len(left)-len(again)], batch[i+1:]...), again...), false
			break
		}
	}
	d.Saw(problemRelease, why)
	// Wait returns false after Close. Nothing is added then, and the leases end by themselves and count as lost.
	if len(left) > 0 && (fresh || d.Wait(delay(settleBackoff, max(1, left[len(left)-1].failed)))) {
		d.batcher.Add(left...)
	}
}

// settled records that a pending release has succeeded, and offers its entries.
func (d *pendingReleases) settled(released *pendingRelease) {
	d.released(released.ids())
	d.refusals.taken(problemRefusedRelease, "", released.ids()...)
	d.offer(released)
}
