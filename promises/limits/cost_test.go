package limits

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest/memory"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/processlog"
)

type purging struct {
	*memory.Store
	rounds, deleted atomic.Int64
}

func (s *purging) PurgeLimitKeys(ctx context.Context, idle time.Duration) (int, error) {
	n, err := s.Store.PurgeLimitKeys(ctx, idle)
	s.rounds.Add(1)
	s.deleted.Add(int64(n))
	return n, err
}

func TestIdleKeysOfALimitAreDeletedOnceADay(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]func(e *compensator.Entry) string{"keys": func(e *compensator.Entry) string { return e.UserID }, "no keys": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &purging{Store: memory.NewStore()}
				ctx, stop := context.WithCancel(t.Context())
				var runs sync.WaitGroup
				var charges *compensator.Type[harness.Order]
				var recorder *compensator.Compensator
				for range 2 {
					c, err := compensator.New(ctx, compensator.Config{Store: store, Logger: slog.New(slog.DiscardHandler), PollInterval: time.Minute, ReconcileInterval: time.Minute})
					require.NoError(t, err)
					limited := compensator.HandlerConfig[harness.Order]{TypeConfig: compensator.TypeConfig{Limit: compensator.Limit{Rate: compensator.PerSecond(1), Concurrent: 1, Key: key}}}
					charges, _ = harness.HandleCounted(t, c, "charge", limited, nil)
					recorder = c
					runs.Go(func() { _ = c.Run(ctx) })
				}
				require.NoError(t, recorder.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
					for n := range 3 {
						if _, err := charges.Record(ctx, tx, harness.Order{}, compensator.Options{UserID: fmt.Sprint("k", n)}); err != nil {
							return err
						}
					}
					return nil
				}))
				time.Sleep(23 * time.Hour)
				synctest.Wait()
				require.Zero(t, store.deleted.Load())
				time.Sleep(25 * time.Hour)
				synctest.Wait()
				if key == nil {
					require.Zero(t, store.rounds.Load())
				} else {
					require.EqualValues(t, 3, store.deleted.Load())
					require.InDelta(t, 48, store.rounds.Load(), 1, "one of the two processes, once an hour")
				}
				stop()
				runs.Wait()
			})
		})
	}
}

func TestIdleKeysOfALimitAreDeletedOnAServer(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		w.Exec("INSERT INTO common_process_log_slots VALUES (' limits', " + harness.NowMillis + "-7200000)")
		for n, tat := range []int{-90000, -90000, 3600} {
			w.Exec(fmt.Sprintf("INSERT INTO common_process_log_limit (limit_name, limit_key, tat, granted_at, holders) VALUES ('charge', 'k%d', (%s+%d000)*1000000, %s-90000000, '')", n, harness.NowMillis, tat, harness.NowMillis))
		}
		c := w.New(cfg)
		harness.HandleCounted(t, c, "charge", compensator.HandlerConfig[harness.Order]{TypeConfig: compensator.TypeConfig{
			Limit: compensator.Limit{Rate: compensator.PerSecond(1), Key: func(e *compensator.Entry) string { return e.UserID }}}}, nil)
		w.Run(c)
		w.Eventually(func() bool { return w.Count("common_process_log_limit") == 1 }, "the idle keys are gone, and the key with starts ahead stays")
	})
}

