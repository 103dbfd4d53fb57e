package servers

import (
	"errors"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/harness"
)

var (
	numberPattern = regexp.MustCompile(`\b\d{10,16}\b`)
	datePattern   = regexp.MustCompile(`20\d\d-\d\d-\d\d`)
)

// The time may be a date, or seconds, milliseconds or microseconds since 1970.
func tellsTime(text string) bool {
	if datePattern.MatchString(text) {
		return true
	}
	now := time.Now()
	for _, digits := range numberPattern.FindAllString(text, -1) {
		n, err := strconv.ParseInt(digits, 10, 64)
		for _, at := range []time.Time{time.Unix(n, 0), time.UnixMilli(n), time.UnixMicro(n)} {
			if err == nil && at.Sub(now).Abs() < 48*time.Hour {
				return true
			}
		}
	}
	return false
}

// Failure: F53
func TestNoInstantOfThisProcessReachesTheDatabase(t *testing.T) {
	t.Parallel()
	require.True(t, tellsTime("next_at="+strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10)))
	require.True(t, tellsTime(time.Now().String()))
	require.False(t, tellsTime("next_at=now+3600000"))
	for name, watched := range map[string]bool{"connector": true, "plain": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t).WithRedis()
			proxy, db := w.OpenProxied(watched, func(config *mysql.Config) { config.InterpolateParams = true })
			var mu sync.Mutex
			var told []string
			statements := 0
			proxy.Arm(faultproxy.Rule{Fault: faultproxy.Count, Match: func(r faultproxy.Request) bool {
				mu.Lock()
				defer mu.Unlock()
				if statements++; tellsTime(r.Text) {
					told = append(told, r.Text)
				}
				return false
			}})
			cfg := w.QuickConfig()
			cfg.DB, cfg.Lease = db, time.Second
			useEverything(w, cfg)
			mu.Lock()
			defer mu.Unlock()
			require.Greater(t, statements, 50)
			require.Empty(t, told, "an instance whose clock is wrong would be early or late")
		})
	}
}

func useEverything(w *harness.World, cfg compensator.Config) {
	w.T.Helper()
	c := w.New(cfg)
	verdicts := []error{errors.New("no"), compensator.Snooze(20 * time.Millisecond), compensator.RetryAfter(20*time.Millisecond, errors.New("no")), nil}
	orders, _ := harness.HandleCounted(w.T, c, "close_order", compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(0)}, func(_ *compensator.Entry, call int) error { return verdicts[call-1] })
	slow, g := harness.HandleGated(w.T, c, "slow", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(c)
	long := w.RecordThrough(cfg.DB, slow, 1, compensator.Options{})
	g.Await(w.T)
	lease := w.LeaseOf(long)
	for i := range 4 {
		w.RecordThrough(cfg.DB, orders, i, compensator.Options{Delay: time.Duration(i) * 50 * time.Millisecond})
	}
	at := w.RecordThrough(cfg.DB, orders, 9, compensator.Options{At: time.Now().Add(time.Hour)})
	require.NoError(w.T, c.Reschedule(w.T.Context(), at, 10*time.Minute))
	_, err := c.Cancel(w.T.Context(), at)
	require.NoError(w.T, err)
	require.NoError(w.T, admin.Of(c).Requeue(w.T.Context(), at, admin.RequeueOptions{AuditInfo: harness.ByMei, Delay: time.Minute}))
	require.NoError(w.T, harness.ErrOf(c.Complete(w.T.Context(), at)))
	w.Eventually(func() bool { return w.LeaseOf(long) > lease }, "a lease is renewed")
	g.Open()
	w.WaitAllEnded()
	_ = c.Health(w.T.Context())
}
