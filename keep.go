package compensator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/features"
	"github.com/compensator-go/compensator/internal/jitter"
	"github.com/compensator-go/compensator/internal/sleep"
	"github.com/compensator-go/compensator/processlog"
)

// Purging runs in rounds. A round may begin at each multiple of keepEvery. This time is called a slot. A row in the
// database, the mark, holds the latest slot whose round has begun. The process that moves the mark to a new slot runs
// the round, so no other process purges for this slot.
//
// A round deletes up to keepStep entries at a time. After each deletion, the round pauses. The pause is keepRest times
// the duration of the deletion. The round ends when the time keepFor has passed since the slot.
const (
	keepEvery = time.Minute
	keepFor   = 45 * time.Second
	keepStep  = 100
	keepRest  = 4
	keepMark  = " keep" // name of the mark; it cannot be the name of a business type

	// A key of a Limit is idle if no entry with this key was allowed to start during the time limitsIdle. The rounds
	// delete idle keys.
	limitsMark    = " limits"
	limitsEvery   = time.Hour
	limitsIdle    = 24 * time.Hour
	problemLimits = "keys of limits that are not used could not be deleted"

	problemPurge = "ended entries could not be purged"
)

// keepProblem returns why a Keep is not allowed, or "". The minimum is engine.PurgeNoteAge, because a process remembers
// entries for this long after it has seen them. If such an entry is missing from the log, the process reports a
// rollback of the database. An entry that was purged early would cause this report.
func keepProblem(keep time.Duration) string {
	if keep == 0 {
		return ""
	}
	return spanProblem(keep, engine.PurgeNoteAge)
}

type purgeState struct {
	mu         sync.Mutex  // guards the retention
	retentions []retention // one element for each type and state

	// startToken lets only one call of startRounds run at a time. The channel has capacity 1. A call sends a value at
	// its beginning, and receives the value at its end.
	startToken chan struct{}
	// started holds the kinds of rounds, for example the purge, whose loop startRounds has started. The name of a kind is its
	// mark in the table of slots. Only startRounds
	// reads and writes the map, between the sending and the receiving of its value.
	started map[string]bool
}

type retention struct {
	businessType string
	state        State
	keep         time.Duration
}

// addRetention sets how long ended entries of a type are kept. If the type already has a duration, addRetention keeps
// the shorter one.
func (c *Compensator) addRetention(businessType string, keep time.Duration) {
	if keep <= 0 {
		return
	}
	c.purging.mu.Lock()
	defer c.purging.mu.Unlock()
	for _, state := range purgedStates {
		i := slices.IndexFunc(c.purging.retentions, func(s retention) bool { return s.businessType == businessType && s.state == state })
		if i < 0 {
			c.purging.retentions = append(c.purging.retentions, retention{businessType, state, keep})
		} else {
			c.purging.retentions[i].keep = min(c.purging.retentions[i].keep, keep)
		}
	}
}

func (c *Compensator) startPurging(ctx context.Context, keep time.Duration) error {
	if keep <= 0 {
		return nil
	}
	return c.startRounds(ctx, keepMark, keepEvery, problemPurge, func(ctx context.Context, _, end time.Time) error { return c.purgeRound(ctx, end) })
}

func (c *Compensator) startPurgingLimit(ctx context.Context, l *Limit) error {
	if l.Key == nil {
		return nil
	}
	return c.startRounds(ctx, limitsMark, limitsEvery, problemLimits, forKeepFor(func(ctx context.Context, _ time.Time) error {
		_, err := c.store.PurgeLimitKeys(ctx, limitsIdle)
		return err
	}))
}

// forKeepFor limits the duration of the function round to the constant keepFor. It returns a function that calls round
// with a context of this duration. The duration counts from this call and not from the slot. So a round that begins
// late may overlap with the next round, which does no harm.
func forKeepFor(round func(ctx context.Context, slot time.Time) error) func(ctx context.Context, slot, end time.Time) error {
	return func(ctx context.Context, slot, _ time.Time) error {
		ctx, cancel := context.WithTimeout(ctx, keepFor)
		defer cancel()
		return round(ctx, slot)
	}
}

