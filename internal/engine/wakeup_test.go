package engine

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

func waiting(t *testing.T, taken int) (*Engine, *Type) {
	t.Helper()
	return waitingOn(t, taken, Config{})
}

func waitingOn(t *testing.T, taken int, cfg Config) (*Engine, *Type) {
	t.Helper()
	cfg.Log, cfg.ErrorNumber = slog.New(slog.DiscardHandler), func(error) uint16 { return 0 }
	e := New(t.Context(), cfg)
	require.NoError(t, e.Register(Type{Name: "close_order", Concurrency: 2, Lease: time.Hour}, withSlots))
	typ := e.TypeNamed("close_order")
	require.Equal(t, taken, typ.slots.Take(taken))
	e.claimSchedule.prepare()
	return e, typ
}

func woken(a *claimSchedule) bool {
	select {
	case <-a.wake:
		return true
	default:
		return false
	}
}

func TestEverySlotThatIsGivenBackWakesWhoWaitsForIt(t *testing.T) {
	for name, giveBack := range map[string]func(e *Engine, typ *Type, reservation Reservation){
		"a rolled back transaction": func(e *Engine, _ *Type, reservation Reservation) {
			rec := &Recording{engine: e, Drafts: []processlog.Draft{{BusinessType: "close_order"}}}
			rec.reservations = append(rec.reservations, reservation)
			rec.RolledBack()
		},
		"a duplicate": func(e *Engine, _ *Type, reservation Reservation) {
			rec := &Recording{engine: e, Drafts: []processlog.Draft{{BusinessType: "close_order"}}, Inserted: []processlog.Inserted{{Duplicate: true}}}
			rec.reservations = append(rec.reservations, reservation)
			rec.insertedEntries(0)
		},
		"an entry that was not there": func(e *Engine, _ *Type, reservation Reservation) {
			e.CancelReservation("close_order", reservation)
		},
		"a poll that found less": func(e *Engine, typ *Type, _ Reservation) { e.FreeSlots(typ, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			e, typ := waiting(t, 1)
			reservation := typ.slots.Reserve(1)
			require.NotNil(t, reservation)
			require.False(t, woken(e.claimSchedule))
			giveBack(e, typ, reservation)
			require.True(t, woken(e.claimSchedule))
		})
	}
}

func TestScannerRestsWhileTheDatabaseIsBehindWithOutcomes(t *testing.T) {
	e, _ := waiting(t, 0)
	release := make(chan struct{})
	defer close(release)
	e.outcomes.ordinary.Flush = func([]pendingOutcome) { <-release }
	e.outcomes.ordinary.Add(make([]pendingOutcome, 20*processlog.MaxRows)...)
	var claims sync.WaitGroup
	require.Positive(t, e.startClaims(&claims), "an entry is due and a slot free, yet there is nothing to do")
	claims.Wait()
	require.Zero(t, e.claimSchedule.byType["close_order"].runningClaims)
}

func TestSleepingScannerIsWokenForAnEarlierEntry(t *testing.T) {
	e, typ := waiting(t, 0)
	e.claimSchedule.byType[typ.Name].claimAt = time.Now().Add(time.Hour)
	e.Expect(typ.Name, 2*time.Hour)
	require.False(t, woken(e.claimSchedule))
	e.Expect(typ.Name, time.Minute)
	require.True(t, woken(e.claimSchedule))
}

func TestScannerKnowsWhetherAClaimCouldBegin(t *testing.T) {
	for name, hinder := range map[string]func(typeSchedule *typeSchedule, typ *Type){
		"two claims under way": func(typeSchedule *typeSchedule, _ *Type) { typeSchedule.runningClaims = claimsInFlight },
		"the database refuses": func(typeSchedule *typeSchedule, _ *Type) { typeSchedule.pausedUntil = time.Now().Add(time.Hour) },
		"no slot is free":      func(_ *typeSchedule, typ *Type) { typ.slots.Take(typ.Concurrency) },
	} {
		t.Run(name, func(t *testing.T) {
			e, typ := waiting(t, 0)
			require.True(t, e.CanClaim(typ))
			hinder(e.claimSchedule.byType[typ.Name], typ)
			require.False(t, e.CanClaim(typ))
		})
	}
}

func TestClaimThatFoundLessHidesNothingThatAnotherHasLeft(t *testing.T) {
	e, typ := waiting(t, 0)
	typeSchedule := e.claimSchedule.byType[typ.Name]
	typeSchedule.claimAt = time.Now().Add(time.Hour)
	typeSchedule.runningClaims = 2
	before := typeSchedule.found
	typeSchedule.claimEnded(ClaimResult{Full: true, NextDueIn: processlog.Never}, before)
	// The second claim began before the first claim ended. So it does not know that the first claim has left entries,
	// and must not cancel the next claim.
	typeSchedule.claimEnded(ClaimResult{NextDueIn: processlog.Never}, before)
	require.True(t, typeSchedule.shouldClaim(time.Now()))
	typeSchedule.runningClaims = 1
	typeSchedule.claimEnded(ClaimResult{NextDueIn: processlog.Never}, typeSchedule.found)
	require.False(t, typeSchedule.shouldClaim(time.Now()))
}

