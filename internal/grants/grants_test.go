package grants

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

// The rate is one start in 50 ms, and the burst is 3. Each case lists starts by the time of their grant, in milliseconds.
func TestWindowsWithMoreStartsThanAllowedAreFound(t *testing.T) {
	for name, of := range map[string]struct {
		starts  map[int64]int64
		reached int
		says    string
	}{
		"the burst, and one start each interval":   {map[int64]int64{1000: 3, 1050: 1, 1100: 1}, 3, ""},
		"one start too early":                      {map[int64]int64{1000: 3, 1049: 1}, 0, "a window that ends at 1049 has starts for 151ms, and allows 150ms"},
		"more than the burst":                      {map[int64]int64{1000: 4}, 0, "starts for 200ms"},
		"a long rest gives no more than the burst": {map[int64]int64{1000: 1, 9000: 4}, 0, "starts for 200ms"},
		"a returned start":                         {map[int64]int64{1000: 2, 1010: 1}, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			reached, err := (&period{values: processlog.LimitValues{Interval: 50 * time.Millisecond, Burst: 3}, starts: of.starts}).check()
			if of.says != "" {
				require.ErrorContains(t, err, of.says)
				return
			}
			require.NoError(t, err)
			require.Equal(t, of.reached, reached)
		})
	}
}
