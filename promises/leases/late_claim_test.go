package leases

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/harness"
)

func lateAnswer(proxy *faultproxy.MySQL) {
	commit := func(r faultproxy.Request) bool { return r.Text == "COMMIT" }
	proxy.Arm(faultproxy.Rule{Match: harness.MatchNext(faultproxy.Contains("delivery_count=delivery_count+1"), commit), Fault: faultproxy.DelayReply, Delay: 3 * time.Second, Nth: 1})
}

// Failure: F59
func TestClaimAnsweredAfterItsLeaseStartsNothing(t *testing.T) {
	t.Parallel()
	for name, watched := range map[string]bool{"connector": true, "plain pool": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t)
			proxy, db := w.OpenProxied(watched)
			cfg := w.QuickConfig()
			cfg.DB, cfg.Lease = db, time.Second
			c := w.New(cfg)
			_, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
			cfg.DB = w.DB
			other := w.New(cfg)
			_, ranElsewhere := harness.HandleCounted(t, other, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
			w.Backlog("close_order", 1)
			lateAnswer(proxy)
			givenBack := proxy.Arm(faultproxy.Rule{Match: faultproxy.Contains("delivery_count=delivery_count-1")})
			w.Run(c)
			w.Eventually(func() bool { return w.Count("common_process_log WHERE lease_until>0") == 1 }, "it is claimed")
			w.Run(other)
			w.WaitAllEnded()
			w.Eventually(func() bool { return givenBack.Matched() > 0 || ran.Total() > 0 }, "the answer comes")
			require.Zero(t, ran.Total(), "another process has had it")
			require.Equal(t, 1, ranElsewhere.Total())
			require.Equal(t, 1, w.CountEnded(compensator.Succeeded, 0))
		})
	}
}

// Failure: F59
func TestNoHandlerStartsUnderALeaseThatHasEnded(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	proxy, db := w.OpenProxied(true)
	cfg := w.QuickConfig()
	cfg.DB, cfg.Lease = db, time.Second
	c := w.New(cfg)
	var leased atomic.Int64
	_, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, func(*compensator.Entry, int) error {
		leased.Add(int64(w.Count("common_process_log WHERE lease_until>" + harness.NowMillis)))
		return nil
	})
	w.Backlog("close_order", 1)
	lateAnswer(proxy)
	w.Run(c)
	w.WaitAllEnded()
	require.Equal(t, 1, ran.Total(), "no other process is there")
	require.EqualValues(t, 1, leased.Load())
}

// The process does not learn that its claims have committed, so their leases end without an attempt. The process is
// alive, so these leases must not count as crashes.
// Failure: F59
func TestClaimsOfUnknownEndCostNoDelivery(t *testing.T) {
	t.Parallel()
	for name, watched := range map[string]bool{"connector": true, "plain": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t)
			proxy, db := w.OpenProxied(watched)
			cfg := w.QuickConfig()
			cfg.DB, cfg.Lease = db, time.Second
			c := w.New(cfg)
			_, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
			w.Backlog("close_order", 1)
			commit := func(r faultproxy.Request) bool { return r.Text == "COMMIT" }
			proxy.Arm(faultproxy.Rule{Match: harness.MatchNext(faultproxy.Contains("delivery_count=delivery_count+1"), commit), Fault: faultproxy.DropReply})
			unheard := proxy.Arm(faultproxy.Rule{Match: faultproxy.Contains("delivery_count=delivery_count-1"), Fault: faultproxy.DropRequest})
			w.Run(c)
			w.Eventually(func() bool { return unheard.Fired() >= 12 || w.Count("common_process_log WHERE state=-2") == 1 }, "several leases have passed")
			proxy.Heal()
			w.WaitAllEnded()
			require.Equal(t, 1, ran.Total())
			require.Equal(t, 1, w.Count("common_process_log WHERE state=1"))
		})
	}
}
