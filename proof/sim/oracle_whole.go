package sim

import (
	"slices"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// rebuilds takes note of when a rebuild begins.
func (o *oracle) rebuilds(token processlog.Token) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.rebuilding[token].IsZero() {
		o.rebuilding[token] = time.Now()
	}
}

// whole judges that types are called whole: of everything that waited when the rebuild began, and has waited since, the
// queue knows what comes due within the horizon. Where the queue goes back in time nobody can know, and where the
// database's clock jumps the horizon does.
func (o *oracle) whole(types []string, token processlog.Token) {
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
	for _, l := range o.lives {
		last := l.last()
		due := max(last.row.DueIn, last.row.LeaseLeft) - time.Since(last.at)
		if !slices.Contains(types, l.kind) || !last.at.Before(began) || due > o.w.plan.config.Horizon-time.Since(began)-slowest || l.everEnded() || l.blocked {
			continue
		}
		o.sights[sawWhole]++
		if !known[place{l.kind, l.id}] {
			o.failLocked("G10: %s is called whole, and entry %s, which is %s, is not in the queue", l.kind, l.id, last.row.State)
		}
	}
}

// everEnded reports whether the queue may have been told to forget the entry.
func (l *life) everEnded() bool {
	return slices.ContainsFunc(l.steps, func(t transition) bool { return t.row.State.Terminal() })
}
