// Package releases gives back leases of claims under which no handler ran. It tries again until the database releases
// them.
//
// A lease that expires counts as lost. An entry that loses three leases is dead-lettered, as if it had crashed a
// process each time.
package releases

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/groupcommit"
	"github.com/compensator-go/compensator/internal/grouped"
	"github.com/compensator-go/compensator/internal/refusals"
	"github.com/compensator-go/compensator/processlog"
)

// List holds leases that must be released and could not be released yet. Its methods are safe for concurrent use.
type List struct {
	Config
	Batcher    groupcommit.Batcher[release] // when the engine closes, the engine waits for this batcher
	anyPending atomic.Bool

	mu      sync.Mutex // guards the field below
	pending map[processlog.ID]int
}

// Config is what a List needs from the engine. All fields are required.
type Config struct {
	Release     func(ids []processlog.ID, token processlog.Token) (processlog.Unreleased, error)
	NoteResult  func(err error)
	Offer       func(entries []processlog.QueueEntry)
	Wait        func(d time.Duration) bool // returns false if the engine is closed before d has passed
	Pause       func(failures int) time.Duration
	Refusals    *refusals.List
	MaxDuration time.Duration // a run of the batcher begins no try after this time
}

type release struct {
	entry      processlog.QueueEntry
	offerAfter bool
	token      processlog.Token
	failures   int
}

func releasesOf(token processlog.Token, offered bool, entries []processlog.QueueEntry) []release {
	list := make([]release, len(entries))
	for i, e := range entries {
		list[i] = release{entry: e, token: token, offerAfter: offered}
	}
	return list
}

// New returns an empty List.
func New(cfg Config) *List {
	d := &List{Config: cfg, pending: make(map[processlog.ID]int)}
	d.Batcher.Max, d.Batcher.Workers, d.Batcher.Flush = processlog.MaxRows, 1, d.releaseAll
	return d
}

// WithoutPending divides the entries in wanted. The result pending has the entries whose release has not succeeded yet,
// and others has the rest. Do not claim an entry in pending. A claim would give the entry another token. The release
// looks for the old token, so it could no longer give the old lease back.
//
// The parameter in is the time after which the entries in pending may be tried again.
func (d *List) WithoutPending(wanted []processlog.Wanted, in time.Duration) (others []processlog.Wanted, pending []processlog.Scheduled) {
	if !d.anyPending.Load() {
		return wanted, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	others = slices.DeleteFunc(slices.Clone(wanted), func(w processlog.Wanted) bool {
		isPending := d.pending[w.ID] > 0
		if isPending {
			pending = append(pending, processlog.Scheduled{ID: w.ID, In: in})
		}
		return isPending
	})
	return others, pending
}

// Release gives leases back, and then offers the entries to all processes. The first try runs in the caller's
// goroutine. If the database cannot release a lease now, its entry is offered after a later try succeeds.
func (d *List) Release(token processlog.Token, entries ...processlog.QueueEntry) {
	d.releaseNow(releasesOf(token, true, entries))
}

// ReleaseUnknown gives leases back after a claim that failed. Nobody knows which of the entries the claim has leased.
// Unlike Release, ReleaseUnknown does not offer the entries to other processes afterwards.
func (d *List) ReleaseUnknown(token processlog.Token, wanted []processlog.Wanted) {
	entries := make([]processlog.QueueEntry, len(wanted))
	for i, w := range wanted {
		entries[i].ID = w.ID
	}
	d.releaseNow(releasesOf(token, false, entries))
}

// ReleaseLater leaves it to the batcher to give leases back and to offer the entries to all processes. Callers use it
// when the database has just failed to answer, so that they need not wait.
func (d *List) ReleaseLater(token processlog.Token, entries ...processlog.QueueEntry) {
	d.addPending(releasesOf(token, true, entries))
}

// addPending counts the releases before the batcher gets them. If the batcher finished first, an entry would stay in
// pending forever.
func (d *List) addPending(list []release) {
	d.mu.Lock()
	for _, r := range list {
		d.pending[r.entry.ID]++
	}
	d.anyPending.Store(len(d.pending) > 0)
	d.mu.Unlock()
	d.Batcher.Add(list...)
}

func (d *List) donePending(list []release) {
	for _, r := range list {
		d.Refusals.Accepted(refusals.Release, "", r.entry.ID)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range list {
		if d.pending[r.entry.ID]--; d.pending[r.entry.ID] <= 0 {
			delete(d.pending, r.entry.ID)
		}
	}
	d.anyPending.Store(len(d.pending) > 0)
}

func (d *List) releaseNow(list []release) {
	if len(list) == 0 {
		return
	}
	done, left, err := d.releaseOnce(list)
	d.NoteResult(err)
	d.offer(done)
	d.addPending(left)
}

// releaseOnce returns the releases that are done, and those that are left. err is nil if only refused releases are
// left, because those are reported by their ids.
func (d *List) releaseOnce(list []release) (done, left []release, err error) {
	ids := make([]processlog.ID, len(list))
	for i, r := range list {
		ids[i] = r.entry.ID
	}
	unreleased, err := d.Config.Release(ids, list[0].token)
	d.Refusals.Note(refusals.Release, "", unreleased.Refused)
	for _, r := range list {
		if err == nil && !refusals.Has(unreleased.Refused, r.entry.ID) && !slices.Contains(unreleased.Busy, r.entry.ID) {
			done = append(done, r)
			continue
		}
		r.failures++
		left = append(left, r)
	}
	if err == nil && len(unreleased.Busy) > 0 {
		err = processlog.ErrBusy
	}
	return done, left, err
}

// offer offers the entries of all releases in the list, or of none. The field offerAfter is the same in all of them.
func (d *List) offer(list []release) {
	if len(list) == 0 || !list[0].offerAfter {
		return
	}
	failpoint.Reach(failpoint.ClaimReleased)
	entries := make([]processlog.QueueEntry, len(list))
	for i, r := range list {
		entries[i] = r.entry
	}
	d.Offer(entries)
}

// A release that fails goes to the end of the list, so that other releases do not wait for a row that stays locked.
func (d *List) releaseAll(batch []release) {
	var left, unanswered []release
	var lastErr error
	startedAt := time.Now()
	for _, list := range grouped.Each(batch, func(r release) processlog.Token { return r.token }) {
		due := slices.DeleteFunc(slices.Clone(list), func(r release) bool {
			isPaused := d.Refusals.IsPaused(refusals.Release, "", r.entry.ID)
			if isPaused {
				left = append(left, r)
			}
			return isPaused
		})
		// A try may wait for locks, so begin none after MaxDuration.
		if len(due) == 0 || unanswered != nil || time.Since(startedAt) > d.MaxDuration {
			left = append(left, due...)
			continue
		}
		done, undone, err := d.releaseOnce(due)
		d.donePending(done)
		d.offer(done)
		switch {
		case err == nil:
			left = append(left, undone...)
			continue
		case err == processlog.ErrBusy:
			left = append(left, undone...)
		default:
			unanswered = undone
		}
		lastErr = err
	}
	d.NoteResult(lastErr)
	left = append(left, unanswered...)
	// Try again after a pause. After Close, Wait returns false, and the releases are dropped. The leases then end by
	// themselves and count as lost.
	if len(left) > 0 && d.Wait(d.Pause(max(1, left[len(left)-1].failures))) {
		d.Batcher.Add(left...)
	}
}
