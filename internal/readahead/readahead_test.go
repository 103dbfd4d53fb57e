package readahead

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

type dueRows struct {
	left  []processlog.ID
	reads []int
}

func newDueRows(n int) *dueRows {
	d := &dueRows{}
	for i := range n {
		d.left = append(d.left, processlog.RowID(uint64(i+1)))
	}
	return d
}

func (d *dueRows) read(limit int) ([]processlog.ID, bool, error) {
	d.reads = append(d.reads, limit)
	return append([]processlog.ID(nil), d.left[:min(limit, len(d.left))]...), len(d.left) >= limit, nil
}

func (d *dueRows) claim(s Share) processlog.Claimed {
	var found processlog.Claimed
	for _, id := range s.IDs {
		found.Mine = append(found.Mine, processlog.Row{ID: id})
	}
	d.left = allBut(d.left, s.IDs)
	return found
}

func TestBacklogIsReadForManyClaimsAtOnce(t *testing.T) {
	rows, ahead := newDueRows(10_000), New()
	claims := 0
	for more := true; more; claims++ {
		s, err := ahead.Take(100, rows.read)
		require.NoError(t, err)
		require.LessOrEqual(t, len(s.IDs), 100)
		ahead.ClaimEnded(s, rows.claim(s), nil)
		more = s.MoreDue
	}
	require.Empty(t, rows.left)
	require.Equal(t, 101, claims, "one that finds nothing")
	require.LessOrEqual(t, len(rows.reads), 12)
	require.Nil(t, ahead.ids, "what is over must not be kept")
}

func TestClaimsAtOnceShareWhatIsRead(t *testing.T) {
	rows, ahead := newDueRows(10_000), New()
	ahead.claimsPerRead = maxClaimsPerRead
	var group sync.WaitGroup
	shares := make([]Share, maxClaimsPerRead)
	for i := range shares {
		group.Go(func() { shares[i], _ = ahead.Take(100, rows.read) })
	}
	group.Wait()
	seen := make(map[processlog.ID]bool)
	for _, s := range shares {
		for _, id := range s.IDs {
			require.False(t, seen[id])
			seen[id] = true
		}
	}
	require.Len(t, seen, 100*maxClaimsPerRead)
	require.Equal(t, []int{100 * maxClaimsPerRead}, rows.reads)
}

func TestWhatOthersAreFasterWithIsReadAnew(t *testing.T) {
	for name, others := range map[string]func(s Share) (processlog.Claimed, error){
		"gone": func(s Share) (processlog.Claimed, error) { return processlog.Claimed{Gone: s.IDs}, nil },
		"leased": func(s Share) (processlog.Claimed, error) {
			return processlog.Claimed{Waiting: slices.Repeat([]processlog.Scheduled{{In: time.Second}}, len(s.IDs))}, nil
		},
		"failed": func(Share) (processlog.Claimed, error) {
			return processlog.Claimed{}, errors.New("the database is away")
		},
	} {
		t.Run(name, func(t *testing.T) {
			rows, ahead := newDueRows(10_000), New()
			ahead.claimsPerRead = maxClaimsPerRead
			s, err := ahead.Take(100, rows.read)
			require.NoError(t, err)
			ahead.ClaimEnded(s, rows.claim(s), nil)
			s, err = ahead.Take(100, rows.read)
			require.NoError(t, err)
			require.False(t, s.JustRead)
			found, err := others(s)
			ahead.ClaimEnded(s, found, err)
			s, err = ahead.Take(100, rows.read)
			require.NoError(t, err)
			require.True(t, s.JustRead)
			require.Equal(t, []int{100 * maxClaimsPerRead, 100}, rows.reads)
		})
	}
}

func TestEntriesBehindThoseThatCannotRunAreRead(t *testing.T) {
	for name, cannot := range map[string]func(ids []processlog.ID) processlog.Claimed{
		"refused": func(ids []processlog.ID) processlog.Claimed {
			return processlog.Claimed{Skipped: make([]processlog.Row, len(ids))}
		},
		"locked": func(ids []processlog.ID) processlog.Claimed {
			return processlog.Claimed{Waiting: slices.Repeat([]processlog.Scheduled{{In: processlog.LockedRetry}}, len(ids))}
		},
		"limited": func(ids []processlog.ID) processlog.Claimed {
			return processlog.Claimed{Limited: slices.Repeat([]processlog.Limited{{In: time.Second}}, len(ids))}
		},
	} {
		t.Run(name, func(t *testing.T) {
			const stand = 20
			rows, ahead := newDueRows(30), New()
			inFront := slices.Clone(rows.left[:stand])
			emptyClaims := 0
			for len(rows.left) > stand {
				s, err := ahead.Take(1, rows.read)
				require.NoError(t, err)
				runnable := allBut(s.IDs, inFront)
				found := cannot(allBut(s.IDs, runnable))
				switch {
				case len(runnable) == 0 && s.JustRead:
					emptyClaims++
					require.LessOrEqual(t, emptyClaims, 4, "each looks twice as far")
				case len(runnable) > 0:
					found.Mine = []processlog.Row{{ID: runnable[0]}}
					rows.left = allBut(rows.left, runnable[:1])
				}
				ahead.ClaimEnded(s, found, nil)
			}
		})
	}
}

