package compensator_test

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/testservers"
)

// requireEffectsOnce requires that each paid order was paid once and each closed one undone once.
func (w *world) requireEffectsOnce() {
	w.t.Helper()
	for effect, where := range map[string]string{"paid ": "business_type='pay_order' AND state=1", "undone ": "business_type='close_order' AND state=2"} {
		n := w.count("common_process_log WHERE " + where)
		require.Equal(w.t, n, w.count("effects WHERE what LIKE ?", effect+"%"), effect)
		require.Equal(w.t, n, w.count("common_process_log JOIN effects ON what=CONCAT(?,common_process_log.id) WHERE "+where, effect), effect)
	}
}

func TestProcessKilledAnywhereLosesNothing(t *testing.T) {
	for _, point := range []string{afterClaim, inHandler, afterHandler, afterSettle, afterExhausted, inCompensation, afterUndone, afterReconcile} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t).withRedis()
			c, types := w.lifeInstance(w.DB)
			for i := range 4 {
				for _, orders := range []*compensator.Type[order]{types.pay, types.ship, types.close, types.mail} {
					put(w, orders, i, compensator.Options{})
				}
			}
			child := w.startChild(program{Point: point})
			child.await("paused")
			child.kill()
			w.run(c)
			w.waitAllEnded()
			require.Equal(t, 12, w.ended(compensator.Succeeded, 0), "a crash is no failure")
			require.Equal(t, 4, w.ended(compensator.Compensated, 1))
			w.requireEffectsOnce()
		})
	}
}

func TestEntryOfAProcessKilledBetweenCommitAndAnnouncementRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t).withRedis()
	c, _ := w.lifeInstance(w.DB)
	w.run(c)
	child := w.startChild(program{Record: true, Point: afterCommit})
	child.await("paused")
	child.kill()
	w.waitAllEnded()
	require.Equal(t, 1, w.count("common_process_log WHERE business_id='the child\\'s' AND state=1"))
	w.requireEffectsOnce()
}

func TestEntryOfAProcessKilledBeforeItsCommitNeverWas(t *testing.T) {
	t.Parallel()
	w := newWorld(t).withRedis()
	c, types := w.lifeInstance(w.DB)
	w.run(c)
	child := w.startChild(program{Record: true, Point: beforeCommit})
	child.await("paused")
	child.kill()
	w.waitState(put(w, types.pay, 1, compensator.Options{}), compensator.Succeeded)
	w.eventually(func() bool { return w.count("common_process_log WHERE business_id<>''") == 0 }, "the server rolls the child's transaction back")
	require.Equal(t, 1, w.count("effects"))
}

// supervise restarts a child as long as its handlers end it, until no entry is on its way.
func (w *world) supervise(p program) (crashes int) {
	w.t.Helper()
	child := w.startChild(p)
	w.eventually(func() bool {
		select {
		case <-child.done:
			require.Equal(w.t, killed, child.cmd.ProcessState.ExitCode())
			crashes++
			child = w.startChild(p)
		default:
		}
		return w.count("common_process_log WHERE state IN (0,-1,-3)") == 0
	}, "every entry ends")
	child.kill()
	return crashes
}

func TestEntryThatKillsItsProcessIsTakenOutAndNoOther(t *testing.T) {
	for _, kind := range []string{"ship_order", "send_mail"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t).withRedis()
			c, types := w.lifeInstance(w.DB)
			orders := map[string]*compensator.Type[order]{"ship_order": types.ship, "send_mail": types.mail}[kind]
			putMany(w, c, orders, 50, compensator.Options{})
			crashes := w.supervise(program{Killer: "13"})
			assert.Equal(t, 3, crashes, "no more than the budget, and no less: one crash proves nothing")
			require.Equal(t, 49, w.ended(compensator.Succeeded, 0))
			require.Equal(t, 1, w.count("common_process_log WHERE business_id='13' AND state=-2 AND ended_by='crash' AND process_count=0"))
		})
	}
}

func TestFrozenProcessThatComesBackChangesNothing(t *testing.T) {
	for point, drops := range map[string]bool{untilGo: false, untilGoToFail: true} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t).withRedis()
			c, types := w.lifeInstance(w.DB)
			child := w.startChild(program{Point: point})
			pay, ship := put(w, types.pay, 1, compensator.Options{}), put(w, types.ship, 1, compensator.Options{})
			w.eventually(func() bool { return w.leaseOf(pay) > 0 && w.leaseOf(ship) > 0 && child.times("paused") == 2 }, "the child runs both")
			child.signal(syscall.SIGSTOP)
			w.run(c) // takes them over when their leases end
			w.waitAllEnded()
			stored := w.row(pay) + w.row(ship)
			child.signal(syscall.SIGCONT)
			child.goOn()
			child.goOn()
			child.await("dropped " + pay.String())
			if drops {
				child.await("dropped " + ship.String())
			}
			require.Equal(t, stored, w.row(pay)+w.row(ship))
			require.Equal(t, 2, w.ended(compensator.Succeeded, 0))
			w.requireEffectsOnce()
		})
	}
}

// atWork records entries while instances work them off, and breaks a server meanwhile.
func (w *world) atWork(breakServer func(round int), mayFail bool) {
	w.t.Helper()
	for range 2 {
		c, _ := w.lifeInstance(w.DB)
		w.run(c)
	}
	_, types := w.lifeInstance(w.open(plain(w.DSN)))
	recorded := 0
	for round := range 3 {
		for i := range 60 {
			for _, orders := range []*compensator.Type[order]{types.pay, types.close} {
				err := w.tryPut(orders, i)
				require.True(w.t, err == nil || mayFail, "record: %v", err)
				if err == nil {
					recorded++
				}
			}
			if i == 40 {
				breakServer(round)
			}
		}
	}
	w.waitAllEnded()
	require.GreaterOrEqual(w.t, w.count("common_process_log"), recorded, "what was committed is there")
	require.Zero(w.t, w.count("common_process_log WHERE state NOT IN (1,2)"))
	w.requireEffectsOnce()
}

// tryPut records an entry, which a broken server may refuse.
func (w *world) tryPut(orders *compensator.Type[order], number int) error {
	tx, err := w.DB.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := orders.Record(w.t.Context(), tx, order{Number: number}, compensator.Options{}); err != nil {
		return err
	}
	return tx.Commit()
}

func TestKilledDatabaseLosesNothingThatWasCommitted(t *testing.T) {
	t.Parallel()
	server := testservers.NewSQL(t)
	w := worldAt(t, server.Database(t)).withRedis()
	w.atWork(func(int) {
		server.Kill()
		server.Restart(t)
	}, true)
}

func TestKilledRedisLosesNothing(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{nil, {"--appendonly", "yes"}} {
		t.Run(fmt.Sprint(flags), func(t *testing.T) {
			t.Parallel()
			server := testservers.NewRedis(t, flags...)
			w := newWorld(t)
			w.Redis, w.Name = redis.NewClient(&redis.Options{Addr: server.Addr()}), "killed"
			t.Cleanup(func() { _ = w.Redis.Close() })
			w.atWork(func(round int) {
				server.Kill()
				if round > 0 { // the first time it stays away for the rest of the round
					server.Restart(t)
				}
			}, false)
		})
	}
}