func TestWaitingForALimitCostsNoStatementOfItsOwn(t *testing.T) {
	t.Parallel()
	const entries = 400
	for name, key := range map[string]func(e *compensator.Entry) string{"keys": func(e *compensator.Entry) string { return e.UserID }, "no keys": nil} {
		for _, redis := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, redis=%v", name, redis), func(t *testing.T) {
				t.Parallel()
				w := harness.NewWorld(t)
				if redis {
					w = w.WithRedis()
				}
				proxy, db := w.OpenProxied(true)
				cfg := w.QuickConfig()
				cfg.DB = db
				c := w.New(cfg)
				// With this lease no lease is renewed during the test, however slow the machine is.
				limited := compensator.HandlerConfig[harness.Order]{Lease: time.Minute, TypeConfig: compensator.TypeConfig{Limit: compensator.Limit{Rate: compensator.Rate{Starts: 1, Per: time.Hour}, Key: key}}}
				charges, ran := harness.HandleCounted(t, c, "charge", limited, nil)
				w.RecordMany(c, charges, entries, compensator.Options{UserID: "slow"})
				var claims, reads, writes atomic.Int64
				proxy.Arm(faultproxy.Rule{Fault: faultproxy.Count, Match: func(r faultproxy.Request) bool {
					switch {
					case strings.Contains(r.Text, "common_process_log_limit") && strings.Contains(r.Text, "FOR UPDATE"):
						claims.Add(1)
					case strings.Contains(r.Text, "FOR UPDATE"):
						reads.Add(1)
					case strings.Contains(r.Text, "UPDATE `") && strings.Contains(r.Text, "`common_process_log`"):
						writes.Add(1)
					}
					return false
				}})
				w.Run(c)
				w.Eventually(func() bool {
					waiting := c.Health(t.Context()).Limited
					return len(waiting) == 1 && ran.Total() == 1 && (key == nil && claims.Load() >= 3 || waiting[0].Waiting == entries-1)
				}, "the other entries wait for their key, or the process has tried again")
				t.Logf("%d claims, %d reads of entries, %d writes of entries", claims.Load(), reads.Load(), writes.Load())
				require.Less(t, claims.Load(), int64(entries/10), "a claim is for many entries")
				require.LessOrEqual(t, reads.Load(), claims.Load()+2, "one statement reads all entries of a claim")
				require.LessOrEqual(t, writes.Load(), int64(3), "those of the entry that ran")
				require.Equal(t, entries-1, w.Count("common_process_log WHERE state=0 AND version=0 AND delivery_count=0 AND process_count=0 AND lease_until=0"))
			})
		}
	}
}

type grantCounter struct {
	*memory.Store
	claims, reads atomic.Int64
}

func (s *grantCounter) ClaimLimited(ctx context.Context, wanted []processlog.Wanted, token processlog.Token, lease time.Duration, limit processlog.StartLimit, accept func(*processlog.Row) bool) (processlog.Claimed, error) {
	found, err := s.Store.ClaimLimited(ctx, wanted, token, lease, limit, accept)
	if len(found.Mine) > 0 {
		s.claims.Add(1)
		if found.Rooms != nil {
			s.reads.Add(1)
		}
	}
	return found, err
}

// A claim that reads the row of a key may also take starts for later entries of this key, so most claims must not read
// these rows.
func TestStartsTakenInAdvanceSaveClaimsAndAreReturned(t *testing.T) {
	t.Parallel()
	for _, stops := range []bool{false, true} {
		t.Run(fmt.Sprintf("stops=%v", stops), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &grantCounter{Store: memory.NewStore()}
				ctx, stop := context.WithCancel(t.Context())
				c, err := compensator.New(ctx, compensator.Config{Store: store, Logger: slog.New(slog.DiscardHandler)})
				require.NoError(t, err)
				limit := compensator.Limit{Rate: compensator.Rate{Starts: 1, Per: time.Hour}, Burst: 200, Key: func(e *compensator.Entry) string { return e.UserID }}
				charges, ran := harness.HandleCounted(t, c, "charge", compensator.HandlerConfig[harness.Order]{TypeConfig: compensator.TypeConfig{Limit: limit}}, nil)
				var run sync.WaitGroup
				run.Go(func() { _ = c.Run(ctx) })
				const each = 60
				for range each {
					require.NoError(t, c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
						for _, key := range []string{"a", "b"} {
							if _, err := charges.Record(ctx, tx, harness.Order{}, compensator.Options{UserID: key}); err != nil {
								return err
							}
						}
						return nil
					}))
					time.Sleep(20 * time.Millisecond)
				}
				require.Equal(t, 2*each, ran.Total())
				require.Less(t, 2*store.reads.Load(), store.claims.Load(), "reads of the limit, and claims")
				left := func(key string) int {
					stored, err := store.LimitedKey(ctx, processlog.StoredLimit{Name: "charge", Program: processlog.LimitValues{Interval: time.Hour, Burst: 200}}, key)
					require.NoError(t, err)
					return stored.Starts
				}
				require.Less(t, left("a"), 200-each, "some starts are taken in advance and not used yet")
				if stops {
					stop()
					run.Wait()
					ctx = context.WithoutCancel(ctx)
				} else {
					time.Sleep(time.Second)
				}
				synctest.Wait()
				for _, key := range []string{"a", "b"} {
					require.Equal(t, 200-each, left(key), key)
				}
				stop()
				run.Wait()
			})
		})
	}
}
