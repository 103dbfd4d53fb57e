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

const waitTimeout = time.Minute

const readInterval = 5 * time.Millisecond

// WaitIdle waits until no entry in c's log is due or running in any process.
//
// An entry that waits for its delay or for its next attempt is not due. An entry that waits for an earlier entry of its
// ordering key is not due either, if c has the type's TypeConfig.Serial. An entry that waits for its TypeConfig.Limit
// is due.
//
// WaitIdle fails the test when nothing has changed for a minute. The failure lists the entries that are left.
func WaitIdle(tb testing.TB, c *compensator.Compensator) {
	tb.Helper()
	var remaining []string
	changedAt := time.Now()
	for {
		current := busyEntries(tb, c)
		switch {
		case len(current) == 0:
			return
		case !slices.Equal(current, remaining):
			remaining, changedAt = current, time.Now()
		case time.Since(changedAt) > waitTimeout:
			require.FailNowf(tb, "not idle", "nothing has changed for %v. Check that a Compensator with handlers for these types is inside Run. Entries left:\n%s", waitTimeout, strings.Join(remaining, "\n"))
		}
		select {
		case <-time.After(readInterval):
		case <-tb.Context().Done():
			require.NoError(tb, tb.Context().Err())
		}
	}
}

// busyEntries returns an empty list only if two reads of the log are equal. One read consists of several statements,
// and may miss an entry that becomes due between them.
func busyEntries(tb testing.TB, c *compensator.Compensator) (busy []string) {
	tb.Helper()
	first := unfinishedEntries(tb, c)
	if busy = busyAmong(tb, c, first); len(busy) > 0 {
		return busy
	}
	second := unfinishedEntries(tb, c)
	busy = busyAmong(tb, c, second)
	if len(busy) == 0 && !slices.EqualFunc(first, second, func(a, b compensator.Entry) bool { return a.ID == b.ID && a.Version == b.Version }) {
		busy = []string{"entries that changed between two reads of the log"}
	}
	return busy
}

func busyAmong(tb testing.TB, c *compensator.Compensator, entries []compensator.Entry) (busy []string) {
	tb.Helper()
	ids := make([]compensator.EntryID, len(entries))
	for i, e := range entries {
		ids[i] = e.ID
	}
	blocked, err := testkit.Blocked(tb.Context(), c, ids)
	require.NoError(tb, err)
	for _, e := range entries {
		switch {
		case e.DeliveryCount > 0:
			busy = append(busy, fmt.Sprintf("%s %v: is running, or its process has died: %s", e.BusinessType, e.ID, e.LastError))
		case !e.NextAt.After(time.Now()) && !slices.Contains(blocked, e.ID):
			busy = append(busy, fmt.Sprintf("%s %v: %v, due since %v: %s", e.BusinessType, e.ID, e.State, e.NextAt, e.LastError))
		}
	}
	if len(busy) > 0 {
		return busy
	}
	hasAdvanced, err := testkit.AdvanceKeys(tb.Context(), c, ids)
	require.NoError(tb, err)
	if hasAdvanced {
		return []string{"the next entry of an ordering key"}
	}
	// Health reads the database's clock, which may be ahead of this process's clock.
	health := c.Health(tb.Context())
	require.NoError(tb, health.Database)
	if health.OldestOverdue > 0 {
		busy = append(busy, fmt.Sprintf("%s: due by the database's clock", health.OldestOverdueType))
	}
	return busy
}

func unfinishedEntries(tb testing.TB, c *compensator.Compensator) []compensator.Entry {
	tb.Helper()
	return listEntries(tb, c, admin.Filter{States: []compensator.State{compensator.Pending, compensator.Retrying, compensator.Compensating}})
}

// Elapse makes entries due as if d had passed. Each entry that waits for its delay or its next attempt becomes due d
// sooner, or at once if less than d is left.
//
// Elapse reschedules the entries and moves no clock, so a handler still reads the real time. It leaves a failed
// compensation as it is, because a compensation cannot be rescheduled.
//
// Elapse computes the waits by this process's clock. If the database server's clock differs, the due times are off by
// the difference.
func Elapse(tb testing.TB, c *compensator.Compensator, d time.Duration) {
	tb.Helper()
	for _, e := range unfinishedEntries(tb, c) {
		remaining := time.Until(e.NextAt)
		if remaining <= 0 || e.State == compensator.Compensating {
			continue
		}
		err := c.Reschedule(tb.Context(), e.ID, max(0, remaining-d))
		if errors.As(err, new(*compensator.StateError)) {
			continue // The entry became due by itself and has run.
		}
		require.NoError(tb, err)
	}
}
