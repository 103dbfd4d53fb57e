package chaos

import (
	"context"
	"errors"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/proof/chaos/history"
)

func (p *appProcess) attempt(ctx context.Context, e *compensator.Entry, perform func(run uint64) verdict) error {
	run := p.begin(e, 0)
	defer func() {
		if panicked := recover(); panicked != nil {
			p.end(ctx, e, run, verdict{outcome: history.OutcomePanic})
			panic(panicked)
		}
	}()
	v := perform(run)
	p.end(ctx, e, run, v)
	return v.err
}

func (p *appProcess) begin(e *compensator.Entry, batch int) (run uint64) {
	run = p.runs.Add(1)
	p.write(&history.Attempt{
		At: history.Now(), Run: run, ID: e.ID.Row(), Key: string(e.IdempotencyKey), Version: e.Version, Epoch: e.Epoch, Attempt: e.Attempt(),
		State: int8(e.State), Compensation: e.State == compensator.Compensating, Batch: batch, Hash: history.Hash(e.Content), NextAt: e.NextAt.UnixMilli(),
	})
	return run
}

func (p *appProcess) end(ctx context.Context, e *compensator.Entry, run uint64, v verdict) {
	p.write(&history.AttemptEnd{At: history.Now(), Run: run, ID: e.ID.Row(), Outcome: v.outcome, AfterMS: v.after.Milliseconds(), Cause: causeOf(ctx)})
}

func causeOf(ctx context.Context) string {
	switch cause := context.Cause(ctx); {
	case cause == nil:
		return ""
	case errors.Is(cause, compensator.ErrLeaseLost):
		return history.CauseLeaseLost
	case errors.Is(cause, compensator.ErrCancelled):
		return history.CauseCancelled
	case errors.Is(cause, compensator.ErrStopping):
		return history.CauseStopping
	case errors.Is(cause, compensator.ErrTimeout):
		return history.CauseTimeout
	}
	return history.CauseOther
}
