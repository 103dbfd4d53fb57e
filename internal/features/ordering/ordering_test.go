package ordering

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/processlog"
)

func newOrdering(t *testing.T, store processlog.Store) *Ordering {
	t.Helper()
	return New(engine.New(t.Context(), engine.Config{Store: store, Log: slog.New(slog.DiscardHandler), ErrorNumber: func(error) uint16 { return 0 }, Lease: time.Hour}))
}

type orderingStore struct{ processlog.Store }

func (orderingStore) KeyStates(context.Context, string, []processlog.Position, processlog.Token, bool) (map[string]processlog.KeyState, error) {
	return nil, nil
}

func (orderingStore) Forget(context.Context, []processlog.Position) error { return nil }

// One process may both register a handler for a type and call Declare for the same type with another key. The key of
// the handler must stay. Here the handler has no key.
// Failure: F116
func TestTypeThatHasAHandlerKeepsItsKey(t *testing.T) {
	o := newOrdering(t, orderingStore{})
	require.NoError(t, o.e.Register(engine.Type{Name: "close_order", Lease: time.Hour}, o.Attach))
	key := Serial{Key: func(row *processlog.Row) string { return row.UserID }}
	require.NoError(t, o.Serialize(t.Context(), "close_order", key))
	require.False(t, o.Ordered("close_order"))
	require.NoError(t, o.Serialize(t.Context(), "recorded_only", key))
	require.True(t, o.Ordered("recorded_only"))
	require.True(t, o.e.Ordered("recorded_only"))
}

type failingStore struct {
	orderingStore
	triedAt []time.Time
}

func (s *failingStore) Advance(context.Context, string, []processlog.Position, bool) ([]processlog.ID, error) {
	s.triedAt = append(s.triedAt, time.Now())
	return nil, errors.New("gone away")
}

func TestKeyThatCannotBeAdvancedIsTriedFiveTimesAndThenLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &failingStore{}
		o := newOrdering(t, store)
		o.toAdvance.Add(processlog.Position{BusinessType: "mail", Key: "ann"})
		<-o.toAdvance.Done()
		require.Len(t, store.triedAt, 5)
		require.Equal(t, store.triedAt[4], time.Now(), "after the last try nothing follows that a pause would be for")
		o.e.Close()
	})
}
