package engine

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

// counted is an implementation of Slots with a fixed number of slots. Its method Reserve occupies the slots
// immediately. A reservation never lapses.
type counted struct {
	mu    sync.Mutex
	size  int
	taken int
}

func (s *counted) Take(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n = max(0, min(n, s.size-s.taken))
	s.taken += n
	return n
}

func (s *counted) TakeRecorded() bool { return s.Take(1) == 1 }
func (s *counted) Overdraw(n int)     { s.Release(-n) }
func (s *counted) Recorded()          {}

func (s *counted) Available() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, s.size-s.taken)
}

func (s *counted) Release(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken -= n
}

func (s *counted) Reserve(n int) Reservation { return &reserved{s: s, n: s.Take(n)} }

type reserved struct {
	s *counted
	n int
}

func (r *reserved) Use(keep int) bool {
	if r.n == 0 {
		return false
	}
	r.s.Release(r.n - keep)
	r.n = 0
	return true
}

func withSlots(t *Type) { t.AttachSlots(&counted{size: t.Concurrency}) }

// A process inserts an entry with a lease. The transaction commits only after this lease has ended, and the process
// then claims the entry with the token of this lease. An entry with a lost lease is a suspect, because it may have
// crashed a process. But no handler could run before the commit. So the ended lease must not count as lost, and the
// entry must be no suspect.
// Failure: F61
func TestEntryClaimedOnAfterALateCommitIsNoSuspect(t *testing.T) {
	var lost []int
	left := 0
	typ := &Type{Name: "close_order", Concurrency: 50, Lease: time.Second}
	typ.AttachAdmission(func(a *Admission) {
		a.Accept = func(_ *processlog.Row, n int) bool { lost = append(lost, n); return true }
		a.SuspectDone = func(_ *processlog.Row, why SuspectEnd) {
			require.Equal(t, NotClaimed, why)
			left++
		}
	})
	row := processlog.Row{ID: processlog.RowID(1), BusinessType: "close_order", DeliveryCount: 1, Token: processlog.Token{1}}
	h := newHoldings()
	claim := func(want processlog.Wanted, mine ...processlog.Row) {
		p := picker{seating: seating{t: typ}, holdings: h, wanted: []processlog.Wanted{want}, maxCalls: 1}
		require.True(t, p.accept(&row))
		p.reportUnclaimedSuspects(mine)
	}
	claim(processlog.Wanted{ID: row.ID, Token: row.Token})
	require.Equal(t, []int{0}, lost)
	require.Zero(t, left)
	claim(processlog.Wanted{ID: row.ID}, row)
	require.Equal(t, []int{0, 1}, lost, "the process that recorded it has died")
	require.Zero(t, left)
	claim(processlog.Wanted{ID: row.ID})
	require.Equal(t, 1, left, "it was not claimed after all")
	row.Token = processlog.Token{} // another program has written the row
	claim(processlog.Wanted{ID: row.ID})
	require.Equal(t, []int{0, 1, 1, 1}, lost)
}

func TestEntryThatOneAdmissionRefusesIsGivenBackToTheOthers(t *testing.T) {
	for name, refusesFirst := range map[string]bool{"before": true, "after": false} {
		t.Run(name, func(t *testing.T) {
			typ := &Type{Name: "close_order", Concurrency: 50, Lease: time.Second}
			accepted, admitted, accepting := 0, 0, true
			keeps := func(a *Admission) {
				a.Accept = func(*processlog.Row, int) bool { accepted++; return true }
				a.SuspectDone = func(*processlog.Row, SuspectEnd) { accepted-- }
				a.Admit = func(attempts []*Attempt) ([]*Attempt, []*Attempt) { admitted += len(attempts); return attempts, nil }
				a.AttemptEnded = func(_ *Attempt, r Result) {
					require.True(t, r.Unstarted)
					admitted--
				}
			}
			refuses := func(a *Admission) {
				a.Accept = func(*processlog.Row, int) bool { return accepting }
				a.SuspectDone = func(*processlog.Row, SuspectEnd) { require.Fail(t, "it has accepted nothing") }
				a.Admit = func(attempts []*Attempt) ([]*Attempt, []*Attempt) { return nil, attempts }
				a.AttemptEnded = func(*Attempt, Result) { require.Fail(t, "it has admitted nothing") }
			}
			if refusesFirst {
				typ.AttachAdmission(refuses)
				typ.AttachAdmission(keeps)
			} else {
				typ.AttachAdmission(keeps)
				typ.AttachAdmission(refuses)
			}
			row := processlog.Row{ID: processlog.RowID(1), BusinessType: "close_order", DeliveryCount: 1}
			accepting = false
			p := picker{seating: seating{t: typ}, holdings: newHoldings(), wanted: []processlog.Wanted{{ID: row.ID}}, maxCalls: 1}
			require.False(t, p.accept(&row))
			p.reportUnclaimedSuspects(nil)
			require.Zero(t, accepted)
			started, refused := typ.Admitted([]*Attempt{{Type: typ, Row: row}})
			require.Empty(t, started)
			require.Len(t, refused, 1)
			require.Zero(t, admitted)
		})
	}
}

func TestScannerSleepsUntilATypeHasRoomAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(t.Context(), Config{Log: slog.New(slog.DiscardHandler), Lease: time.Hour})
		defer e.Close()
		var at time.Time
		require.NoError(t, e.Register(Type{Name: "refund", Concurrency: 10, Lease: time.Hour}, withSlots, func(t *Type) {
			t.AttachAdmission(func(a *Admission) {
				a.CallsAllowed, a.MoreCallsAt = func() int { return 0 }, func() time.Time { return at }
			})
		}))
		e.TypeNamed("refund").slots.Take(10)
		e.claimSchedule.prepare()
		var claims sync.WaitGroup
		at = time.Now().Add(time.Hour)
		require.Equal(t, peekInterval, e.startClaims(&claims))
		at = time.Now().Add(time.Second)
		require.Equal(t, time.Second, e.startClaims(&claims))
		claims.Wait()
		require.Zero(t, e.claimSchedule.byType["refund"].runningClaims)
	})
}

// The stuck handlers are found in the random order of a map.
func TestStuckBatchIsReportedByItsFirstEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(t.Context(), Config{Log: slog.New(slog.DiscardHandler), Lease: time.Hour})
		defer e.Close()
		var stuck []processlog.ID
		typ := &Type{Name: "refund", Lease: time.Hour}
		typ.AttachAdmission(func(admission *Admission) {
			admission.Stuck = func(a *Attempt, number uint32) {
				require.EqualValues(t, 3, number)
				stuck = append(stuck, a.Row.ID)
			}
		})
		for i := range 8 {
			a := &Attempt{Type: typ, Row: processlog.Row{ID: processlog.RowID(uint64(i + 1))}, call: call{number: 3, startedAt: time.Now()}, leaseEnd: time.Now().Add(time.Hour)}
			a.ctx, a.cancel = context.WithCancelCause(t.Context())
			e.holdings.held[a.holdingKey()] = a
		}
		time.Sleep(stuckAfter + time.Second)
		e.needRenewal()
		require.Len(t, stuck, 8)
		require.Equal(t, processlog.RowID(1), stuck[0])
	})
}

// startClaimed reuses the memory of its list of attempts. Later, the list holds other attempts in place of the blocked
// ones. If startClaimed counted the slots to free in this list, it would free a wrong number of slots.
// Failure: F107
func TestBlockedCallsFreeTheirSlotsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := waitingOn(t, 0, Config{Store: settling{}, ReconcileInterval: time.Hour, PollInterval: time.Hour,
			Extract: func(base context.Context, _ map[string]string) context.Context { return base }})
		given := 0
		require.NoError(t, e.Register(Type{Name: "mail", Concurrency: 4, Lease: time.Hour, Timeout: time.Hour,
			Run: func(*Attempt) Result { return Result{} }}, withSlots, func(t *Type) {
			t.AttachGrouping((&threes{e: e}).grouping())
			t.AttachOrder(Order{Separate: func(attempts []*Attempt) (first, blocked []*Attempt, giveUp func() error) {
				for _, a := range attempts {
					if a.Row.UserID == "" {
						first = append(first, a)
					} else {
						blocked = append(blocked, a)
					}
				}
				return first, blocked, func() error { given += len(blocked); return nil }
			}})
		}))
		require.NoError(t, e.Start(t.Context(), true))
		row := func(id uint64, user string, deliveries int, left time.Duration) processlog.Row {
			return processlog.Row{ID: processlog.RowID(id), BusinessType: "mail", UserID: user, DeliveryCount: deliveries, LeaseLeft: left}
		}
		mail := e.TypeNamed("mail")
		rows := []processlog.Row{row(1, "", 2, -1), row(2, "", 1, time.Hour), row(3, "", 1, time.Hour), row(4, "ann", 1, time.Hour)}
		require.Equal(t, 2, mail.slots.Take(mail.callsOfRows(rows)), "the entry that has lost a lease runs alone")
		_, err := e.startClaimed(ClaimedRows{Claimed: processlog.Claimed{Mine: rows}, Type: mail, SentAt: time.Now()}, 0)
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, 1, given)
		require.Equal(t, 4, mail.slots.Available())
		e.RunEnded()
		e.Close()
	})
}

func TestEverySlotIsFreeOnceNothingRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := waitingOn(t, 0, Config{Store: settling{}, StopTimeout: time.Minute, ReconcileInterval: time.Hour, PollInterval: time.Hour,
			Extract: func(base context.Context, _ map[string]string) context.Context { return base }})
		handler := func(_ context.Context, row *processlog.Row) error {
			switch row.UserID {
			case "fails":
				return errors.New("declined")
			case "panics":
				panic("declined")
			case "exits":
				runtime.Goexit()
			}
			return nil
		}
		split := func(attempts []*Attempt, user string) (rest, chosen []*Attempt) {
			for _, a := range attempts {
				if a.Row.UserID == user {
					chosen = append(chosen, a)
				} else {
					rest = append(rest, a)
				}
			}
			return rest, chosen
		}
		require.NoError(t, e.Register(Type{Name: "mail", MaxAttempts: 1, MaxCompensateAttempts: 1, Concurrency: 100, Lease: time.Hour, Timeout: time.Hour,
			Run: HandlerOf(handler), Undo: HandlerOf(handler)}, withSlots, func(t *Type) {
			t.AttachGrouping((&threes{e: e}).grouping())
			t.AttachAdmission(func(a *Admission) {
				a.Admit = func(attempts []*Attempt) (admitted, skipped []*Attempt) { return split(attempts, "refused") }
			})
			t.AttachOrder(Order{Separate: func(attempts []*Attempt) (first, blocked []*Attempt, giveUp func() error) {
				first, blocked = split(attempts, "blocked")
				return first, blocked, func() error { return nil }
			}})
		}))
		require.NoError(t, e.Start(t.Context(), true))
		mail, ids := e.TypeNamed("mail"), uint64(0)
		row := func(user string, deliveries int, left time.Duration, state processlog.State) func() processlog.Row {
			return func() processlog.Row {
				ids++
				return processlog.Row{ID: processlog.RowID(ids), BusinessType: "mail", UserID: user, State: state, DeliveryCount: deliveries, LeaseLeft: left}
			}
		}
		kinds := []func() processlog.Row{
			row("", 1, time.Hour, processlog.Pending),
			row("", 1, time.Hour, processlog.Pending),
			row("", 1, -1, processlog.Pending), // its lease has ended
			row("blocked", 1, time.Hour, processlog.Pending),
			row("refused", 1, time.Hour, processlog.Pending),
			row("", 2, time.Hour, processlog.Pending),
			row("fails", 3, time.Hour, processlog.Pending),
			row("panics", 3, time.Hour, processlog.Retrying),
			row("exits", 1, time.Hour, processlog.Compensating),
			row("", 5, time.Hour, processlog.Pending), // is dead-lettered
		}
		for subset := range 1 << len(kinds) {
			var rows []processlog.Row
			for i, kind := range kinds {
				if subset&(1<<i) != 0 {
					rows = append(rows, kind())
				}
			}
			calls := mail.callsOfRows(rows)
			require.Equal(t, calls, mail.slots.Take(calls))
			_, err := e.startClaimed(ClaimedRows{Claimed: processlog.Claimed{Mine: rows}, Type: mail, SentAt: time.Now()}, 0)
			require.NoError(t, err)
			synctest.Wait()
			require.Zero(t, mail.slots.(*counted).taken, "%b", subset)
		}
		require.NoError(t, e.Drain())
		require.Zero(t, mail.slots.(*counted).taken)
		e.RunEnded()
		e.Close()
	})
}

type settling struct{ processlog.Store }

func (settling) Release(context.Context, []processlog.ID, processlog.Token) (processlog.Unreleased, error) {
	return processlog.Unreleased{}, nil
}

func (settling) Settle(_ context.Context, _ processlog.Token, outcomes []processlog.Outcome) ([]processlog.Settled, error) {
	settled := make([]processlog.Settled, len(outcomes))
	for i, o := range outcomes {
		settled[i] = processlog.Settled{Applied: true, State: o.To}
	}
	return settled, nil
}

func TestSecondFeatureThatSetsClaimPanics(t *testing.T) {
	claim := func(context.Context, []processlog.Wanted, processlog.Token, time.Duration, func(*processlog.Row) bool) (processlog.Claimed, error) {
		return processlog.Claimed{}, nil
	}
	typ := &Type{Name: "close_order"}
	typ.AttachAdmission(func(a *Admission) { a.Claim = claim })
	typ.AttachAdmission(func(*Admission) {})
	require.Panics(t, func() { typ.AttachAdmission(func(a *Admission) { a.Claim = claim }) })
}
