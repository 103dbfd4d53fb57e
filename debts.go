package compensator

import (
	"slices"
	"sync"
	"sync/atomic"
)

// debts are leases that are to be given back and could not be: of claims whose end is not known, or that ran nothing.
// Left to end by themselves they would count as lost, and an entry that loses three is taken out as if it had killed a
// process each time.
type debts struct {
	some atomic.Bool // there is any: a claim asks for no more than this

	mu   sync.Mutex // guards the field below
	owed map[EntryID]int
}

// debt is what one write of ours may have leased.
type debt struct {
	ids   []EntryID
	token Token
}

func (d *debts) owe(ids []EntryID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range ids {
		setIn(&d.owed, id, d.owed[id]+1)
	}
	d.some.Store(true)
}

func (d *debts) paid(ids []EntryID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range ids {
		if d.owed[id]--; d.owed[id] <= 0 {
			delete(d.owed, id)
		}
	}
	d.some.Store(len(d.owed) > 0)
}

// without leaves out of what a claim wants the entries that are owed: claimed anew, their lost lease could be given back no
// more.
func (d *debts) without(want []Wanted) (rest []Wanted, owed []Scheduled) {
	if !d.some.Load() {
		return want, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	rest = slices.DeleteFunc(slices.Clone(want), func(w Wanted) bool {
		out := d.owed[w.ID] > 0
		if out {
			owed = append(owed, Scheduled{ID: w.ID, In: refusedRetry})
		}
		return out
	})
	return rest, owed
}

// releaseIDs reports whether the leases are given back; otherwise they are owed.
func (c *Compensator) releaseIDs(ids []EntryID, token Token) bool {
	owed := debt{slices.Clone(ids), token}
	if c.pay(owed) {
		return true
	}
	c.debts.owe(owed.ids)
	c.debtLane.Add(owed)
	return false
}

// pay tries once.
func (c *Compensator) pay(d debt) bool {
	ctx, cancel := c.statement()
	defer cancel()
	err := c.store.Release(ctx, d.ids, d.token)
	c.saw(troubleRelease, err)
	return err == nil
}

// payDebts tries until the database answers. What somebody else has claimed since carries another token, and stays his.
func (c *Compensator) payDebts(batch []debt) {
	for _, owed := range batch {
		for failures := 1; !c.pay(owed); failures++ {
			if !c.pause(settleBackoff.delay(failures)) {
				return
			}
		}
		c.debts.paid(owed.ids)
	}
}
