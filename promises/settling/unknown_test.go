package settling

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/observe"
)

// Failure: F20
func TestOutcomeWhoseReplyWasLostIsCountedOnce(t *testing.T) {
	t.Parallel()
	for fault, rule := range harness.CommitFaults {
		for _, watched := range []bool{true, false} {
			for name, statement := range map[string]string{"failure": "SET state=-1", "success": "SET state=1", "failure's commit": "SET state=-1"} {
				if watched && name == "failure's commit" {
					continue // With a Connector, one statement stores and commits the failure. There is no COMMIT.
				}
				t.Run(fmt.Sprintf("%s of %s, connector %t", fault, name, watched), func(t *testing.T) {
					t.Parallel()
					w := harness.NewWorld(t)
					proxy, db := w.OpenProxied(watched)
					cfg := w.QuickConfig()
					cfg.DB = db
					var mu sync.Mutex // guards settled
					var settled []compensator.State
					cfg.Observer.Settled = func(e observe.SettledEvent) {
						mu.Lock()
						defer mu.Unlock()
						settled = append(settled, e.State)
					}
					cfg.Observer.OutcomeDropped = func(observe.SettledEvent) { t.Error("the process took its own outcome for another's") }
					c := w.New(cfg)
					orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(0)}, func(_ *compensator.Entry, call int) error {
						if call == 1 {
							return errors.New("again")
						}
						return nil
					})
					stop := w.Run(c)
					rule, settle := rule, faultproxy.Contains(statement)
					rule.Match = settle
					if name == "failure's commit" {
						rule.Match = harness.MatchNext(settle, faultproxy.Commit())
					}
					trap := proxy.Arm(rule)
					// During the delay, the process searches for due entries several times before it offers its outcome
					// again.
					again := proxy.Arm(faultproxy.Rule{Match: settle, Nth: 2, Fault: faultproxy.DelayRequest, Delay: time.Second})
					require.NoError(t, harness.CommitTx(c, w.DB, func(tx compensator.Tx) error {
						_, err := orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{})
						return err
					}))
					w.WaitAllEnded()
					require.NoError(t, stop())
					require.Equal(t, []int{1, 1}, []int{trap.Fired(), again.Fired()})
					assert.Equal(t, 2, ran.Total(), "an attempt was repeated whose outcome was known")
					assert.Equal(t, 1, w.Count("common_process_log WHERE state=1 AND process_count=1"))
					assert.Equal(t, []compensator.State{compensator.Retrying, compensator.Succeeded}, settled)
				})
			}
		}
	}
}

// Failure: F20
func TestTransactionalEffectHappensOnceThoughItsCommitIsUnknown(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		fault    string
		question bool // whether the query for the result of the commit fails, too
		runs     int
	}{
		{"request lost", false, 2}, {"reply lost", false, 1}, {"request lost", true, 2}, {"reply lost", true, 1},
	} {
		for _, watched := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, question lost %t, connector %t", test.fault, test.question, watched), func(t *testing.T) {
				t.Parallel()
				w := harness.NewWorld(t)
				proxy, db := w.OpenProxied(watched)
				cfg := w.QuickConfig()
				cfg.DB = db
				if !test.question {
					cfg.Observer.OutcomeDropped = func(observe.SettledEvent) { t.Error("the handler's own success was taken for another's") }
				}
				c := w.New(cfg)
				var ran harness.Calls
				orders, err := compensator.HandleTx(t.Context(), c, "close_order", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ harness.Order) error {
					ran.Add(e.ID)
					_, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES (?)", e.ID.String())
					return err
				}, &compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(0)})
				require.NoError(t, err)
				stop := w.Run(c)
				rule := harness.CommitFaults[test.fault]
				rule.Match = harness.MatchNext(faultproxy.Contains("INTO effects"), faultproxy.Commit())
				traps := []*faultproxy.Trap{proxy.Arm(rule)}
				if test.question {
					traps = append(traps, proxy.Arm(faultproxy.Rule{Match: faultproxy.Contains(" SHARE "), Nth: 1, Fault: faultproxy.DropRequest}))
				}
				require.NoError(t, harness.CommitTx(c, w.DB, func(tx compensator.Tx) error {
					_, err := orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{})
					return err
				}))
				w.WaitAllEnded()
				require.NoError(t, stop())
				for _, trap := range traps {
					require.Equal(t, 1, trap.Fired())
				}
				assert.Equal(t, 1, w.Count("effects"))
				assert.Equal(t, 1, w.Count("common_process_log WHERE state=1 AND process_count=0"), "a lost reply is no failure of the handler's")
				assert.Equal(t, test.runs, ran.Total())
			})
		}
	}
}
