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

// hanging lists, by type, the entries whose handlers are stuck here where they leave no slot free: a claim of others would
// meet them, one of ours needs a slot.
func (d *dispatcher) hanging() map[*handlerType][]EntryID {
	d.mu.Lock()
	defer d.mu.Unlock()
	var byType map[*handlerType][]EntryID
	for _, a := range d.held {
		if a.hangsLocked() && a.t.slots.free() == 0 {
			setIn(&byType, a.t, append(byType[a.t], a.row.ID))
		}
	}
	return byType
}

// countHanging claims those to count a lease against them, and takes out what has lost its last. Nothing of it runs.
func (c *Compensator) countHanging() {
	for t, ids := range c.dispatcher.hanging() {
		found, err := c.claimOnly(t, unleased(ids), len(ids), true)
		if err != nil {
			continue // the next round tries again
		}
		t.slots.overdraw(len(found.Mine)) // as a claim that needed a slot would have it
		c.startClaimed(t, found.Mine, found.asked, 0)
	}
}
