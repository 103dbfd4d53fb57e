package memory_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/compensatortest/memory"
	"github.com/compensator-go/compensator/processlog"
)

func FuzzMemoryListing(f *testing.F) {
	const rows = 9
	store := memory.NewStore()
	c, err := compensator.New(f.Context(), compensator.Config{Store: store})
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, c.Close()) })
	require.NoError(f, c.InTx(f.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		for i := range rows {
			_, err := c.Record(ctx, tx, compensator.NewEntry{BusinessType: "x", Options: compensator.Options{IdempotencyKey: compensator.IdempotencyKey(fmt.Sprint(i))}})
			if err != nil {
				return err
			}
		}
		return nil
	}))
	for _, cursor := range []string{"", "1", "5", "9", "0", "-1", "18446744073709551615", "007", "x", "MS5pZCsuMC43"} {
		f.Add(cursor, false, 1)
		f.Add(cursor, true, 4)
	}
	for _, newest := range []bool{false, true} {
		page, err := store.List(f.Context(), admin.Filter{Newest: newest, Limit: 4})
		require.NoError(f, err)
		f.Add(page.Next, newest, 2)
		f.Add(page.Next+"0", newest, 2)
		f.Add(page.Next, !newest, 2)
	}
	f.Fuzz(func(t *testing.T, cursor string, newest bool, limit int) {
		filter := admin.Filter{Cursor: cursor, Newest: newest, Limit: int(uint(limit)%rows) + 1}
		page, err := store.List(t.Context(), filter)
		if err != nil {
			var refused *compensator.FieldError
			require.ErrorAs(t, err, &refused)
			require.Empty(t, page.Rows)
			return
		}
		seen := len(page.Rows)
		requireOrder(t, page.Rows, newest)
		for page.Next != "" {
			last := page.Rows[len(page.Rows)-1]
			filter.Cursor = page.Next
			page, err = store.List(t.Context(), filter)
			require.NoError(t, err)
			requireOrder(t, append([]processlog.Row{last}, page.Rows...), newest)
			seen += len(page.Rows)
			require.LessOrEqual(t, seen, rows)
		}
		if cursor == "" {
			require.Equal(t, rows, seen)
		}
	})
}

func requireOrder(t *testing.T, entries []processlog.Row, newest bool) {
	t.Helper()
	for i := 1; i < len(entries); i++ {
		before, after := entries[i-1].ID.Row(), entries[i].ID.Row()
		require.NotEqual(t, before, after)
		require.Equal(t, newest, before > after)
	}
}
