// Package readahead reads due entries for several claims at once.
//
// If each claim read by itself, each would search the backlog from its start. It would pass rows that are claimed but not
// settled, and rows that the server has not purged yet. Two claims at once would also find the same entries.
package readahead

import (
	"slices"
	"sync"

	"github.com/compensator-go/compensator/processlog"
)

// List holds due entries of one type that were read from the database and that no claim has tried yet.
// Its methods are safe for concurrent use.
type List struct {
	reading chan struct{} // full while one claim takes its Share and reads; the next claim can use what it has read

	mu            sync.Mutex                 // guards the fields below
	ids           []processlog.ID            // earliest due first
	handedOut     map[processlog.ID]struct{} // handed out and not tried yet; the database still returns them as due
	moreDue       bool                       // the last read may not have found all due entries
	claimsPerRead int                        // how many claims one read covers
	unrunnable    int                        // entries of the last read that cannot run here now and stand in front of others
}

// New returns an empty List.
func New() *List {
	return &List{reading: make(chan struct{}, 1), handedOut: make(map[processlog.ID]struct{}), claimsPerRead: 1}
}

// maxClaimsPerRead bounds List.claimsPerRead.
const maxClaimsPerRead = 16

// maxRefusedUnrunnable limits how many refused and limited entries a read passes over. The database refuses to lease a
// refused entry. A limited entry waits for a permit.
const maxRefusedUnrunnable = 10 * processlog.MaxRows

// Share is one claim's part of what was read.
type Share struct {
	IDs      []processlog.ID
	JustRead bool // whether the entries were read for this claim
	MoreDue  bool // whether more entries may remain, here or in the database
}

// Take hands out up to n entries for one claim. If no entries are left, Take first reads new ones. The claim then also
// gets as many further entries as could not run here at the last read. The function read returns up to limit due
// entries, and reports whether there may be more.
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

// readSize returns how many entries to read before n can be handed out. It returns 0 as long as entries are left.
func (r *List) readSize(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ids) > 0 {
		return 0
	}
	// A read first returns entries that cannot run here or that another claim of this process is trying. So read as many
	// entries in addition. Without the addition, the read could bring nothing new.
	return n*r.claimsPerRead + r.unrunnable + len(r.handedOut)
}

// addRead replaces the list by the entries that were read, without those that another claim is trying. It returns
// List.unrunnable as the previous read and its claims have left it, and sets the field to 0.
func (r *List) addRead(found []processlog.ID, more bool) (unrunnable int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moreDue = more
	// Leave out entries that another claim is trying. The database returns them until that claim commits, and two claims
	// would try the same entries.
	r.ids = slices.DeleteFunc(found, func(id processlog.ID) bool {
		_, isHandedOut := r.handedOut[id]
		return isHandedOut
	})
	// Start a new count, to which the claims of this read add.
	unrunnable, r.unrunnable = r.unrunnable, 0
	return unrunnable
}

// handOut gives a claim its Share. The entries stay in handedOut until the claim calls ClaimEnded.
func (r *List) handOut(n int, justRead bool) Share {
	r.mu.Lock()
	defer r.mu.Unlock()
	n = min(n, len(r.ids))
	ids := r.ids[:n:n] // limit the capacity, so that an append to this Share cannot overwrite the next one
	if r.ids = r.ids[n:]; len(r.ids) == 0 {
		r.ids = nil // free the memory of a used-up read
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
	r.ids = append(s.IDs[n:], r.ids...) // append copies here, because a share is cut with a full slice expression
	s.IDs, s.MoreDue = s.IDs[:n:n], true
}

// ClaimEnded records how the claim of a share went. After a successful claim, the next read covers twice as many claims. If
// other processes got most of the share, they will also get most of the rest, so the rest is dropped.
func (r *List) ClaimEnded(s Share, found processlog.Claimed, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range s.IDs {
		delete(r.handedOut, id)
	}
	// One statement skips at most MaxRows entries that cannot run here. If there are more, the entries behind them
	// wait. More of them may be skipped if they are refused or limited, because such entries are left out of claims
	// for a long time.
	limit := processlog.MaxRows
	if len(found.Refused)+found.LimitedLater() > 0 {
		limit = maxRefusedUnrunnable
	}
	r.unrunnable = min(r.unrunnable+countUnrunnable(found), limit)
	// Other processes have taken most of this Share. Further claims of the same read would each bring only a few
	// entries.
	if err != nil || len(found.Gone)+len(found.Waiting) > len(found.Mine)+len(found.Skipped)+len(found.Refused)+len(found.Limited) {
		r.ids, r.claimsPerRead = nil, 1
		return
	}
	r.claimsPerRead = min(2*r.claimsPerRead, maxClaimsPerRead)
}

// countUnrunnable returns how many entries the next read should skip. These entries must not run here now, or their rows are
// locked. Without the skip, a claim for a single free slot would meet the same locked row again and again. If the claim got
// nothing, more such entries may follow, so the number is doubled.
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
