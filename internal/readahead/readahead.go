// Package readahead reads due entries for several claims at once.
//
// If each claim read by itself, each would search the backlog from its start.
package readahead

import (
	"slices"
	"sync"

	"github.com/compensator-go/compensator/processlog"
)

// List holds due entries of one type that no claim has tried yet. Its methods are safe for concurrent
// use.
type List struct {
	reading chan struct{}

	mu            sync.Mutex // guards the fields below
	ids           []processlog.ID
	handedOut     map[processlog.ID]struct{} // handed out and not tried yet
	moreDue       bool                       // the last read may not have found all due entries
	claimsPerRead int
	unrunnable    int // entries that earlier claims could not run here, and that the next read may return again
}

// New returns an empty List.
func New() *List {
	return &List{reading: make(chan struct{}, 1), handedOut: make(map[processlog.ID]struct{}), claimsPerRead: 1}
}

const maxClaimsPerRead = 16

// maxRefusedUnrunnable replaces MaxRows as the maximum of List.unrunnable, if a claim has found refused or limited
// entries. The database has refused to change a refused entry, and a limited entry waits for a permit of a limit. This
// process remembers such entries, so a claim passes over them without a statement.
const maxRefusedUnrunnable = 10 * processlog.MaxRows

// Share is one claim's part of what was read.
type Share struct {
	IDs      []processlog.ID
	JustRead bool
	MoreDue  bool
}

// Take hands out up to n entries for one claim. If no entries are left, Take first reads new entries. The first entries
// of a read may be unrunnable, which means that earlier claims could not run them here. So after a read, Take adds the
// number of unrunnable entries to n. The claim can pass over the unrunnable entries and still finds n others.
func (r *List) Take(n int, read func(limit int) (ids []processlog.ID, more bool, err error)) (Share, error) {
	r.reading <- struct{}{}
	defer func() { <-r.reading }()
	limit := r.readSize(n)
	if limit > 0 {
		found, more, err := read(limit)
		if err != nil {
			return Share{}, err
		}
		n += r.addRead(found, more)
	}
	return r.handOut(n, limit > 0), nil
}

// readSize returns 0 as long as entries are left.
func (r *List) readSize(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ids) > 0 {
		return 0
	}
	// A read first returns entries that cannot run here or that another claim of this process is trying.
	return n*r.claimsPerRead + r.unrunnable + len(r.handedOut)
}

func (r *List) addRead(found []processlog.ID, more bool) (unrunnable int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moreDue = more
	// Leave out the entries that another claim of this process is trying. Until that claim commits, the database still
	// returns these entries, and two claims would try the same entries.
	r.ids = slices.DeleteFunc(found, func(id processlog.ID) bool {
		_, isHandedOut := r.handedOut[id]
		return isHandedOut
	})
	unrunnable, r.unrunnable = r.unrunnable, 0
	return unrunnable
}

// handOut takes up to n entries from the list for one claim. These entries stay in the field handedOut until the claim
// calls ClaimEnded.
func (r *List) handOut(n int, justRead bool) Share {
	r.mu.Lock()
	defer r.mu.Unlock()
	n = min(n, len(r.ids))
	ids := r.ids[:n:n] // so that an append to this Share cannot overwrite the next one
	if r.ids = r.ids[n:]; len(r.ids) == 0 {
		r.ids = nil
	}
	for _, id := range ids {
		r.handedOut[id] = struct{}{}
	}
	return Share{ids, justRead, r.moreDue || len(r.ids) > 0 || !justRead} // an older read does not include entries that have come due since
}

// PutBack leaves n entries in a share. It keeps the others for the next claim, which gets them first.
func (r *List) PutBack(s *Share, n int) {
	if len(s.IDs) <= n {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range s.IDs[n:] {
		delete(r.handedOut, id)
	}
	r.ids = append(s.IDs[n:], r.ids...) // append copies, because a share is cut with a full slice expression
	s.IDs, s.MoreDue = s.IDs[:n:n], true
}

// ClaimEnded records how the claim of a share went. If other processes got most of the share, they will also get most
// of the rest, so the rest is dropped.
func (r *List) ClaimEnded(s Share, found processlog.Claimed, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range s.IDs {
		delete(r.handedOut, id)
	}
	// The limit is the maximum of the field unrunnable. Usually the limit is MaxRows, because one statement skips at
	// most MaxRows entries that cannot run here. If the claim has found refused or limited entries, the limit is
	// higher, because the process passes over such entries without a statement.
	limit := processlog.MaxRows
	if len(found.Refused)+found.LimitedLater() > 0 {
		limit = maxRefusedUnrunnable
	}
	r.unrunnable = min(r.unrunnable+countUnrunnable(found), limit)
	if err != nil || len(found.Gone)+len(found.Waiting) > len(found.Mine)+len(found.Skipped)+len(found.Refused)+len(found.Limited) {
		r.ids, r.claimsPerRead = nil, 1
		return
	}
	r.claimsPerRead = min(2*r.claimsPerRead, maxClaimsPerRead)
}

// countUnrunnable returns by how many entries the next read must be larger. It counts the entries that a claim has
// found and could not run. If the claim could run no entry at all, the result is twice this number. Without the larger
// read, a claim for a single free slot would find only the same locked row again and again.
func countUnrunnable(found processlog.Claimed) int {
	n := len(found.Skipped) + len(found.Refused) + found.LimitedLater()
	for _, w := range found.Waiting {
		if w.In <= processlog.LockedRetry {
			n++
		}
	}
	if len(found.Mine) == 0 {
		n *= 2
	}
	return n
}