// The guarantee G41 names the number 5,000. An entry is read although 5,000 entries that wait for a limit are due
// earlier. If more entries are due earlier, the entry must wait.
func TestEntryBehindFiveThousandLimitedEntriesIsRead(t *testing.T) {
	for inFront, isRead := range map[int]bool{5000: true, 5100: false} {
		rows, ahead := newDueRows(inFront+1), New()
		behind, found := rows.left[inFront], false
		for range 500 {
			s, err := ahead.Take(1, rows.read)
			require.NoError(t, err)
			found = found || slices.Contains(s.IDs, behind)
			limited := processlog.Claimed{Limited: slices.Repeat([]processlog.Limited{{In: time.Second}}, len(s.IDs))}
			ahead.ClaimEnded(s, limited, nil)
		}
		require.Equal(t, isRead, found, "%d entries in front", inFront)
	}
}

func TestFailedReadingIsToldAndForgotten(t *testing.T) {
	away := errors.New("the database is away")
	rows, ahead := newDueRows(50), New()
	_, err := ahead.Take(10, func(int) ([]processlog.ID, bool, error) { return nil, false, away })
	require.ErrorIs(t, err, away)
	s, err := ahead.Take(10, rows.read)
	require.NoError(t, err)
	require.Len(t, s.IDs, 10)
}

// MoreDue must stay true after the last share of a read. An entry can become due after the read, and the result of the
// read does not contain it. So only a new read can show that no entry is due.
func TestLastShareOfAReadingIsNotTheDatabasesLastWord(t *testing.T) {
	rows, ahead := newDueRows(150), New()
	ahead.claimsPerRead = 2
	s, err := ahead.Take(100, rows.read)
	require.NoError(t, err)
	require.True(t, s.MoreDue)
	ahead.ClaimEnded(s, rows.claim(s), nil)
	s, err = ahead.Take(100, rows.read)
	require.NoError(t, err)
	require.Len(t, s.IDs, 50)
	require.True(t, s.MoreDue)
	ahead.ClaimEnded(s, rows.claim(s), nil)
	s, err = ahead.Take(100, rows.read)
	require.NoError(t, err)
	require.Empty(t, s.IDs)
	require.False(t, s.MoreDue)
}

// The result of a read contains entries that another claim is leasing, until that claim has committed. So Take must not
// give these entries to a second claim.
func TestReadingLeavesOutWhatAnotherClaimIsAt(t *testing.T) {
	rows, ahead := newDueRows(1000), New()
	first, err := ahead.Take(100, rows.read)
	require.NoError(t, err)
	second, err := ahead.Take(100, rows.read)
	require.NoError(t, err)
	require.Len(t, second.IDs, 100)
	require.Equal(t, second.IDs, allBut(second.IDs, first.IDs))
	ahead.ClaimEnded(first, processlog.Claimed{}, errors.New("the database is away"))
	third, err := ahead.Take(100, rows.read)
	require.NoError(t, err)
	require.Equal(t, first.IDs, third.IDs)
}

func TestClaimOfABacklogDoesNotWaitForAnothersReading(t *testing.T) {
	rows, ahead := newDueRows(1000), New()
	s, err := ahead.Take(100, rows.read)
	require.NoError(t, err)
	reading, end := make(chan struct{}), make(chan struct{})
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = ahead.Take(100, func(int) ([]processlog.ID, bool, error) {
			close(reading)
			<-end
			return nil, false, nil
		})
	}()
	<-reading
	ahead.ClaimEnded(s, rows.claim(s), nil)
	close(end)
	<-over
}

func allBut(ids, drop []processlog.ID) []processlog.ID {
	return slices.DeleteFunc(slices.Clone(ids), func(id processlog.ID) bool { return slices.Contains(drop, id) })
}
