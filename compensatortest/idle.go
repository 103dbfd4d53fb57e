package compensatortest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/testkit"
)

// waitTimeout is how long WaitIdle waits without seeing a change before it fails the test.
const waitTimeout = time.Minute

// lookAgain is the pause between two reads of the log.
const lookAgain = 5 * time.Millisecond

// WaitIdle waits until no entry in c's log is due or running in any process.
//
// An entry that waits for its delay or for its next attempt is not due. An entry that such an entry blocks is not due
// either, if c has the type's TypeConfig.Serial. An entry that waits for its TypeConfig.Limit is due, so WaitIdle waits
// until it has run.
//
// WaitIdle fails the test when nothing has changed for a minute. The failure lists the entries that are left.
func WaitIdle(tb testing.TB, c *compensator.Compensator) {
	tb.Helper()
	var left []string
	since := time.Now()
	for {
		now := looks(tb, c)
		switch {
		case len(now) == 0:
			return
		case !slices.Equal(now, left):
			left, since = now, time.Now()
		case time.Since(since) > waitTimeout:
			require.FailNowf(tb, "not idle", "nothing has changed for %v. Check that a Compensator with handlers for these types is inside Run. Entries left:\n%s", waitTimeout, strings.Join(left, "\n"))
		}
		select {
		case <-time.After(lookAgain):
		case <-tb.Context().Done():
			require.NoError(tb, tb.Context().Err())
		}
	}
}

// looks returns a description of each entry that is due or running. It returns an empty list only after two equal reads
// of the log.
//
// One read consists of several statements. An entry that ends between two of them may have recorded another entry,
// which the read missed. An entry that has ended may also have blocked another entry of its ordering key, which was not
// yet due at the time of the read.
func looks(tb testing.TB, c *compensator.Compensator) (left []string) {
	tb.Helper()
	first := waiting(tb, c)
	if left = unrest(tb, c, first); len(left) > 0 {
		return left
	}
	second := waiting(tb, c)
	left = unrest(tb, c, second)
	if len(left) == 0 && !slices.EqualFunc(first, second, func(a, b compensator.Entry) bool { return a.ID == b.ID && a.Version == b.Version }) {
		left = []string{"entries that changed between two reads of the log"}
	}
	return left
}

// unrest returns a description of each entry of waiting that is due or running.
func unrest(tb testing.TB, c *compensator.Compensator, waiting []compensator.Entry) (left []string) {
	tb.Helper()
	ids := make([]compensator.EntryID, len(waiting))
	for i, e := range waiting {
		ids[i] = e.ID
	}
	blocked, err := testkit.Blocked(tb.Context(), c, ids)
	require.NoError(tb, err)
	for _, e := range waiting {
		switch {
		case e.DeliveryCount > 0:
			left = append(left, fmt.Sprintf("%s %v: is running, or its process has died: %s", e.BusinessType, e.ID, e.LastError))
		case !e.NextAt.After(time.Now()) && !slices.Contains(blocked, e.ID):
			left = append(left, fmt.Sprintf("%s %v: %v, due since %v: %s", e.BusinessType, e.ID, e.State, e.NextAt, e.LastError))
		}
	}
	if len(left) > 0 {
		return left
	}
	moved, err := testkit.AdvanceKeys(tb.Context(), c, ids)
	require.NoError(tb, err)
	if moved {
		return []string{"the next entry of an ordering key"}
	}
	// Health reads the database's clock, which may be ahead of this process's clock. So an entry may be due although
	// its NextAt is in the future here.
	health := c.Health(tb.Context())
	require.NoError(tb, health.Database)
	if health.OldestOverdue > 0 {
		left = append(left, fmt.Sprintf("%s: due by the database's clock", health.OldestOverdueType))
	}
	return left
}

// waiting lists the entries that are in no terminal state.
func waiting(tb testing.TB, c *compensator.Compensator) []compensator.Entry {
	tb.Helper()
	return list(tb, c, admin.Filter{States: []compensator.State{compensator.Pending, compensator.Retrying, compensator.Compensating}})
}

// Elapse makes entries due as if d had passed. Each entry that waits for its delay or its next attempt becomes due d
// sooner. If its remaining wait is d or less, it becomes due at once.
//
// Elapse reschedules the entries. It does not sleep and it moves no clock, so a handler still reads the real time. It
// leaves a failed compensation as it is, because a compensation cannot be rescheduled.
//
// Elapse computes the waits by this process's clock. If the database server's clock differs, the due times are off by
// the difference.
func Elapse(tb testing.TB, c *compensator.Compensator, d time.Duration) {
	tb.Helper()
	for _, e := range waiting(tb, c) {
		left := time.Until(e.NextAt)
		if left <= 0 || e.State == compensator.Compensating {
			continue
		}
		err := c.Reschedule(tb.Context(), e.ID, max(0, left-d))
		if errors.As(err, new(*compensator.StateError)) {
			continue // The entry became due by itself and has run.
		}
		require.NoError(tb, err)
	}
}