func TestClaimThatDrainedWhatItReadHidesNoBacklogTheOthersHaveFoundSince(t *testing.T) {
	drained := ClaimResult{StoreDrained: true, NextDueIn: processlog.Never}
	for name, find := range map[string]func(e *Engine, s *typeSchedule){
		"a report": func(e *Engine, s *typeSchedule) { e.ExpectBacklog(s.typ.Name) },
		"another claim": func(_ *Engine, s *typeSchedule) {
			s.claimEnded(ClaimResult{Full: true, NextDueIn: processlog.Never}, s.found)
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, typ := waiting(t, 0)
			typeSchedule := e.claimSchedule.byType[typ.Name]
			typeSchedule.runningClaims = 4
			e.ExpectBacklog(typ.Name)
			before := typeSchedule.found
			find(e, typeSchedule)
			typeSchedule.claimEnded(drained, before)
			require.True(t, typeSchedule.backlog)
			typeSchedule.claimEnded(ClaimResult{NextDueIn: processlog.Never}, typeSchedule.found)
			require.True(t, typeSchedule.backlog, "other processes may have been faster")
			typeSchedule.claimEnded(drained, typeSchedule.found)
			require.False(t, e.HasMore(typ))
		})
	}
}

func TestTwoClaimsRunAtATimeUnlessANumberOfCallsIsAllowed(t *testing.T) {
	for allowed, want := range map[int]bool{Unlimited: true, Checked: true, Checked - 1: false, 1: false} {
		e, typ := waiting(t, 0)
		typ.AttachAdmission(func(a *Admission) { a.CallsAllowed = func() int { return allowed } })
		typeSchedule := e.claimSchedule.byType[typ.Name]
		typeSchedule.runningClaims = 1
		require.Equal(t, want, typeSchedule.shouldClaim(time.Now().Add(time.Hour)), "%d calls", allowed)
	}
}

type oneBusy struct {
	processlog.Store
	left    int
	settled chan struct{}
	tokens  map[processlog.Token]bool
}

func (s *oneBusy) Settle(_ context.Context, token processlog.Token, _ []processlog.Outcome) ([]processlog.Settled, error) {
	s.tokens[token] = true
	if s.left--; s.left >= 0 {
		return []processlog.Settled{{Busy: true}}, nil
	}
	close(s.settled)
	return []processlog.Settled{{Applied: true, State: processlog.Succeeded}}, nil
}

// Failure: F27
func TestOutcomeOfALockedRowWaitsApartFromTheOthers(t *testing.T) {
	store := &oneBusy{left: 3, settled: make(chan struct{}), tokens: make(map[processlog.Token]bool)}
	e, typ := waitingOn(t, 0, Config{Store: store}) // no observer
	among := make(chan struct{}, 10)
	e.outcomes.ordinary.Flush = func([]pendingOutcome) { among <- struct{}{} }
	e.outcomes.locked.Add(pendingOutcome{attempt: &Attempt{Type: typ, Row: processlog.Row{ID: processlog.RowID(1)}}, outcome: processlog.Outcome{ID: processlog.RowID(1), To: processlog.Succeeded}})
	select {
	case <-store.settled:
	case <-among:
		t.Fatal("it came back among the others")
	}
	<-e.outcomes.locked.Done()
	require.Len(t, store.tokens, 1, "a try whose answer was lost may have stored it: only its own token tells")
}

func TestMomentsThatNobodySaysAgainAreKept(t *testing.T) {
	const moments = 16
	const apart = peekInterval / moments
	e, typ := waiting(t, 0)
	typeSchedule := e.claimSchedule.byType[typ.Name]
	start := time.Now()
	for i := moments; i > 0; i-- { // each due time is earlier than the one before
		e.Expect(typ.Name, time.Duration(i)*apart)
	}
	typeSchedule.claimBegins(start)
	ended := func(fromDatabase bool) {
		e.claimSchedule.claimEnded(typ, ClaimResult{FromDatabase: fromDatabase, NextDueIn: processlog.Never}, typeSchedule.found)
	}
	ended(false)
	require.True(t, typeSchedule.claimAt.After(start.Add(peekInterval)), "a queue that was asked has the last word")
	for i := range moments {
		next := start.Add(time.Duration(i+1) * apart)
		ended(true)
		require.False(t, typeSchedule.claimAt.Before(next))
		require.True(t, typeSchedule.claimAt.Before(next.Add(apart)), "moment %d is forgotten", i)
		typeSchedule.claimBegins(typeSchedule.claimAt)
	}
}

func TestMoreMomentsThanAreKeptLeaveTheNextOnes(t *testing.T) {
	typeSchedule := &typeSchedule{typ: new(Type)}
	now := time.Now()
	for i := range 3 * maxLaterDueTimes {
		typeSchedule.rememberDueTime(now.Add(time.Duration(i*7%(3*maxLaterDueTimes)) * time.Second))
	}
	require.Len(t, typeSchedule.laterDueTimes, maxLaterDueTimes)
	for i, due := range typeSchedule.laterDueTimes {
		require.Equal(t, now.Add(time.Duration(i)*time.Second), due)
	}
}

func TestSourceThatHasLostATypeDoesNotSayWhenItIsDue(t *testing.T) {
	e, typ := waiting(t, 0)
	typeSchedule := e.claimSchedule.byType[typ.Name]
	typeSchedule.claimBegins(time.Now())
	typeSchedule.runningClaims = 0
	e.Expect(typ.Name, peekInterval)
	_, notified := e.Notifications()
	e.Postpone(typ.Name, notified[0], processlog.Never)
	e.Expect(typ.Name, processlog.Never)
	e.ExpectBacklog(typ.Name) // makes the scanner ask the database now
	typeSchedule.claimBegins(time.Now())
	e.claimSchedule.claimEnded(typ, ClaimResult{FromDatabase: true, NextDueIn: processlog.Never}, typeSchedule.found)
	require.LessOrEqual(t, time.Until(typeSchedule.claimAt), peekInterval)
}
