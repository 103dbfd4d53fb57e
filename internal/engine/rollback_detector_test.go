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
	last     []processlog.ID                      // what it was asked for
	rows     map[processlog.ID]processlog.Version // as claims leave them
	released []processlog.ID
}

func (s *evasive) Claim(_ context.Context, want []processlog.Wanted, token processlog.Token, lease time.Duration, _ func(*processlog.Row) bool) (found processlog.Claimed, err error) {
	for _, w := range want {
		row := processlog.Row{ID: w.ID, Version: s.rows[w.ID].Number + 1, Token: token, LeaseLeft: lease, State: processlog.Pending}
		s.rows[w.ID] = versionOf(&row)
		found.Mine = append(found.Mine, row)
	}
	return found, nil
}

func (s *evasive) Versions(_ context.Context, ids []processlog.ID) (versions []processlog.Version, err error) {
	s.asked++
	s.last = ids
	if s.evades {
		return nil, errors.New("gone away")
	}
	for _, id := range ids {
		if row, exists := s.rows[id]; exists {
			versions = append(versions, row)
		}
	}
	return versions, nil
}

func (s *evasive) Release(_ context.Context, ids []processlog.ID, _ processlog.Token) error {
	s.released = append(s.released, ids...)
	return nil
}

// hold makes an entry that e has seen.
func (s *evasive) hold(e *Engine, id uint64) {
	row := processlog.Row{ID: processlog.RowID(id), Version: 1}
	s.rows[row.ID] = versionOf(&row)
	e.rollbackDetector.remembered.sawRows([]processlog.Row{row}, time.Now())
}

// After a claim that failed the next server may be another one, which knows less: without its answer nothing starts.
func TestWhatIsClaimedOfADatabaseThatDoesNotSayWhatItHasKeptIsGivenBack(t *testing.T) {
	store := &evasive{evades: true, rows: map[processlog.ID]processlog.Version{}}
	e := New(t.Context(), Config{Store: store, Log: slog.New(slog.DiscardHandler), ErrorNumber: func(error) uint16 { return 0 }})
	require.NoError(t, e.Register(Type{Name: "close_order", Concurrency: 2, Lease: time.Hour}))
	typ := e.types.named("close_order")
	store.hold(e, 7)
	e.rollbackDetector.verifyLater()
	want := unleased([]processlog.ID{processlog.RowID(1)})
	_, err := e.claims.claim(typ, want, 1)
	require.ErrorContains(t, err, "gone away")
	require.Equal(t, []processlog.ID{processlog.RowID(1)}, store.released)
	require.Nil(t, e.rollbackDetector.stopped(), "nothing is known to be lost")
	store.evades = false
	found, err := e.claims.claim(typ, want, 1)
	require.NoError(t, err)
	require.Len(t, found.Mine, 1)
	asked := store.asked
	_, err = e.claims.claim(typ, unleased([]processlog.ID{processlog.RowID(2)}), 1)
	require.NoError(t, err)
	require.Equal(t, asked, store.asked, "it is asked no more than there is a reason")
}

// That the claim was committed is evidence all the same, beside what was seen before.
func TestClaimOfADatabaseThatDoesNotSayWhatItHasKeptIsRemembered(t *testing.T) {
	store := &evasive{evades: true, rows: map[processlog.ID]processlog.Version{}}
	e := New(t.Context(), Config{Store: store, Log: slog.New(slog.DiscardHandler), ErrorNumber: func(error) uint16 { return 0 }})
	require.NoError(t, e.Register(Type{Name: "close_order", Concurrency: 2, Lease: time.Hour}))
	store.hold(e, 6)
	store.hold(e, 7)
	latest := e.rollbackDetector.remembered.latestNow()
	e.rollbackDetector.verifyLater()
	_, err := e.claims.claim(e.types.named("close_order"), unleased([]processlog.ID{processlog.RowID(1)}), 1)
	require.ErrorContains(t, err, "gone away")
	require.Equal(t, latest, e.rollbackDetector.remembered.latestNow())
	store.evades = false
	require.NoError(t, e.rollbackDetector.check(nil))
	require.Contains(t, store.last, processlog.RowID(1), "the next server is asked for it")
}

func (s *evasive) Due(context.Context, string, int) ([]processlog.ID, error) {
	return nil, errors.New("gone away")
}

// With no queue a claim begins with a reading, and ends with it where the server is gone.
func TestReadingOfWhatIsDueThatFailedIsAReasonToAsk(t *testing.T) {
	e := New(t.Context(), Config{Store: &evasive{}, Log: slog.New(slog.DiscardHandler), ErrorNumber: func(error) uint16 { return 0 }})
	require.NoError(t, e.Register(Type{Name: "close_order", Concurrency: 2, Lease: time.Hour}))
	e.claimSchedule.prepare()
	typ := e.types.named("close_order")
	require.Equal(t, 1, typ.slots.Take(1))
	require.False(t, e.rollbackDetector.unsure())
	require.Error(t, e.scanner.claimFromStore(typ, 1).err)
	require.True(t, e.rollbackDetector.unsure())
}

// carriedOn is a Store whose plain reads are older than its locking ones.
type carriedOn struct {
	evasive
	resolved map[processlog.ID]processlog.Row
}

func (s *carriedOn) History(context.Context, processlog.ID) ([]processlog.AuditRecord, error) {
	return nil, nil
}

func (s *carriedOn) Marks(context.Context, []string) (time.Time, map[string]time.Time, error) {
	return time.Now(), nil, nil
}

func (s *carriedOn) Resolve(_ context.Context, ref processlog.Ref) (processlog.Row, error) {
	row, exists := s.resolved[ref.(processlog.ID)]
	if !exists {
		return row, processlog.ErrNotFound
	}
	return row, nil
}

// The answer was long on its way, and another process has made as many versions of the newest entry since.
func TestLossShowsBehindWhatOthersHaveCarriedPastIt(t *testing.T) {
	store := &carriedOn{evasive: evasive{rows: map[processlog.ID]processlog.Version{}}}
	e := New(t.Context(), Config{Store: store, Log: slog.New(slog.DiscardHandler), ErrorNumber: func(error) uint16 { return 0 }})
	store.hold(e, 6)
	store.hold(e, 7)
	clear(store.rows)
	store.resolved = map[processlog.ID]processlog.Row{processlog.RowID(7): {ID: processlog.RowID(7), Version: 2}}
	require.NoError(t, e.rollbackDetector.check(nil))
	require.NotNil(t, e.rollbackDetector.stopped())
}
