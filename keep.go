package compensator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/jitter"
	"github.com/compensator-go/compensator/processlog"
)

// A round of purging is for a slot, one every keepEvery, and ends keepFor after it, however late it began. It deletes keepStep
// entries, rests keepRest times as long as that took, and goes on. Whoever moves the mark to the slot makes its round: so there is
// one at a time.
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
	mu    sync.Mutex // guards the shelf
	shelf []shelf    // one of each type and state

	begin chan struct{} // of capacity 1: holds a token while somebody begins
	begun bool          // guarded by begin
}

// shelf holds the ended entries of a type and state.
type shelf struct {
	businessType string
	state        State
	keep         time.Duration
}

// shelve has a type's ended entries purged once they are older than that, or than what was said before, whichever is shorter.
func (c *Compensator) shelve(businessType string, keep time.Duration) {
	if keep <= 0 {
		return
	}
	c.kept.mu.Lock()
	defer c.kept.mu.Unlock()
	for _, state := range purged {
		i := slices.IndexFunc(c.kept.shelf, func(s shelf) bool { return s.businessType == businessType && s.state == state })
		if i < 0 {
			c.kept.shelf = append(c.kept.shelf, shelf{businessType, state, keep})
		} else {
			c.kept.shelf[i].keep = min(c.kept.shelf[i].keep, keep)
		}
	}
}

// keepHouse makes this process take part in the rounds, if something is kept for a while only. It asks the database, so it holds no
// mutex meanwhile. A second caller waits for the first, and asks again if that failed.
func (c *Compensator) keepHouse(ctx context.Context, keep time.Duration) error {
	if keep <= 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, slotTimeout)
	defer cancel()
	select {
	case c.kept.begin <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("compensator: wait to take part in purging: %w", ctx.Err())
	}
	defer func() { <-c.kept.begin }()
	if c.kept.begun {
		return nil
	}
	err := c.upkeep(ctx, keepMark, keepEvery, engine.TroublePurge, func(ctx context.Context, _, end time.Time) error { return c.purgeRound(ctx, end) })
	c.kept.begun = err == nil
	return err
}

// upkeep has this process take part in rounds, each of which is whoever's process moves the mark to its slot, and has until end.
func (c *Compensator) upkeep(ctx context.Context, mark string, every time.Duration, trouble string, round func(ctx context.Context, slot, end time.Time) error) error {
	return c.engine.Recur(ctx, engine.Period{Name: mark, Schedule: Every(every).Next, CatchUp: 1, Trouble: trouble,
		Do: func(ctx context.Context, from time.Time, slots []time.Time, at time.Time) (bool, error) {
			slot := slots[len(slots)-1]
			moved, err := c.atSlot(ctx, mark, from, slot, func(context.Context, *ScopedTx) error { return nil })
			if err != nil || !moved {
				return moved, err
			}
			return true, round(ctx, slot, at.Add(keepFor))
		}})
}

// purgeRound takes a step from each shelf in turn, until nothing is left or its time is over. It begins with any of them, so that a
// shelf behind a full one has its turn. A shelf of which nothing went waits for the next round. One of which fewer entries went than a
// step takes may have entries that somebody holds or refers to, and more behind them.
func (c *Compensator) purgeRound(ctx context.Context, end time.Time) error {
	c.kept.mu.Lock()
	first := int(jitter.N(time.Duration(len(c.kept.shelf) + 1)))
	shelves := slices.Concat(c.kept.shelf[first:], c.kept.shelf[:first])
	c.kept.mu.Unlock()
	var failed []error
	for len(shelves) > 0 && time.Now().Before(end) && ctx.Err() == nil {
		s := shelves[0]
		shelves = shelves[1:]
		n, err := c.purgeStep(ctx, s, end)
		if err != nil {
			failed = append(failed, err)
		}
		if n > 0 && (err == nil || errors.As(err, new(*processlog.RefusedError))) {
			shelves = append(shelves, s)
		}
	}
	return errors.Join(failed...)
}

// purgeStep deletes a few entries, and rests, but not beyond the end.
func (c *Compensator) purgeStep(ctx context.Context, s shelf, end time.Time) (int, error) {
	step, cancel := context.WithTimeout(ctx, slotTimeout)
	defer cancel()
	began := time.Now()
	n, err := c.store.Purge(step, s.businessType, s.state, s.keep, keepStep)
	if n > 0 {
		rest(ctx, min(keepRest*time.Since(began), time.Until(end)))
	}
	return n, err
}

// Purge deletes entries that reached one of states more than age before the call, a minute at least, in steps of at most
// 1,000 that no producer waits for, and returns how many; ctx ends it. Without states: succeeded, compensated and
// cancelled. Where Config.Operations is set it passes by dead ones, whose cases are open until somebody settles, cancels
// or requeues them. age is to be longer than any event may take to come again, as Config.Keep. Below an hour the audit
// table gets a note, by which other processes tell it from a loss. Entries that another transaction holds stay. So do those that the
// database refuses to delete, because a foreign key refers to one, say: a
// *processlog.RefusedError names them, and the count is of the others.
func (c *Compensator) Purge(ctx context.Context, age time.Duration, states ...State) (int, error) {
	if age < time.Minute {
		return 0, &FieldError{Field: "age", Reason: fmt.Sprintf("%v is less than 1m", age)}
	}
	if len(states) == 0 {
		states = purged
	}
	if c.cfg.Operations != nil {
		if states = slices.DeleteFunc(slices.Clone(states), func(s State) bool { return s == Dead }); len(states) == 0 {
			return 0, nil
		}
	}
	began := time.Now() // a purge may take long, and its note does not speak of what others see after it
	if age < engine.TestimonyLife {
		if err := c.store.Note(ctx, ActionPurge, ByHand{Actor: "Purge", Reason: fmt.Sprintf("entries older than %v", age)}); err != nil {
			return 0, err
		}
	}
	deleted := 0
	var failed []error
	for _, state := range states {
		for {
			n, err := c.store.Purge(ctx, "", state, age+time.Since(began), purgeStep)
			deleted += n
			if err != nil {
				failed = append(failed, err)
				if !errors.As(err, new(*processlog.RefusedError)) {
					return deleted, errors.Join(failed...)
				}
			}
			if n == 0 { // fewer than a step: somebody holds entries, and there may be more behind them
				break
			}
		}
	}
	return deleted, errors.Join(failed...)
}

// purged are the states in which an entry is nobody's concern any more.
var purged = []State{Succeeded, Compensated, Cancelled}

const purgeStep = 1000
