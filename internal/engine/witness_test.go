package engine

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

// evasive is a Store that claims, and does not say what it has kept.
type evasive struct {
	processlog.Store
	evades   bool
	asked    int
	released []processlog.ID
}

func (s *evasive) Claim(_ context.Context, want []processlog.Wanted, token processlog.Token, lease time.Duration, _ func(*processlog.Row) bool) (found processlog.Claimed, err error) {
	for _, w := range want {
		found.Mine = append(found.Mine, processlog.Row{ID: w.ID, Version: 1, Token: token, LeaseLeft: lease, State: processlog.Pending})
	}
	return found, nil
}

func (s *evasive) Versions(_ context.Context, ids []processlog.ID) (versions []processlog.Version, err error) {
	s.asked++
	if s.evades {
		return nil, errors.New("gone away")
	}
	for _, id := range ids {
		versions = append(versions, processlog.Version{ID: id, Number: 1})
	}
	return versions, nil
}

func (s *evasive) Release(_ context.Context, ids []processlog.ID, _ processlog.Token) error {
	s.released = append(s.released, ids...)
	return nil
}

// After a claim that failed the next server may be another one, which knows less: without its answer nothing starts.
func TestWhatIsClaimedOfADatabaseThatDoesNotSayWhatItHasKeptIsGivenBack(t *testing.T) {
	store := &evasive{evades: true}
	e := New(t.Context(), Config{Store: store, Log: slog.New(slog.DiscardHandler), ErrorNumber: func(error) uint16 { return 0 }})
	require.NoError(t, e.Register(Type{Name: "close_order", Concurrency: 2, Lease: time.Hour}))
	typ := e.types.named("close_order")
	e.witness.memory.sawRows([]processlog.Row{{ID: processlog.RowID(7), Version: 1}}, time.Now())
	e.witness.doubt()
	want := unleased([]processlog.ID{processlog.RowID(1)})
	_, err := e.claims.claim(typ, want, 1)
	require.ErrorContains(t, err, "gone away")
	require.Equal(t, []processlog.ID{processlog.RowID(1)}, store.released)
	require.Nil(t, e.witness.stopped(), "nothing is known to be lost")
	store.evades = false
	found, err := e.claims.claim(typ, want, 1)
	require.NoError(t, err)
	require.Len(t, found.Mine, 1)
	asked := store.asked
	_, err = e.claims.claim(typ, unleased([]processlog.ID{processlog.RowID(2)}), 1)
	require.NoError(t, err)
	require.Equal(t, asked, store.asked, "it is asked no more than there is a reason")
}

func (s *evasive) Due(context.Context, string, int) ([]processlog.ID, error) {
	return nil, errors.New("gone away")
}

// With no queue a claim begins with a reading, and ends with it where the server is gone.
func TestReadingOfWhatIsDueThatFailedIsAReasonToAsk(t *testing.T) {
	e := New(t.Context(), Config{Store: &evasive{}, Log: slog.New(slog.DiscardHandler), ErrorNumber: func(error) uint16 { return 0 }})
	require.NoError(t, e.Register(Type{Name: "close_order", Concurrency: 2, Lease: time.Hour}))
	e.agenda.prepare()
	typ := e.types.named("close_order")
	require.Equal(t, 1, typ.slots.take(1))
	require.False(t, e.witness.unsure())
	require.Error(t, e.scanner.claimFromStore(typ, 1).err)
	require.True(t, e.witness.unsure())
}
