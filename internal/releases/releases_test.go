package releases

import (
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/problems"
	"github.com/compensator-go/compensator/internal/refusals"
	"github.com/compensator-go/compensator/processlog"
)

// Once the lease of this entry is given back, the entry must be offered to all processes.
func TestWhatIsGivenBackAtLastIsOfferedToWhoeverIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var offered []processlog.QueueEntry
		locked, tries := processlog.RowID(77), 0
		open := func() bool { return false }
		log := slog.New(slog.DiscardHandler)
		d := New(Config{
			Release: func(ids []processlog.ID, _ processlog.Token) (processlog.Unreleased, error) {
				tries++
				if slices.Contains(ids, locked) {
					return processlog.Unreleased{Busy: []processlog.ID{locked}}, nil
				}
				return processlog.Unreleased{}, nil
			},
			NoteResult:  func(error) {},
			Offer:       func(entries []processlog.QueueEntry) { offered = append(offered, entries...) },
			Wait:        func(pause time.Duration) bool { time.Sleep(pause); return true },
			Pause:       func(int) time.Duration { return time.Second },
			Refusals:    refusals.New(problems.New(log, func(error) uint16 { return 0 }, open), log, open),
			MaxDuration: time.Minute,
		})
		entries := make([]processlog.QueueEntry, 500)
		for i := range entries {
			entries[i] = processlog.QueueEntry{BusinessType: "close_order", ID: processlog.RowID(uint64(i + 1))}
		}
		d.Release(processlog.NewToken(), entries...)
		synctest.Wait()
		require.Len(t, offered, 499)
		require.NotContains(t, offered, entries[76])
		require.Equal(t, 2, tries, "the second try is for the locked row alone")
		locked = processlog.ID{}
		<-d.Batcher.Done()
		require.Len(t, offered, 500)
		require.Empty(t, d.pending)
	})
}
