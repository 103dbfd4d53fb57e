// Package releases gives back leases of claims under which no handler ran. If the database cannot release a lease now,
// the release is tried again until it succeeds.
//
// A lease that expires counts as lost. An entry that loses three leases is dead-lettered, as if it had crashed a
// process each time.
package releases

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/groupcommit"
	"github.com/compensator-go/compensator/internal/refusals"
	"github.com/compensator-go/compensator/processlog"
)

// List holds leases that must be released and could not be released yet. They belong to claims under which no handler
// ran, or whose result is unknown. Its methods are safe for concurrent use.
type List struct {
	Config
	Batcher groupcommit.Batcher[pendingRelease] // tries again; the engine waits for it when it closes
	some    atomic.Bool                         // whether any release is pending; lets a claim skip the mutex

	mu      sync.Mutex // guards the field below
	pending map[processlog.ID]int
}

// Config is what releases need from the engine. All fields are required.
type Config struct {
	Release  func(ids []processlog.ID, token processlog.Token) error // sends one statement
	Saw      func(err error)                                         // takes the result of the releases
	Offer    func(entries []processlog.QueueEntry)                   // offers entries to all processes
	Wait     func(d time.Duration) bool                              // returns false if the engine is closed before d has passed
	Pause    func(failures int) time.Duration                        // before the next try
	Refusals *refusals.List
	Longest  time.Duration // a run of the batcher begins no try after this time
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

// The method after returns the releases that are still pending after a try that returned err. Entries that the database
// refuses to change get a release of their own, whose next try comes later. If a row is locked, the other entries are
// split into parts, because most parts can be released.
func (d *pendingRelease) after(err error) []pendingRelease {
	var parts []pendingRelease
	rest := *d
	var refused *processlog.RefusedError
	if errors.As(err, &refused) {
		refusing := func(e processlog.QueueEntry) bool { return refusals.Has(refused.Refusals, e.ID) }
		parts = append(parts, pendingRelease{
			entries: slices.DeleteFunc(slices.Clone(d.entries), func(e processlog.QueueEntry) bool { return !refusing(e) }),
			offered: d.offered, token: d.token, failed: d.failed + 1, rests: time.Now().Add(refusals.Pause(d.failed + 1)),
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
	return pendingRelease{entries: slices.DeleteFunc(slices.Clone(d.entries), func(e processlog.QueueEntry) bool { return refusals.Has(refused.Refusals, e.ID) }), offered: d.offered}
}

// New returns an empty List.
func New(cfg Config) *List {
	d := &List{Config: cfg, pending: make(map[processlog.ID]int)}
	d.Batcher.Max, d.Batcher.Workers, d.Batcher.Flush = 100, 1, d.releaseAll
	return d
}

// track adds entries to pending. It counts them, because two claims at once may have asked for the same entry.
func (d *List) track(ids []processlog.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range ids {
		d.pending[id]++
	}
	d.some.Store(true)
}

func (d *List) released(ids []processlog.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range ids {
		if d.pending[id]--; d.pending[id] <= 0 {
			delete(d.pending, id)
		}
	}
	d.some.Store(len(d.pending) > 0)
}

// Without removes entries with a pending release from want. A new claim would give them another token, and the lost
// lease could no longer be released. The result pending holds the removed entries, due after the duration in.
func (d *List) Without(want []processlog.Wanted, in time.Duration) (rest []processlog.Wanted, pending []processlog.Scheduled) {
	if !d.some.Load() {
		return want, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	rest = slices.DeleteFunc(slices.Clone(want), func(w processlog.Wanted) bool {
		out := d.pending[w.ID] > 0
		if out {
			pending = append(pending, processlog.Scheduled{ID: w.ID, In: in})
		}
		return out
	})
	return rest, pending
}

// Release gives leases back, and then offers the entries to all processes. The first try runs in the caller's goroutine. If
// the database cannot release a lease now, its entry is offered after a later try succeeds.
func (d *List) Release(token processlog.Token, entries ...processlog.QueueEntry) {
	d.release(pendingRelease{entries: entries, offered: true, token: token})
}

// ReleaseUnknown gives back the leases that a failed claim may have taken. It offers no entry.
func (d *List) ReleaseUnknown(token processlog.Token, want []processlog.Wanted) {
	entries := make([]processlog.QueueEntry, len(want))
	for i, w := range want {
		entries[i].ID = w.ID
	}
	d.release(pendingRelease{entries: entries, token: token})
}

// Later does the same as Release, but leaves the first try to the batcher. Callers use it when the database has just failed to
// answer.
func (d *List) Later(token processlog.Token, entries ...processlog.QueueEntry) {
	pending := pendingRelease{entries: entries, offered: true, token: token}
	d.track(pending.ids())
	d.Batcher.Add(pending)
}

// The method release tries to give leases back in the caller's goroutine. If that fails, the batcher tries again.
func (d *List) release(pending pendingRelease) {
	err := d.Config.Release(pending.ids(), pending.token)
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
	d.Batcher.Add(left...)
}

// sawRelease records the result of a try. Refused entries are reported by their ids and do not count as a failure of
// the database.
func (d *List) sawRelease(err error) {
	var refused *processlog.RefusedError
	if errors.As(err, &refused) {
		d.Refusals.Note(refusals.Release, "", refused.Refusals)
		err = nil
	}
	d.Saw(err)
}

func (d *List) offer(released *pendingRelease) {
	if released.offered {
		failpoint.Reach(failpoint.ClaimReleased)
		d.Offer(released.entries)
	}
}

// releaseAll tries each pending release once, except those whose next try comes later. Releases that fail go to the end
// of the list. One row may stay locked or refused for any time, and the other releases do not wait for it. A row that
// another process has claimed since then has another token and keeps its lease.
func (d *List) releaseAll(batch []pendingRelease) {
	var left []pendingRelease
	var why error
	fresh := false // a failed release was split into parts that have not been tried yet
	began := time.Now()
	for i := range batch {
		if time.Since(began) > d.Longest {
			left = append(left, batch[i:]...) // stop waiting for locks in this run
			break
		}
		if began.Before(batch[i].rests) {
			left = append(left, batch[i])
			continue
		}
		err := d.Config.Release(batch[i].ids(), batch[i].token)
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
			d.Refusals.Note(refusals.Release, "", refused.Refusals)
			continue
		}
		if why = err; !errors.Is(err, processlog.ErrBusy) {
			// The database does not answer, perhaps only for this release. Put it last.
			left, fresh = append(append(left[:len(left)-len(again)], batch[i+1:]...), again...), false
			break
		}
	}
	d.Saw(why)
	// Wait returns false after Close. Nothing is added then, so the leases expire and count as lost.
	if len(left) > 0 && (fresh || d.Wait(d.Pause(max(1, left[len(left)-1].failed)))) {
		d.Batcher.Add(left...)
	}
}

// settled records that a pending release has succeeded, and offers its entries.
func (d *List) settled(released *pendingRelease) {
	d.released(released.ids())
	d.Refusals.Taken(refusals.Release, "", released.ids()...)
	d.offer(released)
}
