// Package statistics counts what this process does with entries, and stores the counts of each minute.
//
// A minute is stored under a name that no other process has, so that a repeated write changes nothing. A process that
// is killed loses the counts that it has not stored yet.
package statistics

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/groupcommit"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

const problem = "statistics could not be stored"

// mostMinutes is the maximum number of minutes whose counts wait to be stored. While so many minutes wait, the counts
// of each further minute are lost.
const mostMinutes = 120

// longestPause is the longest pause between two tries to store counts, in seconds.
const longestPause = 30

// Store stores counts. See processlog.Operations.
type Store interface {
	StatsClock(ctx context.Context) (time.Time, error)
	WriteStats(ctx context.Context, instance string, at time.Time, stats []processlog.Stat) error
}

// Counter counts events by business type.
type Counter struct {
	e        *engine.Engine
	store    Store
	instance string // random name under which the database stores the counts of this process
	writer   groupcommit.Batcher[minute]

	mu    sync.Mutex // guards the fields below
	clock clock
	types map[string]*processlog.StatCounts // nil if nothing was counted
	at    time.Time                         // begin of the present minute, whose counts are in the field types
	next  time.Time                         // end of the last counted minute; no minute begins before it
	timer *time.Timer                       // ends the present minute
}

type minute struct {
	at    time.Time
	types map[string]*processlog.StatCounts
}

type clock struct{ read, here time.Time }

func (c clock) now() time.Time { return c.read.Add(time.Since(c.here)) }

// Attach makes a counter count what the engine does.
func Attach(e *engine.Engine, store Store) *Counter {
	c := &Counter{e: e, store: store, instance: rand.Text()}
	c.writer.Max, c.writer.Workers, c.writer.Bound, c.writer.Flush = mostMinutes, 1, mostMinutes, c.write
	e.Await(engine.WaitInClose, c)
	e.Observer = observe.Observers(observe.Observer{AttemptStarted: c.started, AttemptEnded: c.attemptEnded}, e.Observer)
	h := &e.Hooks
	h.Committed = append(h.Committed, c.recorded)
	h.Stored = append(h.Stored, c.stored)
	h.Moved = append(h.Moved, c.moved)
	return c
}

// Begin reads the database's clock. Call it before the engine does anything.
func (c *Counter) Begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, engine.StatementTimeout)
	defer cancel()
	asked := time.Now()
	now, err := c.store.StatsClock(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock = clock{now, asked}
	return err
}

// Done ends the present minute early, and returns a channel that is closed when its counts are stored. The engine
// calls Done at the end of its Close.
func (c *Counter) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endMinute()
	return c.writer.Done()
}

// Quiet reports whether no counts wait to be stored.
func (c *Counter) Quiet() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.types == nil && c.writer.Quiet()
}

// Busy reports whether an attempt runs in this process, or whether anything was counted in the present minute or in the minute
// before.
func (c *Counter) Busy() bool {
	if len(c.e.Held(func(engine.HeldAttempt) bool { return true })) > 0 {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.types != nil || c.clock.now().Before(c.next.Add(processlog.StatMinute))
}

// The method named of returns the counts of a business type in the present minute. It begins a minute if none is open.
// After the engine was closed, no minute begins and the result is nil. The caller holds c.mu.
func (c *Counter) of(businessType string) *processlog.StatCounts {
	if c.types == nil && c.e.Work.Err() != nil {
		return nil
	}
	if c.types == nil {
		c.beginMinute()
	}
	counts := c.types[businessType]
	if counts == nil {
		counts = new(processlog.StatCounts)
		c.types[businessType] = counts
	}
	return counts
}

// beginMinute takes the minute after the last counted one if the database's clock was set back, because counts of a
// stored minute must not change.
func (c *Counter) beginMinute() {
	now := c.clock.now()
	c.at = now.Truncate(processlog.StatMinute)
	left := c.at.Add(processlog.StatMinute).Sub(now)
	if c.at.Before(c.next) {
		c.at, left = c.next, processlog.StatMinute
	}
	c.types = make(map[string]*processlog.StatCounts)
	c.timer = time.AfterFunc(left, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.endMinute()
	})
}

func (c *Counter) endMinute() {
	if c.types == nil {
		return
	}
	c.timer.Stop()
	if !c.writer.Add(minute{c.at, c.types}) {
		c.e.NoteResult(problem, fmt.Errorf("the counts of the minute %s are lost, because those of %d earlier minutes wait", c.at.Format(time.RFC3339), mostMinutes))
	}
	c.types, c.next = nil, c.at.Add(processlog.StatMinute)
}

func (c *Counter) write(minutes []minute) {
	for _, m := range minutes {
		stats := make([]processlog.Stat, 0, len(m.types))
		for name, counts := range m.types {
			stats = append(stats, processlog.Stat{At: m.at, BusinessType: name, StatCounts: *counts})
		}
		slices.SortFunc(stats, func(a, b processlog.Stat) int { return strings.Compare(a.BusinessType, b.BusinessType) })
		for failures := 1; ; failures++ {
			err := c.try(m.at, stats)
			c.e.NoteResult(problem, err)
			if err == nil {
				break
			}
			if !c.e.Wait(time.Duration(min(failures, longestPause)) * time.Second) {
				return
			}
		}
	}
}

func (c *Counter) try(at time.Time, stats []processlog.Stat) error {
	ctx, cancel := c.e.Statement()
	defer cancel()
	if err := c.store.WriteStats(ctx, c.instance, at, stats); err != nil {
		return err
	}
	asked := time.Now()
	if now, err := c.store.StatsClock(ctx); err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.clock = clock{now, asked}
	}
	return nil
}

func (c *Counter) recorded(drafts []processlog.Draft, inserted []processlog.Inserted) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range drafts {
		if inserted[i].Duplicate {
			continue
		}
		if counts := c.of(drafts[i].BusinessType); counts != nil {
			counts.Recorded++
		}
	}
}

func (c *Counter) started(event observe.AttemptEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if counts := c.of(event.BusinessType); counts != nil {
		counts.Started++
		counts.Late.Add(event.Late)
	}
}

func (c *Counter) attemptEnded(event observe.AttemptEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if counts := c.of(event.BusinessType); counts != nil {
		counts.Took.Add(event.Duration)
	}
}

func (c *Counter) stored(a *engine.Attempt, to processlog.State, failed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := c.of(a.Row.BusinessType)
	if counts == nil {
		return
	}
	if failed {
		counts.Failed++
	}
	switch to {
	case processlog.Succeeded:
		counts.Succeeded++
	case processlog.Compensated:
		counts.Compensated++
	case processlog.Dead:
		counts.Dead++
	}
}

func (c *Counter) moved(row *processlog.Row, to processlog.State) {
	if to != processlog.Succeeded {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if counts := c.of(row.BusinessType); counts != nil {
		counts.Succeeded++
	}
}
