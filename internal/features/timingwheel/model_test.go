package timingwheel

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/compensator-go/compensator/processlog"
)

type queueModel struct {
	start   time.Time
	entries []modelEntry // in order of due time; with equal due times, in order of arrival
}

type modelEntry struct {
	id processlog.ID
	at int64
}

func (m *queueModel) now() time.Duration { return time.Since(m.start) }

func (m *queueModel) after(d time.Duration) int64 {
	if d <= 0 {
		return int64(m.now() / time.Millisecond)
	}
	return processlog.Remaining(m.now()) + processlog.Remaining(d)
}

func (m *queueModel) find(id processlog.ID) int {
	return slices.IndexFunc(m.entries, func(e modelEntry) bool { return e.id == id })
}

func (m *queueModel) put(id processlog.ID, at int64) {
	m.entries = append(m.entries, modelEntry{id, at})
	slices.SortStableFunc(m.entries, func(a, b modelEntry) int { return cmp.Compare(a.at, b.at) })
}

func (m *queueModel) remove(i int) { m.entries = slices.Delete(m.entries, i, i+1) }

func (m *queueModel) next(skip int) time.Duration {
	if skip >= len(m.entries) {
		return processlog.Never
	}
	return max(0, time.Duration(m.entries[skip].at)*time.Millisecond-m.now())
}

func (m *queueModel) enqueue(items []processlog.QueueEntry, rules processlog.EnqueueRules) (newHead bool) {
	for _, item := range items {
		before := int64(noDue)
		if len(m.entries) > 0 {
			before = m.entries[0].at
		}
		i := m.find(item.ID)
		switch {
		case i < 0 && (item.In <= 0 || item.In <= rules.Near || len(m.entries) < rules.Limit):
			m.put(item.ID, m.after(item.In))
		case i >= 0 && m.entries[i].at > processlog.Remaining(m.now())+processlog.Remaining(item.In)+processlog.Remaining(rules.MaxLease):
			m.remove(i)
			m.put(item.ID, m.after(item.In))
		}
		newHead = newHead || len(m.entries) > 0 && m.entries[0].at < before
	}
	return newHead
}

func (m *queueModel) claim(limit int, lease time.Duration) processlog.Leased {
	leased := processlog.Leased{Token: m.after(lease)}
	for _, e := range m.entries {
		if len(leased.IDs) < limit && e.at <= m.after(0) {
			leased.IDs = append(leased.IDs, e.id)
		}
	}
	leased.Next = m.next(len(leased.IDs))
	for _, id := range leased.IDs {
		m.remove(m.find(id))
		m.put(id, leased.Token)
	}
	return leased
}

func (m *queueModel) settle(items []processlog.QueueOutcome) {
	for _, item := range items {
		i := m.find(item.ID)
		if i < 0 {
			continue
		}
		if at := m.entries[i].at; at != item.Token && (item.Remove || at <= m.after(item.In)) {
			continue
		}
		m.remove(i)
		if !item.Remove {
			m.put(item.ID, m.after(item.In))
		}
	}
}

// spans draws durations of these kinds:
//
//   - parts of a slot, which is 1 ms long
//   - some slots, up to several revolutions of the smallest wheel
//   - whole revolutions of the smallest wheel, which has 64 slots
//   - seconds up to two hours
//   - 250 years, which is near the longest duration
func spans() *rapid.Generator[time.Duration] {
	return rapid.OneOf(
		rapid.Map(rapid.IntRange(-1000, 3000), func(us int) time.Duration { return time.Duration(us) * time.Microsecond }),
		rapid.Map(rapid.IntRange(0, 300), func(ms int) time.Duration { return time.Duration(ms) * time.Millisecond }),
		rapid.Map(rapid.IntRange(1, 8), func(turns int) time.Duration { return time.Duration(turns*64) * time.Millisecond }),
		rapid.Map(rapid.IntRange(0, 7200), func(s int) time.Duration { return time.Duration(s) * time.Second }),
		rapid.Just(250*365*24*time.Hour),
	)
}

func TestWheelDoesWhatASortedListWould(t *testing.T) {
	program := rapid.SliceOfN(rapid.OneOf(enqueueSteps(), claimSteps(), settleSteps(), waitSteps()), 20, 80)
	rapid.Check(t, func(r *rapid.T) {
		steps := program.Draw(r, "steps")
		var c comparison
		synctest.Test(t, func(*testing.T) { c.run(steps) }) // Only the wheel uses the bubble's clock, because rapid measures real time.
		if len(c.failures) > 0 {
			r.Fatal(c.failures[0])
		}
	})
}

// rapid fails a test by a panic, which must not leave the bubble. So failures are collected.
type comparison struct {
	Queue    *Queue
	model    *queueModel
	tokens   []int64
	failures []string
}

func (c *comparison) Errorf(format string, args ...any) {
	c.failures = append(c.failures, fmt.Sprintf(format, args...))
}

