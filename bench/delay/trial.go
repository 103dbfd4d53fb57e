package delay

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

type trial struct {
	entrant
	plan   plan
	place  place
	keeper *keeper

	killed, restarted int64 // µs since 1970
}

const recordLimit = 10 * time.Minute

func (e entrant) runTrial(tb testing.TB, p plan) (result, error) {
	place, err := e.prepare(tb)
	if errors.Is(err, errNotHere) {
		return result{Name: e.name, Setting: e.setting, NotHere: err.Error()}, nil
	}
	if err != nil {
		return result{}, err
	}
	t := &trial{entrant: e, plan: p, place: place}
	t.keeper = newKeeper(serviceConfig{Mechanism: e.name, Place: place, Plan: p}, tb.TempDir())
	tb.Cleanup(func() { _ = t.keeper.kill() }) // This ends the service if the trial ends early.
	if err := t.run(tb.Context()); err != nil {
		return result{}, err
	}
	left, err := e.unfinished(tb.Context(), place)
	if err != nil {
		return result{}, fmt.Errorf("read the numbers that the mechanism has left: %w", err)
	}
	return t.judge(left), nil
}

func (t *trial) run(ctx context.Context) error {
	if err := t.keeper.start(true); err != nil {
		return err
	}
	if err := t.awaitRecorded(ctx); err != nil {
		return err
	}
	began := time.UnixMicro(t.keeper.recorded())
	if err := sleepUntil(ctx, began.Add(t.plan.killAfter())); err != nil {
		return err
	}
	t.killed = now()
	if err := t.keeper.kill(); err != nil {
		return err
	}
	t.restarted = now()
	if err := t.keeper.start(false); err != nil {
		return err
	}
	last := began.Add(t.plan.Span) // No deadline is later than this.
	if err := sleepUntil(ctx, last); err != nil {
		return err
	}
	if err := t.awaitFired(ctx, last.Add(t.plan.Timeout)); err != nil {
		return err
	}
	return t.keeper.kill()
}

func (t *trial) awaitRecorded(ctx context.Context) error {
	limit := time.Now().Add(recordLimit)
	for t.keeper.recorded() == 0 {
		switch {
		case t.keeper.isOver():
			return t.keeper.kill() // The error holds the end of the service's log.
		case time.Now().After(limit):
			return fmt.Errorf("not recorded after %v", recordLimit)
		}
		if err := sleepUntil(ctx, time.Now().Add(20*time.Millisecond)); err != nil {
			return err
		}
	}
	return nil
}

// awaitFired waits until every deadline has fired and the store holds nothing that could fire again.
func (t *trial) awaitFired(ctx context.Context, end time.Time) error {
	for time.Now().Before(end) {
		if err := sleepUntil(ctx, time.Now().Add(2*time.Second)); err != nil {
			return err
		}
		if !t.keeper.allFired() {
			continue
		}
		left, err := t.unfinished(ctx, t.place)
		if err != nil {
			return fmt.Errorf("read the numbers that the mechanism has left: %w", err)
		}
		if len(left) == 0 {
			return nil
		}
	}
	return nil
}

func sleepUntil(ctx context.Context, at time.Time) error {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
