package engine

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/refusals"
	"github.com/compensator-go/compensator/processlog"
)

type threes struct {
	e    *Engine
	wait time.Duration
	left time.Duration // time for which the method look delays the next claim. 0 means that the claim may begin
}

func (g *threes) grouping() Grouping {
	return Grouping{Seats: 3, Start: g.start, Linger: g.wait, EntryDue: func(time.Time) time.Duration { return 0 }, Look: g.look}
}

func (g *threes) start(batch []*Attempt) {
	go func() {
		users := new(atomic.Int32)
		users.Store(1)
		for _, a := range batch {
			a.SlotUsers = users
			g.e.Finish(a, Result{})
		}
	}()
}

func (g *threes) look(time.Time, bool) (ask func() time.Duration) {
	if g.left == 0 {
		return nil
	}
	return func() time.Duration { return g.left }
}

func inThrees(t Type) *Type {
	t.AttachGrouping(new(threes).grouping())
	return &t
}

// lingering returns a claim schedule with one type, whose due entries wait for others to share their call.
func lingering(wait time.Duration) (*claimSchedule, *typeSchedule) {
	types := newTypes(time.Minute)
	mail := &Type{Name: "mail", Concurrency: 1, Lease: time.Minute, slots: &counted{size: 1}}
	mail.AttachGrouping((&threes{wait: wait}).grouping())
	_ = types.addType(mail)
	a := newClaimSchedule(types)
	a.prepare()
	typeSchedule := a.byType["mail"]
	typeSchedule.claimBegins(time.Now())
	typeSchedule.claimEnded(ClaimResult{NextDueIn: processlog.Never}, typeSchedule.found)
	return a, typeSchedule
}

// Failure: F107
func TestEntryThatWaitsForOthersIsNotPutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := lingering(20 * time.Second)
		a.Expect("mail", 0)
		asked := notifiedOf(a)
		s.claimBegins(time.Now())
		a.lookEnded("mail", 3*time.Second)
		due := s.claimAt
		a.Postpone("mail", notifiedOf(a), 0)
		require.Equal(t, due, s.claimAt)
		a.Postpone("mail", asked, processlog.Never)
		require.Equal(t, due, s.claimAt, "the queue was asked before the look ended")
		require.Equal(t, 3*time.Second, time.Until(due))
	})
}

// Failure: F107
func TestClaimWaitsForALookAtWhatWaitsForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := lingering(20 * time.Second)
		typ := a.types.TypeNamed("mail")
		threes := &threes{wait: 20 * time.Second, left: 3 * time.Second}
		typ.AttachGrouping(threes.grouping())
		var goroutines sync.WaitGroup
		a.Expect("mail", 0)
		wait := a.start(&goroutines, &Engine{Base: &Base{Refusals: refusals.New(nil, nil, nil)}})
		goroutines.Wait()
		require.Equal(t, peekInterval, wait)
		require.Equal(t, 1, typ.slots.Available(), "a look holds no slot")
		require.Equal(t, 3*time.Second, time.Until(s.claimAt))
		require.Zero(t, s.runningClaims)
		require.NotNil(t, s.look(time.Now()))
		threes.left = 0
		require.Nil(t, s.look(time.Now()))
	})
}

// A look counts the due entries in the database. A running claim has perhaps not leased its entries yet, so a look
// would count these entries too.
func TestNoLookBeginsDuringAClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := lingering(20 * time.Second)
		a.Expect("mail", 0)
		require.True(t, s.shouldClaim(time.Now()))
		s.claimBegins(time.Now())
		a.Expect("mail", 0)
		require.False(t, s.shouldClaim(time.Now()))
	})
}

func TestRefusedClaimIsTriedAgainWithoutALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := lingering(20 * time.Second)
		a.types.TypeNamed("mail").AttachGrouping((&threes{wait: 20 * time.Second, left: time.Second}).grouping())
		a.claimEnded(s.typ, ClaimResult{Err: errors.New("deadlock")}, s.claimBegins(time.Now()))
		require.Nil(t, s.look(time.Now()))
	})
}

// Failure: F107
func TestClaimedEntriesNeedAsManyCallsAsHandlersRun(t *testing.T) {
	mail := inThrees(Type{Name: "mail"})
	rows := func(together, suspects, compensating int) (rows []processlog.Row) {
		for range together {
			rows = append(rows, processlog.Row{DeliveryCount: 1})
		}
		for range suspects {
			rows = append(rows, processlog.Row{DeliveryCount: 2})
		}
		for range compensating {
			rows = append(rows, processlog.Row{DeliveryCount: 1, State: processlog.Compensating})
		}
		return rows
	}
	require.Equal(t, 0, mail.callsOfRows(nil))
	require.Equal(t, 1, mail.callsOfRows(rows(3, 0, 0)))
	require.Equal(t, 2, mail.callsOfRows(rows(4, 0, 0)))
	require.Equal(t, 4, mail.callsOfRows(rows(4, 2, 1)), "two of one lost lease share a call")
	require.Equal(t, 7, (&Type{Name: "plain"}).callsOfRows(rows(4, 2, 1)))
	require.Equal(t, processlog.MaxRows, mail.MaxEntries(1000))
	mail.AttachAdmission(func(a *Admission) { a.CallsAllowed = func() int { return 1 } })
	require.Equal(t, 1, mail.MaxEntries(1), "one call of a limited type brings one entry, not a batch")
}

// Failure: F107
func TestNoMoreIsClaimedThanCallsMayBegin(t *testing.T) {
	mail := inThrees(Type{Name: "mail", Concurrency: 2})
	for _, lost := range [][]int{{0, 0, 0, 0, 0, 0, 0, 1}, {1, 0, 0, 0, 0}, {0, 1, 0, 0, 0, 1}, {1, 1, 0, 1, 0, 2}, {1, 1, 0, 1, 0, 0}} {
		p := picker{seating: seating{t: mail}, holdings: newHoldings(), maxCalls: 2}
		var mine []processlog.Row
		for i, n := range lost {
			row := processlog.Row{ID: processlog.RowID(uint64(i + 1)), BusinessType: "mail", DeliveryCount: n}
			if p.accept(&row) {
				row.DeliveryCount++
				mine = append(mine, row)
			}
		}
		require.Equal(t, 2, mail.callsOfRows(mine), "%v", lost)
		require.Len(t, p.withoutSeat, len(lost)-len(mine))
	}
}

func notifiedOf(a *claimSchedule) int {
	_, notified := a.Notifications()
	return notified[0]
}

func TestEntryRunsAloneBeforeItsLastLease(t *testing.T) {
	mail := inThrees(Type{Name: "mail"})
	// Suppose that each handler call of an entry crashes the process, so each call costs the entry a lease. The
	// variable shared counts the calls that this entry shares with other entries, before it must run alone.
	shared := 0
	for mail.sharingClass(processlog.Pending, shared) != notShared {
		shared++
	}
	require.Less(t, shared, crashBudget)
	require.Equal(t, notShared, mail.sharingClass(processlog.Retrying, crashBudget-1))
	require.Equal(t, notShared, mail.sharingClass(processlog.Compensating, 0))
}
