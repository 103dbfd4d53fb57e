package stopping

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/testservers"
)

func requireEffectsOnce(w *harness.World) {
	w.T.Helper()
	for effect, where := range map[string]string{"paid ": "business_type='pay_order' AND state=1", "undone ": "business_type='close_order' AND state=2"} {
		n := w.Count("common_process_log WHERE " + where)
		require.Equal(w.T, n, w.Count("effects WHERE what LIKE ?", effect+"%"), effect)
		require.Equal(w.T, n, w.Count("common_process_log JOIN effects ON what=CONCAT(?,common_process_log.id) WHERE "+where, effect), effect)
	}
}

// Failure: F70, F82
func TestProcessKilledAnywhereLosesNothing(t *testing.T) {
	t.Parallel()
	for _, point := range []string{harness.AfterClaim, harness.InHandler, harness.AfterHandler, harness.AfterSettle, harness.AfterExhausted, harness.InCompensation, harness.AfterUndone, harness.AfterReconcile} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t).WithRedis()
			c, types := w.LifeInstance(w.DB)
			for i := range 4 {
				for _, orders := range []*compensator.Type[harness.Order]{types.Pay, types.Ship, types.Close, types.Mail} {
					w.Record(orders, i, compensator.Options{})
				}
			}
			child := w.StartChild(harness.Program{Point: point})
			child.Await("paused")
			child.Kill()
			w.Run(c)
			w.WaitAllEnded()
			require.Equal(t, 12, w.CountEnded(compensator.Succeeded, 0), "a crash is no failure")
			require.Equal(t, 4, w.CountEnded(compensator.Compensated, 1))
			requireEffectsOnce(w)
		})
	}
}

// Failure: F82
func TestEntryOfAProcessKilledBetweenCommitAndEnqueueRuns(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	c, _ := w.LifeInstance(w.DB)
	w.Run(c)
	child := w.StartChild(harness.Program{Record: true, Point: harness.AfterCommit})
	child.Await("paused")
	child.Kill()
	w.WaitAllEnded()
	require.Equal(t, 1, w.Count("common_process_log WHERE business_id='the child\\'s' AND state=1"))
	requireEffectsOnce(w)
}

// Failure: F82
func TestEntryOfAProcessKilledBeforeItsCommitNeverWas(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	c, types := w.LifeInstance(w.DB)
	w.Run(c)
	child := w.StartChild(harness.Program{Record: true, Point: harness.BeforeCommit})
	child.Await("paused")
	child.Kill()
	w.WaitState(w.Record(types.Pay, 1, compensator.Options{}), compensator.Succeeded)
	w.Eventually(func() bool { return w.Count("common_process_log WHERE business_id<>''") == 0 }, "the server rolls the child's transaction back")
	require.Equal(t, 1, w.Count("effects"))
}

// Failure: F61
func TestEntryThatKillsItsProcessIsDeadLetteredAndNoOther(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"ship_order", "send_mail"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t).WithRedis()
			c, types := w.LifeInstance(w.DB)
			orders := map[string]*compensator.Type[harness.Order]{"ship_order": types.Ship, "send_mail": types.Mail}[kind]
			w.RecordMany(c, orders, 50, compensator.Options{})
			crashes := w.Supervise(harness.Program{Killer: "13"})
			assert.Equal(t, 3, crashes, "no more than the budget, and no less: one crash proves nothing")
			require.Equal(t, 49, w.CountEnded(compensator.Succeeded, 0))
			require.Equal(t, 1, w.Count("common_process_log WHERE business_id='13' AND state=-2 AND ended_by='crash' AND process_count=0"))
		})
	}
}

