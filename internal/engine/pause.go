package engine

import (
	"context"
	"time"

	"github.com/compensator-go/compensator/internal/jitter"
)

// LookForPauses learns which types people have paused: they are claimed no more here, and entries of theirs are not born
// claimed; what runs goes on. On an error all stays as it was.
func (e *Engine) LookForPauses(ctx context.Context) {
	if e.Paused == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	paused, err := e.Paused(ctx)
	if ctx.Err() != context.Canceled {
		e.saw(troublePauses, err)
	}
	if err != nil {
		return
	}
	for _, name := range e.types.names() {
		e.types.named(name).slots.paused.Store(paused[name])
	}
}

// KeepPauses looks again and again, until ctx ends; where nobody can pause anything, not at all.
func (e *Engine) KeepPauses(ctx context.Context) {
	for e.Paused != nil {
		timer := time.NewTimer(e.ReconcileInterval + jitter.N(e.ReconcileInterval/5))
		select {
		case <-timer.C:
			e.LookForPauses(ctx)
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}
