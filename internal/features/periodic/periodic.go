// Package periodic does work once for each slot of a schedule. If several processes are in Run, one of them does it.
//
// Each period has a mark in the database: the last slot that was done. Every process reads the marks. The process that
// moves a mark does the slots in between. There is no leader, so no slot waits until a leader's lease ends.
package periodic

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/processlog"
)

// Health and the log show problemMarks when the marks cannot be read. They show problemSlot when a slot cannot be done.
const (
	problemMarks = "the slots of periodic types could not be looked for"
	problemSlot  = "a slot could not be recorded"
)

// longestRest is the longest time between two reads of the marks. It limits how late a slot is done if the machine was
// suspended, which stops timers, or if the database's clock was set. One test that runs for a year sets it longer.
var longestRest = time.Minute

// Period is work that is done once for each slot of a schedule.
type Period struct {
	// Name is the name of the mark. For a periodic type it is the business type.
	Name string

	// Schedule returns the first slot after a time, or the zero time if there is none.
	Schedule func(after time.Time) time.Time

	// CatchUp is the maximum number of missed slots that are done. The newest ones are chosen. It is at least 1.
	CatchUp int

	// Problem is the text in Health when Do fails. The empty string means that the period belongs to a periodic type.
	// Any other text means that the period is maintenance, whose skipped slots are not logged.
	Problem string

	// Do does the work of the slots, which are in ascending order. In the same transaction it moves the mark to the
	// last slot. It returns false if another process has moved the mark, so that it is no longer at the time
	// from. at is the last slot on the clock of this process.
	Do func(ctx context.Context, from time.Time, slots []time.Time, at time.Time) (bool, error)
}

func (p Period) maintenance() bool { return p.Problem != "" }

// problem returns the problem that Health shows when Do fails.
func (p Period) problem() (what, businessType string) {
	if p.maintenance() {
		return p.Problem, ""
	}
	return problemSlot, p.Name
}

// Calendar does the slots of its periods, one period after the other.
type Calendar struct {
	e       *engine.Engine
	mu      sync.Mutex // guards periods
	periods []Period
}

// New returns a calendar without periods.
func New(e *engine.Engine) *Calendar { return &Calendar{e: e} }

// Add adds a period before Run. A period without a mark in the database gets a new mark. A period with a mark continues
// from that mark.
//
// Add accepts a schedule that has no further slot, and logs a warning. Such a schedule may have ended before this
// process began.
func (c *Calendar) Add(ctx context.Context, p Period) error {
	if c.e.Running() {
		return fmt.Errorf("register %q: %w: register types before Run", p.Name, processlog.ErrRunning)
	}
	now, marks, err := c.e.Store.Marks(ctx, []string{p.Name})
	if _, found := marks[p.Name]; err == nil && !found {
		_, err = c.e.Store.BeginMark(ctx, p.Name)
	}
	if err != nil {
		return err
	}
	next, err := p.next(now)
	if err != nil {
		return err
	}
	if next.IsZero() {
		c.e.Log.Warn("compensator: the schedule of a periodic type has no slot any more, so that nothing is recorded", "type", p.Name, "after", now)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.ContainsFunc(c.periods, func(other Period) bool { return other.Name == p.Name }) {
		return &processlog.FieldError{Field: "business type", Reason: fmt.Sprintf("%q is periodic already", p.Name)}
	}
	c.periods = append(c.periods, p)
	return nil
}

func (c *Calendar) all() []Period {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.periods)
}

// Run does slots until ctx ends. It returns at once if there are no periods.
func (c *Calendar) Run(ctx context.Context) {
	for periods := c.all(); len(periods) > 0; {
		if !engine.Rest(ctx, c.round(ctx, periods)) {
			return
		}
	}
}

