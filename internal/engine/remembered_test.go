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

// slowToSettle is a Store that refuses outcomes for a while.
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

func (s *slowToSettle) SettleTx(context.Context, processlog.Tx, processlog.Token, processlog.Outcome) error {
	return nil
}

// longTx takes its time until its COMMIT.
type longTx struct{ processlog.Tx }

func (longTx) Over() error   { return nil }
func (longTx) Commit() error { return nil }
func (longTx) Rollback()     {}

// A person's go-ahead accepts what was lost before it: a success that is stored after it must not count as older, whenever
// its handler started or its first try was made.
func TestWhatIsRememberedIsAsYoungAsTheWriteItSpeaksOf(t *testing.T) {
	for name, run := range map[string]func(e *Engine, typ *Type, row processlog.Row, written time.Time){
		"an outcome that took several tries": func(e *Engine, typ *Type, row processlog.Row, _ time.Time) {
			e.settler.batcher.Add(settlement{a: &Attempt{Type: typ, Row: row}, outcome: processlog.Outcome{ID: row.ID, To: processlog.Succeeded}})
			<-e.settler.batcher.Done()
		},
		"a transaction whose handler took its time": func(e *Engine, typ *Type, row processlog.Row, written time.Time) {
			typ.RunTx = func(context.Context, Transaction, *processlog.Row) error {
				time.Sleep(time.Until(written))
				return nil
			}
			require.NoError(t, e.dispatcher.startClaimed(typ, []processlog.Row{row}, time.Now(), 0))
			<-e.holdings.whenIdle()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				written := time.Now().Add(10 * time.Second)
				e := New(t.Context(), Config{
					Store: &slowToSettle{until: written}, Log: slog.New(slog.DiscardHandler), ReconcileInterval: time.Minute,
					Begin:       func(context.Context) (Transaction, error) { return longTx{}, nil },
					Extract:     func(base context.Context, _ map[string]string) context.Context { return base },
					ErrorNumber: func(error) uint16 { return 0 },
				})
				typ := &Type{Name: "close_order", Timeout: time.Minute, Lease: time.Minute, Concurrency: 1, BatchSize: 1, MaxProcessCount: 1, slots: &counted{size: 1}}
				require.NoError(t, e.Start(t.Context()))
				row := processlog.Row{ID: processlog.RowID(1), BusinessType: "close_order", LeaseLeft: time.Minute, DeliveryCount: 1}
				run(e, typ, row, written)
				remembered := e.rollbackDetector.remembered.all()
				require.Len(t, remembered, 1)
				require.False(t, remembered[0].at.Before(written))
				e.End()
				e.Close()
			})
		})
	}
}

// A database that went back may have written the same version anew: the first of the two is the only one that shows it.
func TestWhatRefutesWhatIsSeenLaterStaysRemembered(t *testing.T) {
	var m remembered
	lost := processlog.Row{ID: processlog.RowID(7), Version: 3, Token: processlog.Token{1}}
	m.sawAside([]processlog.Row{lost}, time.Now())
	m.sawRows([]processlog.Row{{ID: lost.ID, Version: 3, Token: processlog.Token{2}}}, time.Now())
	require.Equal(t, versionOf(&lost), m.all()[0].Version)
	next := processlog.Row{ID: lost.ID, Version: 4, Token: processlog.Token{2}}
	m.sawRows([]processlog.Row{next}, time.Now())
	require.Equal(t, versionOf(&next), m.all()[0].Version, "a later version is what the same history may have")
}
