package compensator

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

// waiting is a Compensator of which an entry waits for a slot: due, and no claim under way.
func waiting(t *testing.T, taken int) (*Compensator, *handlerType) {
	t.Helper()
	c := &Compensator{}
	c.health.c = c
	c.witness.init(c)
	c.work = t.Context()
	c.dispatcher, c.scanner = newDispatcher(c), newScanner(c)
	c.openLanes()
	typ := &handlerType{name: "close_order", slots: &slots{size: 2, credit: time.Hour}}
	require.NoError(t, c.types.add(typ))
	require.Equal(t, taken, typ.slots.take(taken))
	c.scanner.prepare()
	return c, typ
}

func woken(s *scanner) bool {
	select {
	case <-s.wake:
		return true
	default:
		return false
	}
}

func TestEverySlotThatIsGivenBackWakesWhoWaitsForIt(t *testing.T) {
	for name, giveBack := range map[string]func(c *Compensator, typ *handlerType, credit *credit){
		"a rolled back transaction": func(c *Compensator, _ *handlerType, credit *credit) {
			rec := &recording{c: c, drafts: []Draft{{BusinessType: "close_order"}}}
			rec.credits = append(rec.credits, credit)
			rec.rolledBack()
		},
		"a duplicate": func(c *Compensator, _ *handlerType, credit *credit) {
			rec := &recording{c: c, drafts: []Draft{{BusinessType: "close_order"}}, inserted: []Inserted{{Duplicate: true}}}
			rec.credits = append(rec.credits, credit)
			rec.fresh(0)
		},
		"an entry that was not there": func(c *Compensator, _ *handlerType, credit *credit) {
			c.giveBack(freshEntry{businessType: "close_order", credit: credit})
		},
		"a poll that found less": func(c *Compensator, typ *handlerType, _ *credit) { c.free(typ, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			c, typ := waiting(t, 1)
			credit := typ.slots.reserve(1)
			require.NotNil(t, credit)
			require.False(t, woken(c.scanner))
			giveBack(c, typ, credit)
			require.True(t, woken(c.scanner))
		})
	}
}

func TestScannerRestsWhileTheDatabaseIsBehindWithOutcomes(t *testing.T) {
	c, _ := waiting(t, 0)
	release := make(chan struct{})
	defer close(release)
	c.settleLane.Flush = func([]settlement) { <-release }
	c.settleLane.Add(make([]settlement, 20*processlog.MaxRows)...)
	c.scanner.peek = time.Now().Add(time.Hour)
	var claims sync.WaitGroup
	require.Positive(t, c.scanner.step(t.Context(), &claims), "an entry is due and a slot free, yet there is nothing to do")
	claims.Wait()
	require.Zero(t, c.scanner.types["close_order"].claiming)
}

func TestSleepingScannerIsWokenForAnEarlierEntry(t *testing.T) {
	c, typ := waiting(t, 0)
	c.scanner.types[typ.name].due = time.Now().Add(time.Hour)
	c.scanner.expect(typ.name, 2*time.Hour)
	require.False(t, woken(c.scanner))
	c.scanner.expect(typ.name, time.Minute)
	require.True(t, woken(c.scanner))
}

// Who cannot claim what he announces has to tell the others.
func TestScannerKnowsWhetherAClaimCouldBegin(t *testing.T) {
	for name, hinder := range map[string]func(scan *scan, typ *handlerType){
		"two claims under way": func(scan *scan, _ *handlerType) { scan.claiming = claimsInFlight },
		"the database refuses": func(scan *scan, _ *handlerType) { scan.closed = time.Now().Add(time.Hour) },
		"no slot is free":      func(_ *scan, typ *handlerType) { typ.slots.take(typ.slots.size) },
	} {
		t.Run(name, func(t *testing.T) {
			c, typ := waiting(t, 0)
			require.True(t, c.scanner.canClaim(typ))
			hinder(c.scanner.types[typ.name], typ)
			require.False(t, c.scanner.canClaim(typ))
		})
	}
}

func TestClaimThatFoundLessHidesNothingThatAnotherHasLeft(t *testing.T) {
	c, typ := waiting(t, 0)
	scan := c.scanner.types[typ.name]
	scan.due = time.Now().Add(time.Hour)
	scan.claiming = 2
	before := scan.fulls
	scan.ended(claimResult{full: true, next: Never}, before)
	scan.ended(claimResult{next: Never}, before) // it asked the queue first
	require.True(t, scan.wants(typ, time.Now()))
	scan.claiming = 1
	scan.ended(claimResult{next: Never}, scan.fulls)
	require.False(t, scan.wants(typ, time.Now()))
}

// Every process hears that an entry is due, and one gets it: those that come for nothing come later the next time, and
// not in step.
func TestProcessThatCameForNothingHoldsBack(t *testing.T) {
	c, typ := waiting(t, 0)
	scan := c.scanner.types[typ.name]
	require.Zero(t, scan.holdBack())
	for range 2 * mostVain {
		scan.next(claimResult{nothing: true, next: Never})
	}
	drawn := make(map[time.Duration]bool)
	for range 100 {
		wait := scan.holdBack()
		require.Less(t, wait, mostVain*wakeSpread)
		drawn[wait] = true
	}
	require.Greater(t, len(drawn), 50)
	scan.next(claimResult{next: Never})
	require.Zero(t, scan.holdBack())
}

// oneBusy is a Store in which a row is locked for the first few settles.
type oneBusy struct {
	Store
	left    int
	settled chan struct{}
	tokens  map[Token]bool
}

func (s *oneBusy) Settle(_ context.Context, token Token, _ []Outcome) ([]Settled, error) {
	s.tokens[token] = true
	if s.left--; s.left >= 0 {
		return []Settled{{Busy: true}}, nil
	}
	close(s.settled)
	return []Settled{{Applied: true, State: Succeeded}}, nil
}

// An outcome whose row is locked may cost a lock wait each time it is offered: those of free rows must not be
// in the same statement.
func TestOutcomeOfALockedRowWaitsApartFromTheOthers(t *testing.T) {
	c, typ := waiting(t, 0)
	store := &oneBusy{left: 3, settled: make(chan struct{}), tokens: make(map[Token]bool)}
	c.store = store
	c.health.down = true // nobody to be told
	among := make(chan struct{}, 10)
	c.settleLane.Flush = func([]settlement) { among <- struct{}{} }
	c.slowLane.Add(settlement{a: &attempt{t: typ, row: Row{ID: RowID(1)}}, outcome: Outcome{ID: RowID(1), To: Succeeded}})
	select {
	case <-store.settled:
	case <-among:
		t.Fatal("it came back among the others")
	}
	<-c.slowLane.Done()
	require.Len(t, store.tokens, 1, "a try whose answer was lost may have stored it: only its own token tells")
}
