package compensatortest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
)

// RequireRecorded returns the committed entries of a type, in the order they were recorded and whatever has become of
// them since, and fails the test unless there are n of them. c may be any Compensator on their log, also one that has no
// handler for the type, on a real server as on a double.
//
//	placeOrder(ctx, c, db) // the code under test
//	entries := compensatortest.RequireRecorded(t, c, "close_order", 1)
func RequireRecorded(tb testing.TB, c *compensator.Compensator, businessType string, n int) []compensator.Entry {
	tb.Helper()
	entries := list(tb, c, compensator.Filter{BusinessType: businessType})
	require.Len(tb, entries, n, "entries of type %q", businessType)
	return entries
}

// list reads all pages.
func list(tb testing.TB, c *compensator.Compensator, filter compensator.Filter) (entries []compensator.Entry) {
	tb.Helper()
	filter.Limit = 1000
	for {
		page, err := c.List(tb.Context(), filter)
		require.NoError(tb, err)
		entries = append(entries, page.Entries...)
		if filter.Cursor = page.Next; page.Next == "" {
			return entries
		}
	}
}