// round does the slots that are due. It returns the time until the next round.
func (c *Calendar) round(ctx context.Context, periods []Period) (rest time.Duration) {
	names := make([]string, len(periods))
	for i, p := range periods {
		names[i] = p.Name
	}
	now, marks, err := c.marks(ctx, names)
	if err != nil {
		return c.e.PollInterval
	}
	failpoint.Reach(failpoint.MarksRead)
	read := time.Now()
	rest = longestRest
	for _, p := range periods {
		mark, found := marks[p.Name]
		if !found {
			c.beginAnew(ctx, p)
			rest = min(rest, c.e.PollInterval)
			continue
		}
		again, done, err := c.doSlots(ctx, p, mark, now, read)
		what, businessType := p.problem()
		if err != nil && ctx.Err() == nil {
			c.e.Problems.Failed(what, businessType, err)
		} else if err == nil && (done || !p.maintenance()) { // Maintenance fails after it has moved its mark, so only work that was done ends its problem.
			c.e.Problems.Passed(what, businessType)
		}
		rest = min(rest, again)
	}
	return max(0, rest-time.Since(read))
}

// doSlots does the slots of a period that come after mark, up to now. The parameter now is the database's time. The
// parameter read is the time at which this process read it, by its own clock.
//
// doSlots returns the time until the period's next slot, and whether this process did any slots.
func (c *Calendar) doSlots(ctx context.Context, p Period, mark, now, read time.Time) (again time.Duration, done bool, err error) {
	due, err := p.since(ctx, mark, now)
	if err != nil {
		return c.e.PollInterval, false, err
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
	if err != nil || !moved { // Another process moves the mark and may fail, so look again soon.
		return min(again, c.e.PollInterval), false, err
	}
	if due.skipped > 0 && !p.maintenance() {
		c.e.Log.Warn("compensator: slots of a periodic type have passed while no process ran, and are not made up for",
			"type", p.Name, "slots", due.skipped, "since", mark, "made_up_for", len(due.slots))
	}
	return again, true, nil
}

// beginAnew gives a new mark to a period whose mark was deleted after Add. Slots that have passed since the deleted
// mark are not done.
func (c *Calendar) beginAnew(ctx context.Context, p Period) {
	ctx, cancel := context.WithTimeout(ctx, engine.StatementTimeout)
	defer cancel()
	begun, err := c.e.Store.BeginMark(ctx, p.Name)
	if ctx.Err() != context.Canceled {
		c.e.Saw(problemMarks, err)
	}
	if begun && !p.maintenance() {
		c.e.Log.Warn("compensator: the mark of a periodic type was deleted, and begins anew: slots that have passed since its last one are not made up for",
			"type", p.Name)
	}
}

// marks reads the database's clock and the marks of periods.
func (c *Calendar) marks(ctx context.Context, names []string) (time.Time, map[string]time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, engine.StatementTimeout)
	defer cancel()
	now, marks, err := c.e.Store.Marks(ctx, names)
	if ctx.Err() != context.Canceled {
		c.e.Saw(problemMarks, err)
	}
	return now, marks, err
}

// due holds the slots of a schedule between two moments.
type due struct {
	slots   []time.Time // the newest CatchUp slots
	skipped int         // number of older slots
	next    time.Time   // the first slot after the second moment; zero if there is none
}

// since lists the slots after mark, up to now. It asks the schedule for one slot at a time, because each slot may
// depend on the slot before it.
func (p Period) since(ctx context.Context, mark, now time.Time) (d due, err error) {
	for d.next = mark; ; d.slots = append(d.slots, d.next) {
		if d.next, err = p.next(d.next); err != nil {
			return due{}, err
		}
		if done := d.next.IsZero() || d.next.After(now); done || len(d.slots) == 2*p.CatchUp {
			older := max(0, len(d.slots)-p.CatchUp)
			d.skipped += older
			d.slots = append(d.slots[:0], d.slots[older:]...)
			if err := ctx.Err(); done || err != nil { // A year of slots a second apart takes long, so stop when Run ends.
				return d, err
			}
		}
	}
}

// next returns the schedule's first slot after a time, rounded up to a whole millisecond. The schedule is user code, so
// next turns a panic into an error.
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
