package engine

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/compensator-go/compensator/internal/groupcommit"
	"github.com/compensator-go/compensator/processlog"
)

// debts are leases that are to be given back and could not be: of claims whose end is not known, or that ran nothing.
// Left to end by themselves they would count as lost, and an entry that loses three is taken out as if it had killed a
// process each time.
type debts struct {
	*base
	lane groupcommit.Batcher[debt]
	some atomic.Bool // there is any: a claim asks for no more than this

	mu   sync.Mutex // guards the field below
	owed map[processlog.ID]int
}

// debt is what one write of ours may have leased.
type debt struct {
	ids   []processlog.ID
	token processlog.Token
}

func newDebts(b *base) *debts {
	d := &debts{base: b}
	d.lane.Max, d.lane.Workers, d.lane.Flush = 100, 1, d.payAll
	return d
}

// owe counts, because of two claims under way at once both may have asked for an entry.
func (d *debts) owe(ids []processlog.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range ids {
		setIn(&d.owed, id, d.owed[id]+1)
	}
	d.some.Store(true)
}

func (d *debts) paid(ids []processlog.ID) {
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
func (d *debts) without(want []processlog.Wanted) (rest []processlog.Wanted, owed []processlog.Scheduled) {
	if !d.some.Load() {
		return want, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	rest = slices.DeleteFunc(slices.Clone(want), func(w processlog.Wanted) bool {
		out := d.owed[w.ID] > 0
		if out {
			owed = append(owed, processlog.Scheduled{ID: w.ID, In: refusedRetry})
		}
		return out
	})
	return rest, owed
}

// release reports whether the leases are given back; otherwise they are owed. The first try is the caller's own, so that
// what is given back is free before anybody is told of it.
func (d *debts) release(ids []processlog.ID, token processlog.Token) bool {
	owed := debt{ids, token}
	if d.pay(owed) {
		return true
	}
	// Noted before it is handed over: paid first it would be owed for ever, and the entry never asked for here again.
	d.owe(owed.ids)
	d.lane.Add(owed)
	return false
}

// pay tries once.
func (d *debts) pay(owed debt) bool {
	ctx, cancel := d.statement()
	defer cancel()
	err := d.Store.Release(ctx, owed.ids, owed.token)
	d.saw(troubleRelease, err)
	return err == nil
}

// payAll tries until the database answers. What somebody else has claimed since carries another token, and stays his.
func (d *debts) payAll(batch []debt) {
	for _, owed := range batch {
		for failures := 1; !d.pay(owed); failures++ {
			if !d.pause(delay(settleBackoff, failures)) {
				return // closed: the leases end by themselves, and count
			}
		}
		d.paid(owed.ids)
	}
}
