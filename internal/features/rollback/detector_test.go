package rollback

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

type unreliableStore struct {
	processlog.Store
	fails    bool
	blocks   bool // whether Versions waits until its context ends
	asked    int
	lastIDs  []processlog.ID // the ids of the last call of Versions
	rows     map[processlog.ID]processlog.Version
	resolved map[processlog.ID]processlog.Row // what locking reads return
	notes    []processlog.AuditRecord
}

func (s *unreliableStore) Versions(ctx context.Context, ids []processlog.ID) (versions []processlog.Version, err error) {
	s.asked++
	s.lastIDs = ids
	if s.blocks {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if s.fails {
		return nil, errors.New("gone away")
	}
	for _, id := range ids {
		if row, exists := s.rows[id]; exists {
			versions = append(versions, row)
		}
	}
	return versions, nil
}

func (s *unreliableStore) History(context.Context, processlog.ID) ([]processlog.AuditRecord, error) {
	return s.notes, nil
}

func (s *unreliableStore) Note(_ context.Context, action processlog.Action, by processlog.AuditInfo) error {
	s.notes = append(s.notes, processlog.AuditRecord{Action: action, Actor: by.Actor, Reason: by.Reason, At: time.Now()})
	return nil
}

func (s *unreliableStore) Marks(context.Context, []string) (time.Time, map[string]time.Time, error) {
	return time.Now(), nil, nil
}

func (s *unreliableStore) Resolve(_ context.Context, ref processlog.Ref) (processlog.Row, error) {
	row, exists := s.resolved[ref.(processlog.ID)]
	if !exists {
		return row, processlog.ErrNotFound
	}
	return row, nil
}

func (s *unreliableStore) hold(d *Detector, id uint64) {
	row := processlog.Row{ID: processlog.RowID(id), Version: 1}
	s.rows[row.ID] = versionOf(&row)
	d.versions.sawRows([]processlog.Row{row}, time.Now())
}

func claim(id, number uint64) []processlog.Row {
	return []processlog.Row{{ID: processlog.RowID(id), Version: number, State: processlog.Pending, Token: processlog.NewToken()}}
}

// The store has all entries that the process claims.
func detecting(t *testing.T, stopOnLoss bool, observer observe.Observer) (*Detector, *unreliableStore) {
	store := &unreliableStore{rows: make(map[processlog.ID]processlog.Version)}
	e := engine.New(t.Context(), engine.Config{Store: store, Log: slog.New(slog.DiscardHandler), Observer: observer, ReconcileInterval: time.Minute,
		ErrorNumber: func(error) uint16 { return 0 }})
	d := New(e, stopOnLoss, func([]engine.RecordedEntry) {})
	d.Watch()
	return d, store
}

// A failed statement can mean that another server answers from now on, and that server can lack commits. So a claimed
// entry starts only after the server has returned the remembered versions.
func TestNothingStartsThatADatabaseLeasedWithoutSayingWhatItHasKept(t *testing.T) {
	d, store := detecting(t, true, observe.Observer{})
	store.hold(d, 7)
	d.checkLater()
	store.fails = true
	require.ErrorContains(t, d.verifyClaimed(claim(1, 1), time.Now()), "gone away")
	require.NoError(t, d.Lost(), "nothing is known to be lost")
	store.fails = false
	rows := claim(1, 2)
	store.rows[rows[0].ID] = versionOf(&rows[0])
	require.NoError(t, d.verifyClaimed(rows, time.Now()))
	sentAt := store.asked
	require.NoError(t, d.verifyClaimed(claim(2, 1), time.Now()))
	require.Equal(t, sentAt, store.asked, "the database is asked only when there is a reason")
}

func TestClaimOfADatabaseThatDoesNotSayWhatItHasKeptIsRemembered(t *testing.T) {
	d, store := detecting(t, true, observe.Observer{})
	store.hold(d, 6)
	store.hold(d, 7)
	latest := d.versions.latestNow()
	d.checkLater()
	store.fails = true
	require.ErrorContains(t, d.verifyClaimed(claim(1, 1), time.Now()), "gone away")
	require.Equal(t, latest, d.versions.latestNow())
	store.fails = false
	_ = d.check(t.Context(), nil)
	require.Contains(t, store.lastIDs, processlog.RowID(1), "the next server is asked for it")
}

// Another process has written entry 7 again, so only entry 6 shows the loss.
func TestLossShowsBehindWhatOthersHaveCarriedPastIt(t *testing.T) {
	d, store := detecting(t, true, observe.Observer{})
	store.hold(d, 6)
	store.hold(d, 7)
	clear(store.rows)
	store.resolved = map[processlog.ID]processlog.Row{processlog.RowID(7): {ID: processlog.RowID(7), Version: 2}}
	require.NoError(t, d.check(t.Context(), nil))
	require.ErrorIs(t, d.Lost(), processlog.ErrHistoryLost)
}

func TestClaimWaitsForNoCheckWhereALossDoesNotStopTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, store := detecting(t, false, observe.Observer{})
		store.hold(d, 7)
		d.checkLater()
		store.blocks = true
		began := time.Now()
		require.NoError(t, d.rememberClaimed(claim(1, 1), time.Now()))
		require.Zero(t, time.Since(began))
		synctest.Wait()
		require.Equal(t, 1, store.asked, "the check runs in the background")
		d.e.Close()
		<-d.checks.Done()
	})
}

func TestSecondLossIsAddedToTheReportOfTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []int
		d, store := detecting(t, false, observe.Observer{HistoryLost: func(l *processlog.LossError) { told = append(told, len(l.Lost)) }})
		store.hold(d, 6)
		clear(store.rows)
		require.NoError(t, d.check(t.Context(), nil))
		require.ErrorIs(t, d.Lost(), processlog.ErrHistoryLost)
		require.NoError(t, d.check(t.Context(), nil))
		require.Equal(t, []int{1}, told, "the same loss is reported once")
		time.Sleep(time.Second)
		store.hold(d, 7)
		require.NoError(t, d.check(t.Context(), nil))
		clear(store.rows)
		require.NoError(t, d.check(t.Context(), nil))
		require.Equal(t, []int{1, 2}, told)

		time.Sleep(time.Second)
		list, err := d.Accept(t.Context(), processlog.AuditInfo{Actor: "ann", Reason: "known"})
		require.NoError(t, err)
		require.Len(t, list, 2)
		require.NoError(t, d.Lost())
		require.NoError(t, d.check(t.Context(), nil))
		require.NoError(t, d.Lost(), "what was remembered of the lost history is forgotten")
		d.e.Close()
	})
}

func TestAcceptLossEndsWithItsContextWhileACheckIsBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, store := detecting(t, true, observe.Observer{})
		store.hold(d, 7)
		store.blocks = true
		d.checks.Add(claimVersion(7))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := d.Accept(ctx, processlog.AuditInfo{Actor: "ann", Reason: "known"})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 100*time.Millisecond, time.Since(began))
		require.Empty(t, store.notes)
		began = time.Now()
		d.e.Close()
		require.LessOrEqual(t, time.Since(began), engine.StatementTimeout)
		require.True(t, d.checks.Quiet(), "Close waits for the check")
	})
}

func claimVersion(id uint64) version {
	return version{Version: processlog.Version{ID: processlog.RowID(id), Number: 1}, seenAt: time.Now()}
}

// A select with two ready cases takes either, so the test tries many times.
func TestCheckDoesNotBeginAfterItsContextHasEnded(t *testing.T) {
	d, store := detecting(t, false, observe.Observer{})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 64 {
		require.ErrorIs(t, d.check(ended, []version{claimVersion(1)}), context.Canceled)
	}
	require.Zero(t, store.asked)
	require.False(t, d.mustCheck.Load())
}
