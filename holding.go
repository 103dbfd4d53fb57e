package compensator

import "time"

// holding is what a process can hold one of: an entry within one epoch. A person's Requeue begins another.
type holding struct {
	id    EntryID
	epoch uint32
}

func (a *attempt) holding() holding { return holding{a.row.ID, a.row.Epoch} }

// holds returns the attempt by which this process runs an entry of this epoch, or waits for its outcome to be stored,
// and whether its handler is stuck; nil: none.
func (d *dispatcher) holds(row *Row) (a *attempt, stuck bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a = d.held[holding{row.ID, row.Epoch}]
	return a, a != nil && a.stuck && !a.returned
}

// leftEntries are those that this process was offered and has left alone, for as long as it may: somebody else may have
// something to say.
type leftEntries struct {
	seen  map[EntryID]sighting
	swept time.Time
}

// sighting is how long an entry has been offered as the same version.
type sighting struct {
	version     uint64
	first, last time.Time
}

// forgetLeft is how long an entry that is not offered any more is remembered.
const forgetLeft = time.Minute

// leftFor reports whether an entry has been nobody's for at least wait: its last lease ended so long ago, and nobody has
// written to it since this process was first offered it. The second matters after an outage, which lets leases end and
// keeps outcomes from being stored.
func (d *dispatcher) leftFor(row *Row, wait time.Duration) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	s, known := d.left.seen[row.ID]
	if !known || s.version != row.Version {
		d.left.sweep(now)
		s = sighting{version: row.Version, first: now}
	}
	s.last = now
	d.left.seen[row.ID] = s
	return -row.LeaseLeft >= wait && now.Sub(s.first) >= wait
}

// sweep forgets, now and then, what is not offered any more.
func (l *leftEntries) sweep(now time.Time) {
	if now.Sub(l.swept) < forgetLeft {
		return
	}
	l.swept = now
	fresh := make(map[EntryID]sighting)
	for id, s := range l.seen {
		if now.Sub(s.last) < forgetLeft {
			fresh[id] = s
		}
	}
	l.seen = fresh
}
