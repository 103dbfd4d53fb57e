package grants

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

// The burst is 3, and the rate is one start in 50 ms. Each pair has the time of a grant in milliseconds and a number of
// granted starts. A negative number means that a process has returned that many starts of the grant.
func TestWindowsWithMoreStartsThanAllowedAreFound(t *testing.T) {
	type at = [2]int64
	for name, of := range map[string]struct {
		grants []at
		starts int
		full   int
		says   string
	}{
		"the burst, and one start each interval":             {[]at{{1000, 3}, {1050, 1}, {1100, 1}}, 5, 3, ""},
		"one start too early":                                {[]at{{1000, 3}, {1049, 1}}, 0, 0, "a window that ends at 1049 has starts for 151ms, and allows 150ms"},
		"more than the burst":                                {[]at{{1000, 4}}, 0, 0, "starts for 200ms"},
		"a long rest gives no more than the burst":           {[]at{{1000, 1}, {9000, 4}}, 0, 0, "starts for 200ms"},
		"two grants at one instant":                          {[]at{{1000, 2}, {1000, 1}}, 3, 1, ""},
		"two grants at one instant are too many":             {[]at{{1000, 2}, {1000, 2}}, 0, 0, "starts for 200ms"},
		"a grant that waited for another":                    {[]at{{1010, 2}, {1000, 1}}, 3, 1, ""},
		"a grant that waited for another is one too many":    {[]at{{1010, 3}, {1000, 1}}, 0, 0, "a window that ends at 1010 has starts for 190ms, and allows 150ms"},
		"a returned start is granted again":                  {[]at{{1000, 3}, {1000, -1}, {1010, 1}}, 3, 1, ""},
		"a returned start is granted again twice":            {[]at{{1000, 3}, {1000, -1}, {1010, 2}}, 0, 0, "starts for 190ms"},
		"one of two grants at one instant is returned":       {[]at{{1000, 2}, {1000, 1}, {1000, -1}, {1000, 1}}, 3, 1, ""},
		"a return long after its grant allows nothing new":   {[]at{{1000, 3}, {9000, 3}, {9000, -2}, {9100, 5}}, 0, 0, "starts for 250ms"},
		"the starts of a grant are all returned":             {[]at{{1000, 3}, {1000, -3}, {1001, 3}}, 3, 1, ""},
		"starts are returned that their grant does not have": {[]at{{1000, 3}, {1001, -3}}, 0, 0, "more starts of the grant at 1001 were returned than granted"},
	} {
		t.Run(name, func(t *testing.T) {
			var all []grant
			for _, g := range of.grants {
				all = append(all, grant{"a", g[0], g[1], processlog.LimitValues{Interval: 50 * time.Millisecond, Burst: 3}})
			}
			found, err := checkWindows(all)
			if of.says != "" {
				require.ErrorContains(t, err, of.says)
				return
			}
			require.NoError(t, err)
			require.Equal(t, of.starts, found.Total())
			require.Equal(t, of.full, found.Full)
		})
	}
}
