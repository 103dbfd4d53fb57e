package engine

import (
	"slices"
	"sync"

	"github.com/compensator-go/compensator/processlog"
)

// readAhead is due entries of one type that were found in the database and that no claim has tried yet. Read claim by
// claim, a backlog would be searched from its start each time, past all that is claimed and not yet settled, or
// settled and not yet purged by the server; and two claims at once would find the same entries.
type readAhead struct {
	guard chan struct{} // full while somebody takes his share, and reads for it: the next one shares what he finds

	mu      sync.Mutex                 // guards the fields below
	ids     []processlog.ID            // earliest due first
	out     map[processlog.ID]struct{} // taken and not tried yet: the database offers them still
	more    bool                       // the last reading may not have found all
	claims  int                        // how many claims' worth is read at once
	inFront int                        // of what was read last, entries that cannot run here now: others stand behind them
}

func newReadAhead() *readAhead {
	return &readAhead{guard: make(chan struct{}, 1), out: make(map[processlog.ID]struct{}), claims: 1}
}

// mostReadAhead bounds readAhead.claims.
const mostReadAhead = 16

// mostRejectedInFront bounds how many entries that the database refuses to lease are looked past.
const mostRejectedInFront = 10 * processlog.MaxRows

// share is one claim's part of what was read.
type share struct {
	ids   []processlog.ID
	fresh bool // read for this claim
	more  bool // others may remain, here or in the database
}

// take hands out up to n entries, and as many more as stood in front of others before. read finds up to limit that are due, and
// reports whether there may be more.
func (r *readAhead) take(n int, read func(limit int) (ids []processlog.ID, more bool, err error)) (share, error) {
	r.guard <- struct{}{}
	defer func() { <-r.guard }()
	limit := r.missing(n)
	if limit > 0 {
		found, more, err := read(limit)
		if err != nil {
			return share{}, err
		}
		n += r.fill(found, more)
	}
	return r.hand(n, limit > 0), nil
}

// missing is how many entries are to be read before n can be handed out: none while any are left.
func (r *readAhead) missing(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ids) > 0 {
		return 0
	}
	// What cannot run here, and what another claim of ours is at, comes first in every reading: without room for both
	// it would bring nothing new.
	return n*r.claims + r.inFront + len(r.out)
}

// fill keeps what was read, and returns how many of it stood in front of others before.
func (r *readAhead) fill(found []processlog.ID, more bool) (inFront int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.more = more
	// The database offers them until that claim has committed: two claims would have the same ones.
	r.ids = slices.DeleteFunc(found, func(id processlog.ID) bool {
		_, out := r.out[id]
		return out
	})
	// The claims of this reading count anew.
	inFront, r.inFront = r.inFront, 0
	return inFront
}

// hand gives a claim its share, which is out until it has been tried.
func (r *readAhead) hand(n int, fresh bool) share {
	r.mu.Lock()
	defer r.mu.Unlock()
	n = min(n, len(r.ids))
	ids := r.ids[:n:n] // what is added to a share must not run into the next one
	if r.ids = r.ids[n:]; len(r.ids) == 0 {
		r.ids = nil // sixteen claims' worth is not kept at rest
	}
	for _, id := range ids {
		r.out[id] = struct{}{}
	}
	return share{ids, fresh, r.more || len(r.ids) > 0 || !fresh} // what was read a while ago is not all there is now
}

// tried notes how the claim of a share went. While each brings what it was for, more is read at once; where others
// were faster with most of it, they are with the rest as well.
func (r *readAhead) tried(s share, found processlog.Claimed, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range s.ids {
		delete(r.out, id)
	}
	// One statement looks no further: more than that hold up those behind until they are fewer. Rejected entries rest for long
	// and cost no claim, so many of them may stand in front.
	most := processlog.MaxRows
	if len(found.Rejected) > 0 {
		most = mostRejectedInFront
	}
	r.inFront = min(r.inFront+standing(found), most)
	// Tried to its end, what others have worked off would cost a claim for each few entries of it.
	if err != nil || len(found.Gone)+len(found.Waiting) > len(found.Mine)+len(found.Refused)+len(found.Rejected) {
		r.ids, r.claims = nil, 1
		return
	}
	r.claims = min(2*r.claims, mostReadAhead)
}

// standing is how many entries are to be looked past next time: those that must not run here, and those whose rows
// somebody holds locked. Without, a single free slot would meet the same row for as long as it is locked. Where they were
// all there was, nobody knows how many more there are.
func standing(found processlog.Claimed) int {
	n := len(found.Refused) + len(found.Rejected)
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
