package compensatortest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
)

// RequireRecorded returns the committed entries of a type in the order in which they were recorded. It fails the test
// unless there are n of them. It returns each entry in its current state. c may be any Compensator on the same log, and
// needs no handler for the type.
//
//	placeOrder(ctx, c, db) // the code under test
//	entries := compensatortest.RequireRecorded(t, c, "close_order", 1)
func RequireRecorded(tb testing.TB, c *compensator.Compensator, businessType string, n int) []compensator.Entry {
	tb.Helper()
	entries := listEntries(tb, c, admin.Filter{BusinessType: businessType})
	require.Len(tb, entries, n, "entries of type %q", businessType)
	return entries
}

func listEntries(tb testing.TB, c *compensator.Compensator, filter admin.Filter) (entries []compensator.Entry) {
	tb.Helper()
	filter.Limit = 1000
	for {
		page, err := admin.Of(c).List(tb.Context(), filter)
		require.NoError(tb, err)
		entries = append(entries, page.Entries...)
		if filter.Cursor = page.Next; page.Next == "" {
			return entries
		}
	}
}
