// Package periodic does work once for each slot of a schedule. A slot is one of the times that the schedule returns.
//
// Each period has a mark in the database: the last slot for which a process took over the work. Every process reads the
// marks. If slots have passed since a mark, one process moves the mark to the newest of these slots. This process alone
// does the work of the slots that have passed.
package periodic

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/sleep"
	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/processlog"
)

const (
	problemMarks = "the slots of periodic types could not be looked for"
	problemSlot  = "a slot could not be recorded"
)

// maxPause is the longest pause between two searches for due slots. It limits how late the work of a slot begins in two
// cases:
//
//   - The machine was suspended, so the timers of this process stood still.
//   - Somebody has set the database's clock.
//
// One test uses a longer pause.
var maxPause = time.Minute

// maxRest is the longest time between two reads of the marks if all periods are maintenance.
const maxRest = 4 * time.Minute

// Period is work that is done once for each slot of a schedule.
type Period struct {
	// Name is the name of the period's mark in the database. The mark is the last slot for which a process took over
	// the work. For a periodic type, Name is the business type.
	Name string

	// Schedule returns the first slot after a time, or the zero time if there is none.
	Schedule func(after time.Time) time.Time

	// CatchUp is the maximum number of missed slots that are made up for, at least 1. If more slots were missed, only
	// the newest CatchUp slots are made up for.
	CatchUp int

	// Problem is empty for a periodic type. For maintenance work of the library, Problem is the text that Health shows when
	// Do fails. Skipped slots are logged for periodic types only.
	Problem string

	// Do moves the period's mark to the last slot of the parameter slots, and does the work of all these slots. The
	// slots are in ascending order. The parameter from is the mark before the move. The parameter lastSlot is the time
	// of the last slot on the clock of this process. Do returns false if another process has moved the mark, or is
	// moving the mark.
	//
	// For a periodic type, one transaction moves the mark and does the work. Maintenance first moves the mark, and then
	// does the work. If this work fails, no process does the work of these slots again.
	Do func(ctx context.Context, from time.Time, slots []time.Time, lastSlot time.Time) (bool, error)
}

func (p Period) maintenance() bool { return p.Problem != "" }

func (p Period) problemText() (what, businessType string) {
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

// Add adds a period before Run.
//
// Add accepts a schedule that has no further slot, and logs a warning.
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
	next, err := p.NextSlot(now)
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

func (c *Calendar) allPeriods() []Period {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.periods)
}

// EachPeriod calls f for each period, in the order in which they were added.
func (c *Calendar) EachPeriod(f func(p Period)) {
	for _, p := range c.allPeriods() {
		f(p)
	}
}

// Run does the due slots of all periods until ctx ends. It returns at once if there are no periods.
func (c *Calendar) Run(ctx context.Context) {
	for periods := c.allPeriods(); len(periods) > 0; {
		pause, seen := c.runRound(ctx, periods)
		for pause >= 0 {
			if !sleep.For(ctx, pause) {
				return
			}
			pause = seen.rest(periods)
		}
	}
}

type reading struct {
	now    time.Time            // the database's time
	readAt time.Time            // when the database's time was read, by the clock of this process
	marks  map[string]time.Time // marks after the round; nil if the next round must read the marks again
}

// rest returns how long this process can wait before it reads the marks again. The result is negative if the marks must
// be read now.
func (r *reading) rest(periods []Period) time.Duration {
	const begin = -1
	since := time.Since(r.readAt)
	rest := maxRest - since
	if r.marks == nil || rest <= 0 || !allMaintenance(periods) {
		return begin
	}
	for _, p := range periods {
		next, err := p.NextSlot(r.marks[p.Name])
		if err != nil {
			return begin
		}
		if !next.IsZero() {
			rest = min(rest, next.Sub(r.now)-since)
		}
	}
	if rest <= 0 {
		return begin
	}
	return min(rest, maxPause)
}

func allMaintenance(periods []Period) bool {
	return !slices.ContainsFunc(periods, func(p Period) bool { return !p.maintenance() })
}

func (c *Calendar) runRound(ctx context.Context, periods []Period) (pause time.Duration, seen reading) {
	names := make([]string, len(periods))
	for i, p := range periods {
		names[i] = p.Name
	}
	now, marks, err := c.readMarks(ctx, names)
	if err != nil {
		return c.e.PollInterval, seen
	}
	failpoint.Reach(failpoint.MarksRead)
	readAt := time.Now()
	pause, seen = maxPause, reading{now, readAt, marks}
	for _, p := range periods {
		mark, found := marks[p.Name]
		if !found {
			c.replaceMark(ctx, p)
			pause, seen.marks = min(pause, c.e.PollInterval), nil
			continue
		}
		untilNext, newMark, err := c.doSlots(ctx, p, mark, now, readAt)
		what, businessType := p.problemText()
		if err != nil && ctx.Err() == nil {
			c.e.Problems.Failed(what, businessType, err)
		} else if err == nil && (newMark.After(mark) || !p.maintenance()) {
			// Maintenance moves its mark before it works. If the work fails, the next round finds no due slot, because
			// the mark has moved already. The next round then gets no error, although the work has not succeeded since.
			// So the problem of maintenance ends only after a round that has moved the mark without an error.
			c.e.Problems.Passed(what, businessType)
		}
		pause = min(pause, untilNext)
		if marks[p.Name] = newMark; newMark.IsZero() {
			seen.marks = nil
		}
	}
	return max(0, pause-time.Since(readAt)), seen
}

