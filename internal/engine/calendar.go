package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/processlog"
)

// calendar has what recurs done: each process in Run looks, and the mark in the database decides who does it. Nobody leads,
// so that a slot never waits for the end of a leader's lease.
type calendar struct {
	*Base
	mu      sync.Mutex // guards periods
	periods []Period
}

// Period is something that is to be done once for each slot of a schedule.
type Period struct {
	Name     string // of its mark: the business type
	Schedule func(after time.Time) time.Time
	CatchUp  int // how many slots that have passed are done, the newest ones; at least 1

	// Problem is what Health says when Do fails, of maintenance alone: that takes its time, so it has a loop of its own, and what is
	// skipped of it is nobody's concern. "": the slots of a type.
	Problem string

	// Do does slots, which ascend, and moves the mark from there to the last, all or nothing. It reports false where
	// another process has moved the mark before. at is when the last one was, by the clock of this process.
	Do func(ctx context.Context, from time.Time, slots []time.Time, at time.Time) (bool, error)
}

func (p Period) maintenance() bool { return p.Problem != "" }

// problem is what fails when Do does.
func (p Period) problem() (what, businessType string) {
	if p.maintenance() {
		return p.Problem, ""
	}
	return problemSlot, p.Name
}

// longestRest bounds how long a look at the marks is put off: a suspended machine's timer, or a database's clock that was
// set, makes a slot no later than that.
var longestRest = time.Minute // longer in a test that lives a year

// add gives a period its mark unless it has one; a period whose mark exists goes on there. A schedule without another slot is logged and
// accepted, because it may have ended before this process began.
func (c *calendar) add(ctx context.Context, p Period) error {
	now, marks, err := c.Store.Marks(ctx, []string{p.Name})
	if _, found := marks[p.Name]; err == nil && !found {
		_, err = c.Store.BeginMark(ctx, p.Name)
	}
	if err != nil {
		return err
	}
	next, err := p.next(now)
	if err != nil {
		return err
	}
	if next.IsZero() {
		c.Log.Warn("compensator: the schedule of a periodic type has no slot any more, so that nothing is recorded", "type", p.Name, "after", now)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.ContainsFunc(c.periods, func(other Period) bool { return other.Name == p.Name }) {
		return &processlog.FieldError{Field: "business type", Reason: fmt.Sprintf("%q is periodic already", p.Name)}
	}
	c.periods = append(c.periods, p)
	return nil
}

func (c *calendar) all() []Period {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.periods)
}

// run makes rounds until ctx ends, and none where nothing recurs.
func (c *calendar) run(ctx context.Context) {
	for periods := c.all(); len(periods) > 0; {
		if !Rest(ctx, c.round(ctx, periods)) {
			return
		}
	}
}

// round does what is due, and returns when to look again.
func (c *calendar) round(ctx context.Context, periods []Period) (rest time.Duration) {
	names := make([]string, len(periods))
	for i, p := range periods {
		names[i] = p.Name
	}
	now, marks, err := c.marks(ctx, names)
	if err != nil {
		return c.PollInterval
	}
	failpoint.Reach(failpoint.MarksRead)
	read := time.Now()
	rest = longestRest
	for _, p := range periods {
		mark, found := marks[p.Name]
		if !found {
			c.beginAnew(ctx, p)
			rest = min(rest, c.PollInterval)
			continue
		}
		again, done, err := c.doSlots(ctx, p, mark, now, read)
		what, businessType := p.problem()
		if err != nil && ctx.Err() == nil {
			c.Problems.Failed(what, businessType, err)
		} else if err == nil && (done || !p.maintenance()) { // maintenance moves its mark first: that nothing is due says nothing of it
			c.Problems.Passed(what, businessType)
		}
		rest = min(rest, again)
	}
	return max(0, rest-time.Since(read))
}

// doSlots does a period's slots up to the database's now, which was read then, and returns when it is to be looked at again, and
// whether there were any, and were done here.
func (c *calendar) doSlots(ctx context.Context, p Period, mark, now, read time.Time) (again time.Duration, done bool, err error) {
	due, err := p.since(ctx, mark, now)
	if err != nil {
		return c.PollInterval, false, err
	}
	again = longestRest
	if !due.next.IsZero() {
		again = due.next.Sub(now)
	}
	if len(due.slots) == 0 {
		return again, false, nil
	}
	last := due.slots[len(due.slots)-1]
	moved, err := p.Do(ctx, mark, due.slots, read.Add(last.Sub(now)))
	if err != nil || !moved { // a mark that another process holds may stay where it is
		return min(again, c.PollInterval), false, err
	}
	if due.skipped > 0 && !p.maintenance() {
		c.Log.Warn("compensator: slots of a periodic type have passed while no process ran, and are not made up for",
			"type", p.Name, "slots", due.skipped, "since", mark, "made_up_for", len(due.slots))
	}
	return again, true, nil
}

// beginAnew gives a period a mark that has had one since add: somebody has deleted it. How far the period had come is gone
// with it.
func (c *calendar) beginAnew(ctx context.Context, p Period) {
	ctx, cancel := context.WithTimeout(ctx, StatementTimeout)
	defer cancel()
	begun, err := c.Store.BeginMark(ctx, p.Name)
	if ctx.Err() != context.Canceled {
		c.Saw(problemMarks, err)
	}
	if begun && !p.maintenance() {
		c.Log.Warn("compensator: the mark of a periodic type was deleted, and begins anew: slots that have passed since its last one are not made up for",
			"type", p.Name)
	}
}

func (c *calendar) marks(ctx context.Context, names []string) (time.Time, map[string]time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, StatementTimeout)
	defer cancel()
	now, marks, err := c.Store.Marks(ctx, names)
	if ctx.Err() != context.Canceled {
		c.Saw(problemMarks, err)
	}
	return now, marks, err
}

// due is what a schedule has from one moment to another.
type due struct {
	slots   []time.Time // the newest CatchUp of them
	skipped int         // older ones
	next    time.Time   // the one after; zero: there is none
}

// since lists the slots after a mark up to now. The schedule is asked for one after the other, as one whose slots follow
// from those before must be.
func (p Period) since(ctx context.Context, mark, now time.Time) (d due, err error) {
	for d.next = mark; ; d.slots = append(d.slots, d.next) {
		if d.next, err = p.next(d.next); err != nil {
			return due{}, err
		}
		if done := d.next.IsZero() || d.next.After(now); done || len(d.slots) == 2*p.CatchUp {
			older := max(0, len(d.slots)-p.CatchUp)
			d.skipped += older
			d.slots = append(d.slots[:0], d.slots[older:]...)
			if err := ctx.Err(); done || err != nil { // a year of seconds takes its time
				return d, err
			}
		}
	}
}

// next asks the schedule, which is the user's code. A slot is a whole millisecond, and never early for it.
func (p Period) next(after time.Time) (next time.Time, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &processlog.FieldError{Field: "schedule", Reason: "panicked: " + usererr.PanicText(r)}
		}
	}()
	next = p.Schedule(after)
	if next.IsZero() {
		return next, nil
	}
	if whole := next.Truncate(time.Millisecond); whole.Before(next) {
		next = whole.Add(time.Millisecond)
	}
	if !next.After(after) {
		return time.Time{}, &processlog.FieldError{Field: "schedule", Reason: fmt.Sprintf("does not go on: after %v comes %v", after, next)}
	}
	return next.UTC(), nil
}
