package compensator

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
	return a, a != nil && a.hangsLocked()
}

// hangsLocked reports whether a handler is stuck that has not returned since.
func (a *attempt) hangsLocked() bool { return a.stuck && !a.anew && !a.returned.Load() }