// startRounds starts a loop that calls the function round at regular times: see startSlotLoop. The parameter mark is
// the name of a row in the database that holds the time of the latest round. If a loop for this mark runs already,
// startRounds does nothing. startRounds holds no mutex while it reads from the database. A second caller waits for the
// first caller, and tries again if the first caller failed.
func (c *Compensator) startRounds(ctx context.Context, mark string, interval time.Duration, problem string, round func(ctx context.Context, slot, end time.Time) error) error {
	ctx, cancel := context.WithTimeout(ctx, slotTimeout)
	defer cancel()
	select {
	case c.purging.startToken <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("compensator: wait to take part in purging: %w", ctx.Err())
	}
	defer func() { <-c.purging.startToken }()
	if c.purging.started[mark] {
		return nil
	}
	err := c.startSlotLoop(ctx, mark, interval, interval, problem, round)
	c.purging.started[mark] = err == nil
	return err
}

// startSlotLoop starts a loop that calls the function round at regular times. These times are called slots. The
// parameter interval is the time between two slots. In a process without work, idleInterval replaces interval: see
// features.Set.Busy.
//
// Several processes may run the same loop. The parameter mark is the name of a row in the database that holds the
// latest slot. For each slot, only the process that moves this row to the slot calls round.
func (c *Compensator) startSlotLoop(ctx context.Context, mark string, interval, idleInterval time.Duration, problem string, round func(ctx context.Context, slot, end time.Time) error) error {
	next := func(after time.Time) time.Time {
		if c.features.Busy() {
			return Every(interval).Next(after)
		}
		return Every(idleInterval).Next(after)
	}
	return c.features.Recur(ctx, features.Period{Name: mark, Schedule: next, CatchUp: 1, Problem: problem,
		Do: func(ctx context.Context, from time.Time, slots []time.Time, at time.Time) (bool, error) {
			slot := slots[len(slots)-1]
			moved, err := c.takeSlot(ctx, mark, from, slot)
			if err != nil || !moved {
				return moved, err
			}
			return true, round(ctx, slot, at.Add(keepFor))
		}})
}

// takeSlot reserves the round of a slot for this process. A slot is a time. takeSlot writes the slot into the row in
// the database that the parameter mark names. The result is false if another process has written the row first. If this
// process is killed after takeSlot, no process runs the round of this slot.
func (c *Compensator) takeSlot(ctx context.Context, mark string, from, slot time.Time) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, slotTimeout)
	defer cancel()
	moved, err := c.store.MoveMark(ctx, nil, mark, from, slot)
	if moved {
		failpoint.Reach(failpoint.SlotTaken)
	}
	return moved, err
}

// purgeRound deletes old entries in steps. Each step deletes entries of one retention, that is, of one type in one
// state. The first retention is random, so that a retention with many old entries does not delay the other retentions
// in every round.
//
// After a step that has deleted entries, the retention gets another step in this round. Even a small step does not show
// that all old entries are deleted, because a step skips locked entries. The retention gets no further step if a step
// deletes nothing or fails. One kind of error does not count as a failure here: the step has deleted entries, and the
// database has refused to delete other entries.
func (c *Compensator) purgeRound(ctx context.Context, end time.Time) error {
	c.purging.mu.Lock()
	first := int(jitter.N(time.Duration(len(c.purging.retentions) + 1)))
	remaining := slices.Concat(c.purging.retentions[first:], c.purging.retentions[:first])
	c.purging.mu.Unlock()
	var failed []error
	for len(remaining) > 0 && time.Now().Before(end) && ctx.Err() == nil {
		s := remaining[0]
		remaining = remaining[1:]
		n, err := c.purgeStep(ctx, s, end)
		if err != nil {
			failed = append(failed, err)
		}
		if n > 0 && (err == nil || errors.As(err, new(*processlog.RefusedError))) {
			remaining = append(remaining, s)
		}
	}
	return errors.Join(failed...)
}

func (c *Compensator) purgeStep(ctx context.Context, s retention, end time.Time) (int, error) {
	step, cancel := context.WithTimeout(ctx, slotTimeout)
	defer cancel()
	began := time.Now()
	n, err := c.store.Purge(step, s.businessType, s.state, s.keep, keepStep)
	if n > 0 {
		sleep.For(ctx, min(keepRest*time.Since(began), time.Until(end)))
	}
	return n, err
}

var purgedStates = []State{Succeeded, Compensated, Cancelled}
