package statistics

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// The table's clock is ahead of this process's clock.
type table struct {
	mu       sync.Mutex // guards the fields below
	ahead    time.Duration
	err      error
	asked    int
	written  []processlog.Stat
	instance string
}

func (t *table) StatsClock(context.Context) (time.Time, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Now().Add(t.ahead), nil
}

func (t *table) stored() (written []processlog.Stat, asked int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.written), t.asked
}

func (t *table) setError(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = err
}

func (t *table) WriteStats(_ context.Context, instance string, at time.Time, stats []processlog.Stat) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked++
	t.instance = instance
	if t.err == nil {
		t.written = append(t.written, stats...)
	}
	return t.err
}

func counting(t *testing.T, test func(t *testing.T, e *engine.Engine, c *Counter, to *table)) {
	synctest.Test(t, func(t *testing.T) {
		to := &table{ahead: 7 * time.Hour}
		e := engine.New(t.Context(), engine.Config{Log: slog.New(slog.DiscardHandler), ErrorNumber: func(error) uint16 { return 0 }})
		c := Attach(e, to)
		require.NoError(t, c.Begin(t.Context()))
		test(t, e, c, to)
		e.Close()
	})
}

func (c *Counter) began(businessType string) {
	c.started(observe.AttemptEvent{BusinessType: businessType})
}

func TestCountsOfAMinuteAreStoredOnceItIsOver(t *testing.T) {
	counting(t, func(t *testing.T, _ *engine.Engine, c *Counter, to *table) {
		time.Sleep(10 * time.Second)
		begin := time.Now().Add(to.ahead).Truncate(time.Minute)
		drafts := []processlog.Draft{{BusinessType: "mail"}, {BusinessType: "refund"}, {BusinessType: "mail"}}
		c.recorded(drafts, []processlog.Inserted{{}, {}, {Duplicate: true}})
		c.started(observe.AttemptEvent{BusinessType: "refund", Late: 3 * time.Second})
		c.attemptEnded(observe.AttemptEvent{BusinessType: "refund", Duration: 70 * time.Millisecond})
		of := func(name string) *engine.Attempt { return &engine.Attempt{Row: processlog.Row{BusinessType: name}} }
		c.stored(of("refund"), processlog.Retrying, true)
		c.stored(of("refund"), processlog.Pending, false)
		c.stored(of("refund"), processlog.Succeeded, false)
		c.stored(of("refund"), processlog.Dead, true)
		c.stored(of("refund"), processlog.Compensated, false)
		c.moved(&processlog.Row{BusinessType: "mail"}, processlog.Succeeded)
		c.moved(&processlog.Row{BusinessType: "mail"}, processlog.Cancelled)
		synctest.Wait()
		written, _ := to.stored()
		require.Empty(t, written)
		time.Sleep(time.Minute)
		synctest.Wait()
		mail, refund := processlog.Stat{At: begin, BusinessType: "mail"}, processlog.Stat{At: begin, BusinessType: "refund"}
		mail.Recorded, mail.Succeeded = 1, 1
		refund.Recorded, refund.Started, refund.Succeeded, refund.Compensated, refund.Failed, refund.Dead = 1, 1, 1, 1, 2, 1
		refund.Late.Add(3 * time.Second)
		refund.Took.Add(70 * time.Millisecond)
		written, _ = to.stored()
		assert.Equal(t, []processlog.Stat{mail, refund}, written)
	})
}

func TestMinuteWithoutEventsSendsNothing(t *testing.T) {
	counting(t, func(t *testing.T, _ *engine.Engine, c *Counter, to *table) {
		time.Sleep(time.Hour)
		c.began("refund")
		time.Sleep(time.Hour)
		synctest.Wait()
		_, asked := to.stored()
		assert.Equal(t, 1, asked)
	})
}

