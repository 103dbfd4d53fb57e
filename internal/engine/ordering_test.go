package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

// oneLine is a Store with a line of which one entry stands first, whoever asks.
type oneLine struct {
	processlog.Store
	first processlog.ID
}

func (s oneLine) KeyStates(_ context.Context, _ string, ordering []processlog.Position, _ processlog.Token, _ bool) (map[string]processlog.KeyState, error) {
	keyStates := make(map[string]processlog.KeyState)
	for _, t := range ordering {
		l := keyStates[t.Key]
		l.First, l.Known = s.first, l.Known+1
		keyStates[t.Key] = l
	}
	return keyStates, nil
}

func (oneLine) Block(context.Context, []processlog.BlockedEntry, processlog.Token) error { return nil }

func (oneLine) Advance(context.Context, string, []processlog.Position, bool) ([]processlog.ID, error) {
	return nil, nil
}

func (oneLine) Forget(context.Context, []processlog.Position) error { return nil }

func (oneLine) Release(context.Context, []processlog.ID, processlog.Token) error { return nil }

func (oneLine) Settle(_ context.Context, _ processlog.Token, outcomes []processlog.Outcome) ([]processlog.Settled, error) {
	settled := make([]processlog.Settled, len(outcomes))
	for i, o := range outcomes {
		settled[i] = processlog.Settled{Applied: true, State: o.To}
	}
	return settled, nil
}

// What starts sorts out what comes too late, in place: how many calls the others leave free is known before.
// Failure: F107
func TestCallsThatWaitForTheirTurnsFreeTheirSlotsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := waitingOn(t, 0, Config{Store: oneLine{first: processlog.RowID(9)}, ReconcileInterval: time.Hour, PollInterval: time.Hour,
			Extract: func(base context.Context, _ map[string]string) context.Context { return base }})
		require.NoError(t, e.Serialize(t.Context(), "mail", Serial{Key: func(row *processlog.Row) string { return row.UserID }}))
		require.NoError(t, e.Register(Type{Name: "mail", Concurrency: 4, BatchSize: 3, Lease: time.Hour, Timeout: time.Hour,
			RunBatch: func(context.Context, []*processlog.Row) []error { return nil }}, withSlots))
		require.NoError(t, e.Start(t.Context()))
		row := func(id uint64, user string, deliveries int, left time.Duration) processlog.Row {
			return processlog.Row{ID: processlog.RowID(id), BusinessType: "mail", UserID: user, DeliveryCount: deliveries, LeaseLeft: left}
		}
		mail := e.types.named("mail")
		rows := []processlog.Row{row(1, "", 2, -1), row(2, "", 1, time.Hour), row(3, "", 1, time.Hour), row(4, "ann", 1, time.Hour)}
		require.Equal(t, 2, mail.slots.Take(mail.calls(rows)), "the one that has lost a lease runs alone")
		require.NoError(t, e.dispatcher.startClaimed(mail, rows, time.Now(), 0))
		synctest.Wait()
		require.Equal(t, 4, mail.slots.Free())
		e.End()
		e.Close()
	})
}

// Whoever declares a type that has a handler here, with another key or none, does not change what that one runs beside.
// Failure: F116
func TestTypeThatHasAHandlerStaysAsThatOneHasIt(t *testing.T) {
	e, typ := waitingOn(t, 0, Config{Store: oneLine{}})
	key := Serial{Key: func(row *processlog.Row) string { return row.UserID }}
	require.NoError(t, e.Serialize(t.Context(), typ.Name, key))
	require.False(t, e.IsSerial(typ.Name))
	require.NoError(t, e.Serialize(t.Context(), "recorded_only", key))
	require.True(t, e.IsSerial("recorded_only"))
}

// stiffLine is a Store whose lines cannot be moved on.
type stiffLine struct {
	oneLine
	tried []time.Time
}

func (s *stiffLine) Advance(context.Context, string, []processlog.Position, bool) ([]processlog.ID, error) {
	s.tried = append(s.tried, time.Now())
	return nil, errors.New("gone away")
}

func TestKeyThatCannotBeAdvancedIsTriedFiveTimesAndThenLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &stiffLine{}
		e, _ := waitingOn(t, 0, Config{Store: store})
		e.ordering.rested.Add(processlog.Position{BusinessType: "mail", Key: "ann"})
		<-e.ordering.rested.Done()
		require.Len(t, store.tried, 5)
		require.Equal(t, store.tried[4], time.Now(), "nothing comes after the last try that a rest would be for")
	})
}
