package sqlitetest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/compensatortest/sqlitetest"
)

// docs/how-to/test-handlers.md shows these tests of a periodic type and of an entry made manually.
func TestPeriodicTypeIsTestedByCallAndByItsSchedule(t *testing.T) {
	t.Parallel()
	c, _ := sqlitetest.New(t)
	var settled []time.Time
	settleHour, err := compensator.Handle(t.Context(), c, "settle_hour", func(_ context.Context, _ *compensator.Entry, slot time.Time) error {
		settled = append(settled, slot)
		return nil
	}, nil)
	require.NoError(t, err)
	schedule, slot := compensator.Every(time.Hour), time.Date(2026, 11, 29, 13, 0, 0, 0, time.UTC)
	require.NoError(t, compensator.Periodic(t.Context(), settleHour, schedule, nil))
	compensatortest.Elapse(t, c, 24*time.Hour)
	compensatortest.RequireRecorded(t, c, "settle_hour", 0)

	entry := compensatortest.Call(t, c, settleHour, slot, compensator.Options{IdempotencyKey: compensator.SlotKey("settle_hour", slot)})
	assert.Equal(t, compensator.Succeeded, entry.State, entry.LastError)
	assert.Equal(t, []time.Time{slot}, settled)
	assert.Equal(t, slot.Add(time.Hour), schedule.Next(slot))

	assert.Equal(t, "0-0", new(compensator.Entry).CallKey())
	assert.Equal(t, "42-0", (&compensator.Entry{ID: compensator.Must(compensator.ParseEntryID("42"))}).CallKey())
	assert.Equal(t, "1-0", entry.CallKey())
}
