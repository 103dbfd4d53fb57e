package compensator

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// readAhead is due entries of one type that were found in the database and that no claim has tried yet. Read claim by
// claim, a backlog would be searched from its start each time, past all that is claimed and not yet settled, or
// settled and not yet purged by the server; and two claims at once would find the same entries.
type readAhead struct {
	turn chan struct{} // full while somebody takes his share, and reads for it: the next one shares what he finds

	mu      sync.Mutex            // guards the fields below
	ids     []EntryID             // earliest due first
	out     map[EntryID]time.Time // left out of what is read, although the database offers it: see passOver
	more    bool                  // as many were found as were asked for
	claims  int                   // how many claims' worth is read at once
	refused int                   // of what was read last, entries that must not run here now: others stand behind them
	vain    int                   // claims in a row that met only rows which somebody holds locked
}

func newReadAhead() *readAhead {
	return &readAhead{turn: make(chan struct{}, 1), out: make(map[EntryID]time.Time), claims: 1}
}

const (
	mostReadAhead   = 16 // bounds readAhead.claims
	mostVainBacklog = 16 // claims in a row that go on past locked rows, before the next poll
)

// share is one claim's part of what was read.
type share struct {
	ids   []EntryID
	fresh bool // read for this claim
	more  bool // others may remain, here or in the database
}

// take hands out up to n entries, and as many more as were refused before; read finds those that are due.
func (r *readAhead) take(n int, read func(limit int) ([]EntryID, error)) (share, error) {
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	limit := r.missing(n)
	if limit > 0 {
		found, err := read(limit)
		if err != nil {
			return share{}, err
		}
		n += r.fill(found, limit)
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
	now := time.Now()
	maps.DeleteFunc(r.out, func(_ EntryID, until time.Time) bool { return !until.IsZero() && !now.Before(until) })
	return n*r.claims + r.refused + len(r.out)
}

// fill keeps what was read, and returns how many of it were refused before.
func (r *readAhead) fill(found []EntryID, limit int) (refused int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.more = len(found) == limit
	r.ids = slices.DeleteFunc(found, func(id EntryID) bool {
		_, out := r.out[id]
		return out
	})
	refused, r.refused = r.refused, 0
	return refused
}

func (r *readAhead) hand(n int, fresh bool) share {
	r.mu.Lock()
	defer r.mu.Unlock()
	n = min(n, len(r.ids))
	ids := r.ids[:n:n]
	if r.ids = r.ids[n:]; len(r.ids) == 0 {
		r.ids = nil
	}
	for _, id := range ids {
		r.out[id] = time.Time{} // until it was tried
	}
	return share{ids, fresh, r.more || len(r.ids) > 0 || !fresh} // what was read a while ago is not all there is now
}

// tried notes how the claim of a share went. While each brings what it was for, more is read at once; where others
// were faster with most of it, they are with the rest as well. It reports whether it is worth going on past rows that
// somebody holds locked, although this claim took nothing: in front of a single free slot one of them would else keep
// everything behind it from running.
func (r *readAhead) tried(s share, found Claimed, err error) (goOn bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range s.ids {
		delete(r.out, id)
	}
	goOn = r.passOver(found)
	r.refused = min(r.refused+len(found.Refused), maxStatementRows)
	if err != nil || len(found.Gone)+len(found.Waiting) > len(found.Mine)+len(found.Refused) {
		r.ids, r.claims = nil, 1
		return goOn
	}
	r.claims = min(2*r.claims, mostReadAhead)
	return goOn
}

// passOver leaves locked rows out of what is read until they are worth another look.
func (r *readAhead) passOver(found Claimed) (goOn bool) {
	locked := 0
	for _, w := range found.Waiting {
		if w.In <= lockedRetry {
			r.out[w.ID] = time.Now().Add(w.In)
			locked++
		}
	}
	if locked == 0 || len(found.Mine) > 0 || r.vain == mostVainBacklog {
		r.vain = 0
		return false
	}
	r.vain++
	return true
}
