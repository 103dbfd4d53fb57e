package engine

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

// lockedRow is a Store of which a row is held by another transaction, and that lets nobody wait for it.
type lockedRow struct {
	processlog.Store
	locked processlog.ID
	tries  int
}

func (s *lockedRow) Release(_ context.Context, ids []processlog.ID, _ processlog.Token) error {
	s.tries++
	if slices.Contains(ids, s.locked) {
		return fmt.Errorf("release: %w", processlog.ErrBusy)
	}
	return nil
}

func TestWhatIsGivenBackAtLastIsOfferedToWhoeverIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told, store := &toldSource{}, &lockedRow{locked: processlog.RowID(77)}
		e, _ := waitingOn(t, 0, Config{Store: store, ReconcileInterval: time.Minute})
		e.SetSource(told)
		entries := make([]processlog.QueueEntry, 500)
		for i := range entries {
			entries[i] = processlog.QueueEntry{BusinessType: "close_order", ID: processlog.RowID(uint64(i + 1))}
		}
		e.claims.release(processlog.NewToken(), entries...)
		synctest.Wait()
		require.Len(t, told.entries, 499)
		require.NotContains(t, told.entries, entries[76])
		require.LessOrEqual(t, store.tries, 1+3*releaseParts, "500 in parts of 63, of 8, and of 1")
		store.locked = processlog.ID{}
		<-e.pendingReleases.batcher.Done()
		require.Len(t, told.entries, 500)
		require.Empty(t, e.pendingReleases.pending)
	})
}

// toldSource is a Source that keeps the entries it is told of.
type toldSource struct {
	Source
	entries []processlog.QueueEntry
}

func (s *toldSource) Enqueue(entries []processlog.QueueEntry) {
	s.entries = append(s.entries, entries...)
}
