package verdict

const settleSlack = 10_000_000 // in µs

// checkQueue requires that the queue offers each open entry in time. The score of a member is the time from which the
// queue offers the entry. An entry can be claimed from its due time on, or from the end of its lease if this is later.
// The score may be later by at most the longest lease plus settleSlack.
func checkQueue(l *Ledger, c *Check) {
	members := make(map[uint64]float64, len(l.Members))
	stale := 0
	lease := l.longestLease()
	for _, m := range l.Members {
		members[m.ID] = m.Score - float64(m.Now)/1000 // remaining time in ms
		e := l.Entries[m.ID]
		if e != nil && e.row != nil && !terminal(e.row.State) {
			if e.Type != m.Type {
				c.violate(e, []Place{e.rowPlace}, "is in the queue of the type %q", m.Type)
			}
			continue
		}
		stale++
		t := l.types[m.Type]
		if t != nil && t.Handler != "none" && members[m.ID]*1000 < -float64(lease*1000+settleSlack) {
			c.violate(e, nil, "entry %d is settled, and the queue of %q still holds it %.0f ms after its due time", m.ID, m.Type, -members[m.ID])
		}
	}
	l.eachEntry(func(e *Entry) {
		if e.row == nil || terminal(e.row.State) {
			return
		}
		in := max(e.row.NextAt, e.row.LeaseUntil) - e.row.DBNow/1000
		if e.row.NextAt-e.row.DBNow/1000 > l.Run.HorizonMS {
			return
		}
		c.Looked++
		remaining, known := members[e.ID]
		switch {
		case !known:
			c.violate(e, []Place{e.rowPlace}, "is open and due in %d ms, and not in the queue", in)
		case remaining > float64(max(in, 0)+lease+settleSlack/1000):
			c.violate(e, []Place{e.rowPlace}, "is due in %d ms, and the queue offers it only in %.0f ms", in, remaining)
		}
	})
	c.note("%d members, %d of them hold no open entry", len(l.Members), stale)
}

func (l *Ledger) longestLease() int64 {
	var longest int64
	for _, t := range l.types {
		longest = max(longest, t.LeaseMS)
	}
	return longest
}
