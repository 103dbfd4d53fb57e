package compensator

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/jitter"
)

// Rounds of purging begin every keepEvery, and work for keepFor at most, in steps of keepStep entries, each followed by a rest
// of keepRest times as long. The round of a slot is whoever's process moves its mark: so there is one at a time.
const (
	keepEvery = time.Minute
	keepFor   = 45 * time.Second
	keepStep  = 100
	keepRest  = 4
	keepMark  = " keep" // no business type is called that
)

// badKeep is what is wrong with a Keep, if anything is. What is younger than others remember would have to be noted.
func badKeep(keep time.Duration) string {
	if keep == 0 {
		return ""
	}
	return badSpan(keep, engine.TestimonyLife)
}

// kept is what is purged by itself, and when.
type kept struct {
	mu    sync.Mutex // guards the fields below
	begun bool
	shelf []shelf
}

// shelf holds the ended entries of a type and state.
type shelf struct {
	businessType string
	state        State
	keep         time.Duration
}

// keep has a type's ended entries purged once they are older than that.
func (c *Compensator) keep(businessType string, keep time.Duration) error {
	if keep <= 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), slotTimeout)
	defer cancel()
	if err := c.keepHouse(ctx); err != nil {
		return err
	}
	c.kept.mu.Lock()
	defer c.kept.mu.Unlock()
	for _, state := range purged {
		c.kept.shelf = append(c.kept.shelf, shelf{businessType, state, keep})
	}
	return nil
}

// keepHouse has this process take part in the rounds.
func (c *Compensator) keepHouse(ctx context.Context) error {
	c.kept.mu.Lock()
	defer c.kept.mu.Unlock()
	if c.kept.begun {
		return nil
	}
	err := c.engine.Recur(ctx, engine.Period{Name: keepMark, Schedule: Every(keepEvery).Next, CatchUp: 1, Upkeep: true,
		Do: func(ctx context.Context, from time.Time, slots []time.Time) (bool, error) {
			moved, err := c.atSlot(ctx, keepMark, from, slots[len(slots)-1], func(context.Context, *ScopedTx) error { return nil })
			if err != nil || !moved {
				return moved, err
			}
			return true, c.purgeRound(ctx)
		}})
	c.kept.begun = err == nil
	return err
}

// purgeRound takes a step from each shelf in turn, until all are tidy or its time is over. It begins anywhere, so that a shelf
// behind a full one has its turn.
func (c *Compensator) purgeRound(ctx context.Context) error {
	c.kept.mu.Lock()
	first := int(jitter.N(time.Duration(len(c.kept.shelf) + 1)))
	shelves := slices.Concat(c.kept.shelf[first:], c.kept.shelf[:first])
	c.kept.mu.Unlock()
	for began := time.Now(); len(shelves) > 0 && time.Since(began) < keepFor; {
		s := shelves[0]
		n, err := c.purgeStep(ctx, s)
		if err != nil {
			return err
		}
		if shelves = shelves[1:]; n == keepStep {
			shelves = append(shelves, s)
		}
	}
	return nil
}

// purgeStep deletes a few entries, and rests.
func (c *Compensator) purgeStep(ctx context.Context, s shelf) (int, error) {
	step, cancel := context.WithTimeout(ctx, slotTimeout)
	defer cancel()
	began := time.Now()
	n, err := c.store.Purge(step, s.businessType, s.state, s.keep, keepStep)
	if err != nil || n == 0 {
		return n, err
	}
	rest := time.NewTimer(keepRest * time.Since(began))
	defer rest.Stop()
	select {
	case <-rest.C:
		return n, nil
	case <-ctx.Done():
		return n, ctx.Err()
	}
}
