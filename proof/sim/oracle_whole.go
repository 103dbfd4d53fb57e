package sim

import (
	"slices"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

func (o *oracle) noteRebuild(token processlog.Token) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.rebuilding[token].IsZero() {
		o.rebuilding[token] = time.Now()
	}
}

// checkRebuilt is called when an instance reports that the queue holds all entries of some types again. It asserts that
// the queue holds each entry that existed when the rebuild began, and that is due within Config.Horizon.
//
// checkRebuilt asserts nothing in a seed (a simulated run) in which the queue goes back in time or the database's clock
// jumps. In such a seed, the oracle does not know which entries are due within the horizon.
func (o *oracle) checkRebuilt(types []string, token processlog.Token) {
	if o.w.plan.active[queueBack] || o.w.plan.active[storeJump] {
		return
	}
	type place struct {
		kind string
		id   compensator.EntryID
	}
	known := make(map[place]bool)
	for _, m := range o.w.queue.Members() {
		known[place{m.BusinessType, m.ID}] = true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	began := o.rebuilding[token]
	for _, l := range o.histories {
		last := l.last()
		due := max(last.row.DueIn, last.row.LeaseLeft) - time.Since(last.at)
		if !slices.Contains(types, l.kind) || !last.at.Before(began) || due > o.w.plan.config.Horizon-time.Since(began)-slowest || l.everEnded() || l.blocked {
			continue
		}
		o.sights[sawWhole]++
		if !known[place{l.kind, l.id}] {
			o.failLocked("G10: the queue reports that it holds all entries of type %s, but it lacks entry %s, which is %s", l.kind, l.id, last.row.State)
		}
	}
}

func (l *rowHistory) everEnded() bool {
	return slices.ContainsFunc(l.steps, func(t transition) bool { return t.row.State.Terminal() })
}
