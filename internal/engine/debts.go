package engine

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/groupcommit"
	"github.com/compensator-go/compensator/processlog"
)

// debts are leases that are to be given back and could not be: of claims whose end is not known, or that ran nothing.
// Left to end by themselves they would count as lost, and an entry that loses three is taken out as if it had killed a
// process each time.
type debts struct {
	*base
	announcer *announcer
	lane      groupcommit.Batcher[debt]
	some      atomic.Bool // there is any: a claim asks for no more than this

	mu   sync.Mutex // guards the field below
	owed map[processlog.ID]int
}

// debt is what one write of ours may have leased.
type debt struct {
	entries []processlog.Announcement
	offered bool // to whoever is free, once it is paid
	token   processlog.Token
	failed  int // tries
}

func (d *debt) ids() []processlog.ID {
	ids := make([]processlog.ID, len(d.entries))
	for i, e := range d.entries {
		ids[i] = e.ID
	}
	return ids
}

// debtParts is in how many parts a debt is paid of which a row is locked. A part with such a row waits two seconds for it, and
// the others for nothing, so that many are better than two.
const debtParts = 8

// after is what is left of a debt when paying it ended so: where a row is locked its parts, of which most can be paid.
func (d *debt) after(err error) []debt {
	if !errors.Is(err, processlog.ErrBusy) || len(d.entries) == 1 {
		return []debt{{d.entries, d.offered, d.token, d.failed + 1}}
	}
	var parts []debt
	for part := range slices.Chunk(d.entries, (len(d.entries)+debtParts-1)/debtParts) {
		parts = append(parts, debt{entries: part, offered: d.offered, token: d.token})
	}
	return parts
}

func newDebts(b *base, n *announcer) *debts {
	d := &debts{base: b, announcer: n}
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

// release gives leases back, and offers the entries to whoever is free if offered says so. What cannot be given back is owed.
// The first try is the caller's own, so that what is given back is free before anybody is told of it.
func (d *debts) release(entries []processlog.Announcement, offered bool, token processlog.Token) {
	owed := debt{entries: entries, offered: offered, token: token}
	err := d.pay(&owed)
	d.saw(troubleRelease, err)
	if err == nil {
		d.offer(&owed)
		return
	}
	// Noted before it is handed over: paid first it would be owed for ever, and the entry never asked for here again.
	d.owe(owed.ids())
	d.lane.Add(owed.after(err)...)
}

// pay tries once.
func (d *debts) pay(owed *debt) error {
	ctx, cancel := d.statement()
	defer cancel()
	return d.Store.Release(ctx, owed.ids(), owed.token)
}

func (d *debts) offer(paid *debt) {
	if paid.offered {
		failpoint.Reach(failpoint.ClaimReleased)
		d.announcer.announce(paid.entries)
	}
}

// payAll tries each debt once. What is left comes again, behind what has come meanwhile: one row may be locked for as long as
// somebody likes, and the others wait neither for it nor behind it. What somebody else has claimed since carries another token,
// and stays his.
func (d *debts) payAll(batch []debt) {
	var left []debt
	var why error
	fresh := false // of a debt there are parts now, which nobody has tried
	began := time.Now()
	for i := range batch {
		if time.Since(began) > statementTimeout {
			left = append(left, batch[i:]...) // enough of waiting for locks
			break
		}
		err := d.pay(&batch[i])
		if err == nil {
			d.paid(batch[i].ids())
			d.offer(&batch[i])
			continue
		}
		why = err
		again := batch[i].after(err)
		fresh = fresh || again[0].failed == 0
		if !errors.Is(err, processlog.ErrBusy) {
			// The database does not answer, or not to this one, which comes last now.
			left, fresh = append(append(left, batch[i+1:]...), again...), false
			break
		}
		left = append(left, again...)
	}
	d.saw(troubleRelease, why)
	// Closed, it adds nothing: the leases end by themselves, and count.
	if len(left) > 0 && (fresh || d.pause(delay(settleBackoff, max(1, left[len(left)-1].failed)))) {
		d.lane.Add(left...)
	}
}
