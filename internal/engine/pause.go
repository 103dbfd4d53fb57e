package engine

import (
	"context"

	"github.com/compensator-go/compensator/internal/jitter"
)

// LookForPauses learns which types people have paused: they are claimed no more here, and entries of theirs are not born
// claimed; what runs goes on. On an error all stays as it was; and until a process has seen once what is paused, all is.
func (e *Engine) LookForPauses(ctx context.Context) {
	if e.Paused == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	paused, err := e.Paused(ctx)
	if ctx.Err() != context.Canceled {
		e.Saw(problemPauses, err)
	}
	known := err == nil || e.pausesKnown.Load()
	if err != nil && known {
		return
	}
	e.pausesKnown.Store(known)
	for _, name := range e.types.names() {
		if was := e.types.named(name).slots.paused.Swap(paused[name] || !known); was && known && !paused[name] {
			e.claimSchedule.poke()
		}
	}
}

// KeepPauses looks again and again, until ctx ends; where nobody can pause anything, not at all.
func (e *Engine) KeepPauses(ctx context.Context) {
	for e.Paused != nil {
		interval := e.ReconcileInterval
		if !e.pausesKnown.Load() {
			interval = e.PollInterval
		}
		if !Rest(ctx, interval+jitter.N(interval/5)) {
			return
		}
		e.LookForPauses(ctx)
	}
}