// doSlots does the work of the slots of the period p between its mark and the database's time. The mark is the last
// slot for which a process took over the work.
//
// The parameter now is the database's time. The parameter readAt is the time on the clock of this process at which the
// database's time was read. The result untilNext is the time until this process must look for slots again. The result
// newMark is the new mark, or zero if this process does not know the new mark.
func (c *Calendar) doSlots(ctx context.Context, p Period, mark, now, readAt time.Time) (untilNext time.Duration, newMark time.Time, err error) {
	var found dueSlots
	if problem := usererr.Contain(func() { found, err = p.slotsSince(ctx, mark, now) }); problem != "" {
		err = &processlog.FieldError{Field: "schedule", Reason: problem}
	}
	if err != nil {
		return c.e.PollInterval, time.Time{}, err
	}
	untilNext = maxPause
	if !found.nextSlot.IsZero() {
		untilNext = found.nextSlot.Sub(now)
	}
	if len(found.slots) == 0 {
		return untilNext, mark, nil
	}
	last := found.slots[len(found.slots)-1]
	moved, err := p.Do(ctx, mark, found.slots, readAt.Add(last.Sub(now)))
	// Read the marks again soon. After an error, this process does not know the present mark. If Do has returned false
	// without an error, another process has moved the mark, or is moving the mark in a transaction that may roll back.
	if err != nil || !moved {
		return min(untilNext, c.e.PollInterval), time.Time{}, err
	}
	if found.skipped > 0 && !p.maintenance() {
		c.e.Log.Warn("compensator: slots of a periodic type have passed while no process ran, and are not made up for",
			"type", p.Name, "slots", found.skipped, "since", mark, "made_up_for", len(found.slots))
	}
	return untilNext, last, nil
}

// replaceMark creates a missing mark at the database's current time. So the slots between a deleted mark and the new
// one are skipped.
func (c *Calendar) replaceMark(ctx context.Context, p Period) {
	ctx, cancel := context.WithTimeout(ctx, engine.StatementTimeout)
	defer cancel()
	created, err := c.e.Store.BeginMark(ctx, p.Name)
	if ctx.Err() != context.Canceled {
		c.e.NoteResult(problemMarks, err)
	}
	if created && !p.maintenance() {
		c.e.Log.Warn("compensator: the mark of a periodic type was deleted, and begins anew: slots that have passed since its last one are not made up for",
			"type", p.Name)
	}
}

func (c *Calendar) readMarks(ctx context.Context, names []string) (time.Time, map[string]time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, engine.StatementTimeout)
	defer cancel()
	now, marks, err := c.e.Store.Marks(ctx, names)
	if ctx.Err() != context.Canceled {
		c.e.NoteResult(problemMarks, err)
	}
	return now, marks, err
}

type dueSlots struct {
	slots    []time.Time // the newest CatchUp slots
	skipped  int         // number of due slots that are older than those in slots
	nextSlot time.Time   // first slot after the database's present time; zero if there is none
}

// slotsSince asks the schedule for one slot at a time, because each slot may depend on the slot before it.
func (p Period) slotsSince(ctx context.Context, mark, now time.Time) (d dueSlots, err error) {
	for d.nextSlot = mark; ; d.slots = append(d.slots, d.nextSlot) {
		if d.nextSlot, err = p.NextSlot(d.nextSlot); err != nil {
			return dueSlots{}, err
		}
		if worked := d.nextSlot.IsZero() || d.nextSlot.After(now); worked || len(d.slots) == 2*p.CatchUp {
			older := max(0, len(d.slots)-p.CatchUp)
			d.skipped += older
			d.slots = append(d.slots[:0], d.slots[older:]...)
			// End the search when ctx ends. A search through a year with a slot each second takes long.
			if err := ctx.Err(); worked || err != nil {
				return d, err
			}
		}
	}
}

// NextSlot returns the schedule's first slot after a time, rounded up to a whole millisecond.
func (p Period) NextSlot(after time.Time) (next time.Time, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &processlog.FieldError{Field: "schedule", Reason: "panicked: " + usererr.PanicText(r)}
		}
	}()
	next = p.Schedule(after)
	if next.IsZero() {
		return next, nil
	}
	if truncated := next.Truncate(time.Millisecond); truncated.Before(next) {
		next = truncated.Add(time.Millisecond)
	}
	if !next.After(after) {
		return time.Time{}, &processlog.FieldError{Field: "schedule", Reason: fmt.Sprintf("does not go on: after %v comes %v", after, next)}
	}
	return next.UTC(), nil
}