// Failure: F51
func TestFrozenProcessThatComesBackChangesNothing(t *testing.T) {
	t.Parallel()
	for point, drops := range map[string]bool{harness.UntilGo: false, harness.UntilGoToFail: true} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t).WithRedis()
			c, types := w.LifeInstance(w.DB)
			child := w.StartChild(harness.Program{Point: point})
			pay, ship := w.Record(types.Pay, 1, compensator.Options{}), w.Record(types.Ship, 1, compensator.Options{})
			w.Eventually(func() bool { return w.LeaseOf(pay) > 0 && w.LeaseOf(ship) > 0 && child.Times("paused") == 2 }, "the child runs both")
			child.Signal(syscall.SIGSTOP)
			stopped := time.Now()
			w.Run(c) // This instance claims the entries when their leases end.
			w.Eventually(func() bool {
				// The frozen process may be inside a statement that has locked a row of the log. Let it finish that
				// statement.
				if time.Since(stopped) > 15*time.Second {
					child.Signal(syscall.SIGCONT)
					harness.Elapse(100 * time.Millisecond)
					child.Signal(syscall.SIGSTOP)
					stopped = time.Now()
				}
				return w.Count("common_process_log WHERE state IN (0,-1,-3)") == 0
			}, "every entry ends")
			stored := w.Row(pay) + w.Row(ship)
			child.Signal(syscall.SIGCONT)
			child.Continue()
			child.Continue()
			child.Await("dropped " + pay.String())
			if drops {
				child.Await("dropped " + ship.String())
			}
			require.Equal(t, stored, w.Row(pay)+w.Row(ship))
			require.Equal(t, 2, w.CountEnded(compensator.Succeeded, 0))
			requireEffectsOnce(w)
		})
	}
}

// If mayFail is set, recording may fail.
func atWork(w *harness.World, breakServer func(round int), mayFail bool) {
	w.T.Helper()
	for range 2 {
		c, _ := w.LifeInstance(w.DB)
		w.Run(c)
	}
	_, types := w.LifeInstance(w.Open(harness.PlainPool(w.DSN)))
	recorded := 0
	for round := range 3 {
		for i := range 60 {
			for _, orders := range []*compensator.Type[harness.Order]{types.Pay, types.Close} {
				err := tryPut(w, orders, i)
				require.True(w.T, err == nil || mayFail, "record: %v", err)
				if err == nil {
					recorded++
				}
			}
			if i == 40 {
				breakServer(round)
			}
		}
	}
	w.WaitAllEnded()
	require.GreaterOrEqual(w.T, w.Count("common_process_log"), recorded, "what was committed is there")
	require.Zero(w.T, w.Count("common_process_log WHERE state NOT IN (1,2)"))
	requireEffectsOnce(w)
}

// tryPut returns an error, because a broken server may refuse the entry.
func tryPut(w *harness.World, orders *compensator.Type[harness.Order], number int) error {
	tx, err := w.DB.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := orders.Record(w.T.Context(), tx, harness.Order{Number: number}, compensator.Options{}); err != nil {
		return err
	}
	return tx.Commit()
}

// Failure: F82
func TestKilledDatabaseLosesNothingThatWasCommitted(t *testing.T) {
	t.Parallel()
	server := testservers.NewSQL(t)
	w := harness.WorldAt(t, server.Database(t)).WithRedis()
	atWork(w, func(int) {
		server.Kill()
		server.Restart(t)
	}, true)
}

// Failure: F45, F82
func TestKilledRedisLosesNothing(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{nil, {"--appendonly", "yes"}} {
		t.Run(fmt.Sprint(flags), func(t *testing.T) {
			t.Parallel()
			server := testservers.NewRedis(t, flags...)
			w := harness.NewWorld(t)
			w.Redis, w.Name = redis.NewClient(&redis.Options{Addr: server.Addr()}), "killed"
			t.Cleanup(func() { _ = w.Redis.Close() })
			atWork(w, func(round int) {
				server.Kill()
				if round > 0 { // After the kill of the first round, the server stays down until the second round restarts it.
					server.Restart(t)
				}
			}, false)
		})
	}
}
