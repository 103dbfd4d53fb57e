package engine

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

type slowToSettle struct {
	processlog.Store
	until time.Time
}

func (s *slowToSettle) Settle(_ context.Context, _ processlog.Token, outcomes []processlog.Outcome) ([]processlog.Settled, error) {
	if time.Now().Before(s.until) {
		return nil, errors.New("gone away")
	}
	return []processlog.Settled{{Applied: true, State: outcomes[0].To}}, nil
}

// The test checks that Watcher.Stored gets the time at which the statement that stored the outcome was sent. In the
// first case, an earlier try to store the success failed. In the second case, the handler's transaction stored the
// outcome long after the handler had begun.
func TestWatcherGetsTheTimeOfTheWriteThatStoredTheOutcome(t *testing.T) {
	for name, run := range map[string]func(e *Engine, typ *Type, row processlog.Row, written time.Time){
		"an outcome that took several tries": func(e *Engine, typ *Type, row processlog.Row, _ time.Time) {
			e.outcomes.ordinary.Add(pendingOutcome{attempt: &Attempt{Type: typ, Row: row}, outcome: processlog.Outcome{ID: row.ID, To: processlog.Succeeded}})
			<-e.outcomes.ordinary.Done()
		},
		"a transaction whose handler took its time": func(e *Engine, typ *Type, row processlog.Row, written time.Time) {
			typ.Run = func(*Attempt) Result {
				time.Sleep(time.Until(written))
				return Result{Stored: true, SentAt: time.Now()}
			}
			_, err := e.startClaimed(ClaimedRows{Claimed: processlog.Claimed{Mine: []processlog.Row{row}}, Type: typ, SentAt: time.Now()}, 0)
			require.NoError(t, err)
			<-e.holdings.whenIdle()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				written := time.Now().Add(10 * time.Second)
				e := New(t.Context(), Config{
					Store: &slowToSettle{until: written}, Log: slog.New(slog.DiscardHandler), ReconcileInterval: time.Minute,
					Extract:     func(base context.Context, _ map[string]string) context.Context { return base },
					ErrorNumber: func(error) uint16 { return 0 },
				})
				var stored []time.Time
				e.AttachWatcher(func(w *Watcher) {
					w.Stored = func(_ *processlog.Row, _ *processlog.Outcome, _ processlog.Token, asked time.Time) {
						stored = append(stored, asked)
					}
				})
				typ := &Type{Name: "close_order", Timeout: time.Minute, Lease: time.Minute, Concurrency: 1, MaxAttempts: 1, slots: &counted{size: 1}}
				require.NoError(t, e.Start(t.Context(), true))
				row := processlog.Row{ID: processlog.RowID(1), BusinessType: "close_order", LeaseLeft: time.Minute, DeliveryCount: 1}
				run(e, typ, row, written)
				require.Len(t, stored, 1)
				require.False(t, stored[0].Before(written))
				e.RunEnded()
				e.Close()
			})
		})
	}
}

type leasing struct {
	processlog.Store
	released []processlog.ID
}

func (s *leasing) Claim(_ context.Context, want []processlog.Wanted, token processlog.Token, lease time.Duration, _ func(*processlog.Row) bool) (found processlog.Claimed, err error) {
	for _, w := range want {
		found.Mine = append(found.Mine, processlog.Row{ID: w.ID, Version: 1, Token: token, LeaseLeft: lease, State: processlog.Pending})
	}
	return found, nil
}

func (s *leasing) Release(_ context.Context, ids []processlog.ID, _ processlog.Token) (processlog.Unreleased, error) {
	s.released = append(s.released, ids...)
	return processlog.Unreleased{}, nil
}

func (s *leasing) Due(context.Context, string, int) ([]processlog.ID, error) {
	return nil, errors.New("gone away")
}

func watching(t *testing.T, set func(w *Watcher)) (*Engine, *leasing, *Type) {
	store := new(leasing)
	e := New(t.Context(), Config{Store: store, Log: slog.New(slog.DiscardHandler), ErrorNumber: func(error) uint16 { return 0 }})
	e.AttachWatcher(set)
	require.NoError(t, e.Register(Type{Name: "close_order", Concurrency: 2, Lease: time.Hour}))
	return e, store, e.TypeNamed("close_order")
}

func TestWhatAWatcherRefusesIsGivenBack(t *testing.T) {
	refusal := errors.New("gone back")
	e, store, typ := watching(t, func(w *Watcher) { w.Claimed = func([]processlog.Row, time.Time) error { return refusal } })
	_, err := e.claim(typ, wantedByID([]processlog.ID{processlog.RowID(1)}), 1)
	require.ErrorIs(t, err, refusal)
	require.Equal(t, []processlog.ID{processlog.RowID(1)}, store.released)
	refusal = nil
	found, err := e.claim(typ, wantedByID([]processlog.ID{processlog.RowID(1)}), 1)
	require.NoError(t, err)
	require.Len(t, found.Mine, 1)
}

func TestNothingIsClaimedWhileAWatcherHoldsTheProcess(t *testing.T) {
	held := errors.New("gone back")
	e, store, typ := watching(t, func(w *Watcher) { w.HoldReason = func() error { return held } })
	_, err := e.claim(typ, wantedByID([]processlog.ID{processlog.RowID(1)}), 1)
	require.ErrorIs(t, err, held)
	require.Empty(t, store.released)
}

func TestReadingOfWhatIsDueThatFailedIsAReasonToAsk(t *testing.T) {
	failed := 0
	e, _, typ := watching(t, func(w *Watcher) { w.Failed = func() { failed++ } })
	e.claimSchedule.prepare()
	require.Equal(t, 1, typ.slots.Take(1))
	require.Error(t, e.ClaimFromStore(typ, 1).Err)
	require.Equal(t, 1, failed)
}