func (c *comparison) run(steps []step) {
	c.Queue, c.model = New(), &queueModel{start: time.Now()}
	c.tokens = []int64{0}
	for i, do := range steps {
		do(c)
		waits, _, err := c.Queue.Peek(context.Background(), []string{"order"})
		assert.NoError(c, err)
		assert.Equal(c, []time.Duration{c.model.next(0)}, waits, "after step %d", i)
	}
}

type step func(*comparison)

func enqueueSteps() *rapid.Generator[step] {
	return rapid.Custom(func(t *rapid.T) step {
		item := rapid.Custom(func(t *rapid.T) processlog.QueueEntry {
			return processlog.QueueEntry{BusinessType: "order", ID: processlog.RowID(rapid.Uint64Range(1, 300).Draw(t, "id")), In: spans().Draw(t, "in")}
		})
		items := rapid.OneOf(rapid.SliceOf(item), rapid.SliceOfN(item, 60, 90)).Draw(t, "items") // Draw also more items than the wheel has slots.
		rules := processlog.EnqueueRules{MaxLease: spans().Draw(t, "maxLease"), Limit: 250, Near: spans().Draw(t, "near")}
		return func(c *comparison) {
			newHeads, _, err := c.Queue.Enqueue(context.Background(), items, rules)
			assert.NoError(c, err)
			assert.Equal(c, c.model.enqueue(items, rules), len(newHeads) == 1, "new head")
		}
	})
}

func claimSteps() *rapid.Generator[step] {
	return rapid.Custom(func(t *rapid.T) step {
		limit := rapid.IntRange(0, 100).Draw(t, "limit")
		lease := max(time.Millisecond, spans().Draw(t, "lease"))
		return func(c *comparison) {
			leased, err := c.Queue.Claim(context.Background(), "order", limit, lease)
			assert.NoError(c, err)
			assert.Equal(c, c.model.claim(limit, lease), leased)
			c.tokens = append(c.tokens, leased.Token)
		}
	})
}

// settleSteps settles entries with the token of the last claim or of an earlier claim. Since that claim, an entry may
// have got another lease, or none at all.
func settleSteps() *rapid.Generator[step] {
	return rapid.Custom(func(t *rapid.T) step {
		ago := rapid.IntRange(0, 3).Draw(t, "claims ago")
		outOf := rapid.Uint64Range(1, 5).Draw(t, "one out of")
		remove, in := rapid.Bool().Draw(t, "remove"), spans().Draw(t, "in")
		return func(c *comparison) {
			var items []processlog.QueueOutcome
			token := c.tokens[max(0, len(c.tokens)-1-ago)]
			for _, e := range c.model.entries {
				if e.id.Row()%outOf == 0 {
					items = append(items, processlog.QueueOutcome{ID: e.id, Token: token, Remove: remove, In: in})
				}
			}
			assert.NoError(c, c.Queue.Settle(context.Background(), "order", items))
			c.model.settle(items)
		}
	})
}

func waitSteps() *rapid.Generator[step] {
	return rapid.Map(spans(), func(d time.Duration) step {
		return func(*comparison) { <-time.After(min(24*time.Hour, max(0, d))) }
	})
}

func TestWheelReleasesTheMemoryOfWhatItSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const entries = 10_000
		w := New()
		var items []processlog.QueueEntry
		for row := range uint64(entries) {
			items = append(items, processlog.QueueEntry{BusinessType: "order", ID: processlog.RowID(row + 1), In: time.Duration(row) * time.Millisecond})
		}
		_, _, err := w.Enqueue(t.Context(), items, processlog.EnqueueRules{MaxLease: time.Hour})
		require.NoError(t, err)
		assert.GreaterOrEqual(t, len(w.types["order"].laterSlots.slots), entries/2)

		<-time.After(time.Minute)
		leased, err := w.Claim(t.Context(), "order", entries, time.Minute)
		require.NoError(t, err)
		require.Len(t, leased.IDs, entries)
		outcomes := make([]processlog.QueueOutcome, entries)
		for i, id := range leased.IDs {
			outcomes[i] = processlog.QueueOutcome{ID: id, Token: leased.Token, Remove: true}
		}
		require.NoError(t, w.Settle(t.Context(), "order", outcomes[1:]))
		assert.Len(t, w.types["order"].laterSlots.slots, minWheelSlots)
		assert.Less(t, w.types["order"].largest, 8*minWheelSlots)
		require.NoError(t, w.Settle(t.Context(), "order", outcomes[:1]))
		assert.Empty(t, w.types)
	})
}

func TestSlotsExpireEarliestFirstHoweverLongNobodyTurnedThem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dues := rapid.SliceOf(rapid.Int64Range(1, 10*minWheelSlots)).Draw(t, "dues")
		slots := newWheelSlots(minWheelSlots)
		for _, at := range dues {
			slots.insert(&wheelEntry{at: at})
		}
		got := []int64{}
		for _, e := range slots.expire(10 * minWheelSlots) {
			got = append(got, e.at)
		}
		slices.Sort(dues)
		assert.Equal(t, dues, got)
		assert.EqualValues(t, noDue, slots.earliest())
	})
}
