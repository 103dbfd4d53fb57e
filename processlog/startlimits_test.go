package processlog_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/compensator-go/compensator/processlog"
)

func TestLimitNeverSavesMoreThanItsBurst(t *testing.T) {
	limit := processlog.StartLimit{Interval: 50 * time.Millisecond, Burst: 4}
	for _, c := range []struct {
		ahead  time.Duration
		starts int
		next   time.Duration
	}{
		{-time.Hour, 4, 50 * time.Millisecond}, // A long pause saves no more than the burst.
		{0, 4, 50 * time.Millisecond},
		{time.Nanosecond, 3, time.Nanosecond},
		{50 * time.Millisecond, 3, 50 * time.Millisecond},
		{190 * time.Millisecond, 0, 40 * time.Millisecond},
		{200 * time.Millisecond, 0, 50 * time.Millisecond},
		{time.Hour, 0, time.Hour - 150*time.Millisecond}, // The database's clock was set back, or the burst is lower now.
	} {
		starts, next := limit.Free(c.ahead)
		assert.Equal(t, c.starts, starts, c.ahead)
		assert.Equal(t, c.next, next, c.ahead)
	}
	starts, _ := (&processlog.StartLimit{}).Free(time.Hour)
	assert.Equal(t, processlog.Unbounded, starts)
}
