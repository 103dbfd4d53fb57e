package compensator

// readAhead is due entries of one type that were found in the database and that no claim has tried yet. Read claim by
// claim, a backlog would be searched from its start each time, past all that is claimed and not yet settled, or
// settled and not yet purged by the server; and two claims at once would find the same entries.
type readAhead struct {
	turn    chan struct{} // full while somebody has his turn at the fields below, or reads: claims share what is found
	ids     []EntryID     // earliest due first
	more    bool          // as many were found as were asked for
	claims  int           // how many claims' worth is read at once
	refused int           // of what was read last, entries that must not run here now: others stand behind them
}

func newReadAhead() *readAhead { return &readAhead{turn: make(chan struct{}, 1), claims: 1} }

// mostReadAhead bounds readAhead.claims.
const mostReadAhead = 16

// share is one claim's part of what was read.
type share struct {
	ids   []EntryID
	fresh bool // read for this claim
	more  bool // others remain, here or in the database
}

// take hands out up to n entries, and as many more as were refused before; read finds those that are due.
func (r *readAhead) take(n int, read func(limit int) ([]EntryID, error)) (share, error) {
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	fresh := len(r.ids) == 0
	if fresh {
		limit := n*r.claims + r.refused
		found, err := read(limit)
		if err != nil {
			return share{}, err
		}
		r.ids, r.more = found, len(found) == limit
		n, r.refused = n+r.refused, 0
	}
	n = min(n, len(r.ids))
	ids := r.ids[:n:n]
	if r.ids = r.ids[n:]; len(r.ids) == 0 {
		r.ids = nil
	}
	return share{ids, fresh, r.more || len(r.ids) > 0}, nil
}

// tried notes how the claim of a share went. While each brings what it was for, more is read at once; where others
// were faster with most of it, they are with the rest as well.
func (r *readAhead) tried(found Claimed, err error) {
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	r.refused = min(r.refused+len(found.Refused), maxStatementRows)
	if err != nil || len(found.Gone)+len(found.Waiting) > len(found.Mine)+len(found.Refused) {
		r.ids, r.claims = nil, 1
		return
	}
	r.claims = min(2*r.claims, mostReadAhead)
}
