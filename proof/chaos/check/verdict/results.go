package verdict

import (
	"slices"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

type waited struct {
	history.Waited
	place Place
}

// checkResults requires that an entry has a result of its current epoch if, and only if, its handler succeeded in this
// epoch.
func checkResults(l *Ledger, c *Check) {
	l.eachEntry(func(e *Entry) {
		last, exists := e.last()
		t := l.typeOf(e)
		want := exists && t != nil && t.Returns && last.state == succeeded && last.endedBy == "handler"
		row := e.result
		has := row != nil && exists && row.Epoch == last.epoch
		switch {
		case row != nil && !exists:
			c.violate(e, append(e.allLines(), e.resultPlace), "was purged, and its result was not")
		case row != nil && (t == nil || !t.Returns):
			c.violate(e, []Place{e.resultPlace}, "has a result, and its type returns none")
		case has && !want:
			c.violate(e, append(e.lines(last.version), e.resultPlace), "has a result in epoch %d, and no success of its handler", last.epoch)
		case want && !has:
			c.violate(e, e.lines(last.version), "has a success of its handler in epoch %d, and no result", last.epoch)
		case want:
			c.Looked++
			if !l.returned(e, row.Result, last.epoch) {
				c.violate(e, append(e.lines(last.version), e.resultPlace), "has the result of entry %d, version %d, which no attempt of its epoch returned", row.Result.ID, row.Result.Version)
			}
		}
	})
	for i := range l.waits {
		l.checkWait(&l.waits[i], c)
	}
}

func (l *Ledger) checkWait(w *waited, c *Check) {
	c.Looked++
	e := l.Entries[w.ID]
	lines := []Place{w.place}
	stored := e != nil && slices.ContainsFunc(e.steps, func(s step) bool {
		return s.move != moveDelete && s.new.version == w.Version && s.new.state == w.State && s.new.epoch == w.Epoch
	})
	switch {
	case w.Key != w.Asked || e != nil && e.Key != w.Asked:
		c.violate(e, lines, "a wait for %q returned entry %d of key %q", w.Asked, w.ID, w.Key)
	case !stored || !terminal(w.State):
		c.violate(e, lines, "a wait returned version %d in state %d, which was never stored so", w.Version, w.State)
	case (w.Err == "") != (w.State == succeeded):
		c.violate(e, lines, "a wait returned state %d with the error %q", w.State, w.Err)
	case w.Result != nil && !l.returned(e, *w.Result, w.Epoch):
		c.violate(e, lines, "a wait returned the result of entry %d, version %d, which no attempt of its epoch returned", w.Result.ID, w.Result.Version)
	}
}

func (l *Ledger) returned(e *Entry, r history.Result, epoch uint32) bool {
	if r.ID != e.ID || !slices.ContainsFunc(e.attempts, func(a attempt) bool {
		return a.version == r.Version && a.epoch == epoch && !a.compensation && a.outcome == history.OutcomeOK
	}) {
		return false
	}
	return !l.transactional(e, pending) || slices.ContainsFunc(e.effects, func(row history.EffectRow) bool {
		return row.Epoch == epoch && row.Version == r.Version && !row.Compensation
	})
}