func TestProcessIsBusyUntilAMinuteWithoutEventsHasPassed(t *testing.T) {
	counting(t, func(t *testing.T, _ *engine.Engine, c *Counter, to *table) {
		assert.False(t, c.Busy(), "nothing has happened yet")
		c.began("refund")
		assert.True(t, c.Busy())
		end := time.Now().Add(to.ahead).Truncate(time.Minute).Add(time.Minute) // of the minute, by the database's clock
		time.Sleep(end.Sub(time.Now().Add(to.ahead)) + 30*time.Second)
		synctest.Wait()
		assert.True(t, c.Busy())
		time.Sleep(31 * time.Second)
		assert.False(t, c.Busy())
		c.began("refund")
		assert.True(t, c.Busy())
	})
}

func TestCountsAreStoredUntilTheDatabaseAnswers(t *testing.T) {
	counting(t, func(t *testing.T, e *engine.Engine, c *Counter, to *table) {
		to.setError(errors.New("gone away"))
		begin := time.Now().Add(to.ahead).Truncate(time.Minute)
		c.began("refund")
		time.Sleep(time.Minute + time.Second)
		c.began("mail")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		_, asked := to.stored()
		require.Greater(t, asked, 10)
		require.Len(t, e.OpenProblems(), 1)
		to.setError(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		written, _ := to.stored()
		require.Len(t, written, 2)
		assert.Equal(t, []time.Time{begin, begin.Add(time.Minute)}, []time.Time{written[0].At, written[1].At})
		assert.Empty(t, e.OpenProblems())
	})
}

func TestNoMinuteIsStoredTwiceIfTheDatabasesClockIsSetBack(t *testing.T) {
	counting(t, func(t *testing.T, _ *engine.Engine, c *Counter, to *table) {
		for range 5 {
			c.began("refund")
			to.mu.Lock()
			to.ahead -= 90 * time.Second
			to.mu.Unlock()
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		written, _ := to.stored()
		require.Len(t, written, 5)
		for i := range written[1:] {
			assert.True(t, written[i+1].At.After(written[i].At))
		}
	})
}

func TestCloseStoresTheCountsOfThePresentMinute(t *testing.T) {
	counting(t, func(t *testing.T, e *engine.Engine, c *Counter, to *table) {
		c.began("refund")
		e.Close()
		written, _ := to.stored()
		require.Len(t, written, 1)
		c.began("refund")
		time.Sleep(time.Hour)
		synctest.Wait()
		_, asked := to.stored()
		assert.Equal(t, 1, asked, "nothing is counted after Close")
	})
}

func TestMinutesThatWaitAreBounded(t *testing.T) {
	counting(t, func(t *testing.T, _ *engine.Engine, c *Counter, to *table) {
		to.setError(errors.New("gone away"))
		for range 5 * mostMinutes {
			c.began("refund")
			time.Sleep(time.Minute + time.Second)
		}
		synctest.Wait()
		to.setError(nil)
		time.Sleep(time.Hour)
		synctest.Wait()
		written, _ := to.stored()
		assert.LessOrEqual(t, len(written), 2*mostMinutes)
		assert.GreaterOrEqual(t, len(written), mostMinutes)
	})
}

func TestQuantileOfAHistogramIsWithinItsBucket(t *testing.T) {
	var h processlog.Histogram
	_, ok := h.Quantile(0.5)
	assert.False(t, ok)
	for range 98 {
		h.Add(30 * time.Millisecond)
	}
	h.Add(2 * time.Hour)
	h.Add(2 * time.Hour)
	for q, want := range map[float64][2]time.Duration{0.5: {20 * time.Millisecond, 50 * time.Millisecond}, 0.95: {20 * time.Millisecond, 50 * time.Millisecond}, 0.99: {time.Hour, time.Hour}} {
		d, ok := h.Quantile(q)
		require.True(t, ok)
		assert.GreaterOrEqual(t, d, want[0])
		assert.LessOrEqual(t, d, want[1])
	}
	for _, bound := range processlog.StatBounds {
		var one processlog.Histogram
		one.Add(bound)
		d, _ := one.Quantile(1)
		assert.Equal(t, bound, d)
	}
}
