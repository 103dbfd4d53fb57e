package engine

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

// threes is a Grouping whose calls take three entries. Entries that have lost at most one lease share calls.
type threes struct {
	e     *Engine
	wait  time.Duration
	looks int // number of calls of Look
}

func (*threes) Seats() int              { return 3 }
func (g *threes) Linger() time.Duration { return g.wait }
func (*threes) EntryDue() bool          { return false }
func (*threes) ClaimFull()              {}

func (*threes) SharingClass(state processlog.State, lost int) SharingClass {
	switch {
	case state == processlog.Compensating || lost > SuspectAfter:
		return NotShared
	case lost == SuspectAfter:
		return SharedWithSuspects
	}
	return SharedWithOthers
}

func (g *threes) Start(batch []*Attempt) {
	go func() {
		ShareSlot(batch, 1)
		for _, a := range batch {
			g.e.Finish(a, Result{})
		}
	}()
}

func (g *threes) Look(time.Time) (look func() time.Duration, next time.Time) {
	g.looks++
	return func() time.Duration { return processlog.Never }, time.Time{}
}

// inThrees returns a type whose calls take three entries.
func inThrees(t Type) *Type {
	t.AttachGrouping(&threes{})
	return &t
}

// lingering returns a claim schedule with one type, whose due entries wait for others to share their call.
func lingering(wait time.Duration) (*claimSchedule, *typeSchedule) {
	types := newTypes(time.Minute)
	mail := &Type{Name: "mail", Concurrency: 1, Lease: time.Minute, slots: &counted{size: 1}}
	mail.AttachGrouping(&threes{wait: wait})
	_ = types.addType(mail)
	a := newClaimSchedule(types)
	a.prepare()
	typeSchedule := a.byType["mail"]
	typeSchedule.claimBegins(time.Now())
	typeSchedule.claimEnded(ClaimResult{NextDueIn: processlog.Never}, typeSchedule.fullClaims)
	return a, typeSchedule
}

// Failure: F107
func TestEntryThatWaitsForOthersIsNotPutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, typeSchedule := lingering(20 * time.Second)
		a.Expect("mail", 0)
		due := typeSchedule.claimAt
		require.Equal(t, 20*time.Second, time.Until(due))
		for range 3 {
			<-time.After(peekInterval)
			a.Postpone("mail", notifiedOf(a), 0) // the queue says that an entry is due, but not since when
			a.Expect("mail", 0)
			require.Equal(t, due, typeSchedule.claimAt)
		}
	})
}

// Failure: F107
func TestTypeAtRestThatWaitsForOthersIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, typeSchedule := lingering(20 * time.Second)
		a.Expect("mail", processlog.Never)
		require.Greater(t, time.Until(typeSchedule.claimAt), peekInterval)
		require.False(t, typeSchedule.isLingering(time.Now()), "nothing is due")
	})
}

// Failure: F107
func TestWhatIsOverdueWaitsForOthersThatMuchLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, typeSchedule := lingering(20 * time.Second)
		a.Expect("mail", -15*time.Second)
		require.Equal(t, 5*time.Second, time.Until(typeSchedule.claimAt))
		a.Expect("mail", -time.Hour)
		require.Zero(t, time.Until(typeSchedule.claimAt))
	})
}

// While due entries wait for others to share their call, each new entry joins them. So the queue need not be asked again.
func TestQueueIsNotAskedAgainWhileEntriesWaitForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, typeSchedule := lingering(20 * time.Second)
		require.True(t, a.Notify("mail", 0), "only the source knows since when the entry waits")
		a.Expect("mail", 0)
		require.True(t, typeSchedule.isLingering(time.Now()))
		require.False(t, a.Notify("mail", 0))
	})
}

// When Run begins, this process does not know how many due entries wait for others to share their call, and since when. So
// the scanner asks the database before it claims.
// Failure: F107
func TestRunBeginsWithALookAtWhatWaitsForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := lingering(20 * time.Second)
		typ := a.types.TypeNamed("mail")
		a.prepare()
		typeSchedule := a.byType["mail"]
		require.False(t, typeSchedule.shouldClaim(time.Now()))
		var looks sync.WaitGroup
		a.lookLocked(typeSchedule, time.Now(), &looks)
		looks.Wait()
		require.Equal(t, 1, typ.grouping.(*threes).looks)
		a.prepare()
		typeSchedule = a.byType["mail"]
		a.lookEnded("mail", 0)
		require.True(t, typeSchedule.shouldClaim(time.Now()), "they are enough, or have waited")

		a.prepare()
		typeSchedule, asked := a.byType["mail"], notifiedOf(a)
		a.lookEnded("mail", 3*time.Second)
		a.Postpone("mail", asked, processlog.Never)
		require.Equal(t, 3*time.Second, time.Until(typeSchedule.claimAt), "the queue does not know of it, or was asked before")

		a.prepare()
		typeSchedule = a.byType["mail"]
		a.Postpone("mail", notifiedOf(a), processlog.Never)
		a.lookEnded("mail", processlog.Never)
		require.False(t, typeSchedule.isLingering(time.Now()), "nothing is due: no more looks")

		a.prepare()
		typeSchedule, asked = a.byType["mail"], notifiedOf(a)
		a.Notify("mail", 0)
		a.Postpone("mail", asked, processlog.Never)
		require.LessOrEqual(t, time.Until(typeSchedule.claimAt), 20*time.Second, "another process has enqueued one meanwhile")
	})
}

// Entries that share a call take one slot together. Each entry that runs alone takes a slot of its own.
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

// A claim leases as many of the claimable entries as fit into its handler calls, in whatever order the rows come.
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

// notifiedOf returns how many notifications the schedule has counted for its first type.
func notifiedOf(a *claimSchedule) int {
	_, notified := a.Notifications()
	return notified[0]
}
