package engine

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

// dueRows is a table whose first rows are due, for readAhead to read.
type dueRows struct {
	left  []processlog.ID
	reads []int // what each reading asked for
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

// claim takes a share's entries off the table.
func (d *dueRows) claim(s share) processlog.Claimed {
	var found processlog.Claimed
	for _, id := range s.ids {
		found.Mine = append(found.Mine, processlog.Row{ID: id})
	}
	d.left = allBut(d.left, s.ids)
	return found
}

func TestBacklogIsReadForManyClaimsAtOnce(t *testing.T) {
	rows, ahead := newDueRows(10_000), newReadAhead()
	claims := 0
	for more := true; more; claims++ {
		s, err := ahead.take(100, rows.read)
		require.NoError(t, err)
		require.LessOrEqual(t, len(s.ids), 100)
		ahead.tried(s, rows.claim(s), nil)
		more = s.more
	}
	require.Empty(t, rows.left)
	require.Equal(t, 101, claims, "one that finds nothing")
	require.LessOrEqual(t, len(rows.reads), 12)
	require.Nil(t, ahead.ids, "what is over must not be kept")
}

func TestClaimsAtOnceShareWhatIsRead(t *testing.T) {
	rows, ahead := newDueRows(10_000), newReadAhead()
	ahead.claims = mostReadAhead
	var group sync.WaitGroup
	shares := make([]share, mostReadAhead)
	for i := range shares {
		group.Go(func() { shares[i], _ = ahead.take(100, rows.read) })
	}
	group.Wait()
	seen := make(map[processlog.ID]bool)
	for _, s := range shares {
		for _, id := range s.ids {
			require.False(t, seen[id])
			seen[id] = true
		}
	}
	require.Len(t, seen, 100*mostReadAhead)
	require.Equal(t, []int{100 * mostReadAhead}, rows.reads)
}

func TestWhatOthersAreFasterWithIsReadAnew(t *testing.T) {
	for name, others := range map[string]func(s share) (processlog.Claimed, error){
		"gone": func(s share) (processlog.Claimed, error) { return processlog.Claimed{Gone: s.ids}, nil },
		"leased": func(s share) (processlog.Claimed, error) {
			return processlog.Claimed{Waiting: slices.Repeat([]processlog.Scheduled{{In: time.Second}}, len(s.ids))}, nil
		},
		"failed": func(share) (processlog.Claimed, error) {
			return processlog.Claimed{}, errors.New("the database is away")
		},
	} {
		t.Run(name, func(t *testing.T) {
			rows, ahead := newDueRows(10_000), newReadAhead()
			ahead.claims = mostReadAhead
			s, err := ahead.take(100, rows.read)
			require.NoError(t, err)
			ahead.tried(s, rows.claim(s), nil)
			s, err = ahead.take(100, rows.read)
			require.NoError(t, err)
			require.False(t, s.fresh)
			found, err := others(s)
			ahead.tried(s, found, err)
			s, err = ahead.take(100, rows.read)
			require.NoError(t, err)
			require.True(t, s.fresh)
			require.Equal(t, []int{100 * mostReadAhead, 100}, rows.reads)
		})
	}
}

// What must not run here, and what somebody holds locked, is looked past: also where it is far more than there are slots.
func TestEntriesBehindThoseThatCannotRunAreRead(t *testing.T) {
	for name, cannot := range map[string]func(ids []processlog.ID) processlog.Claimed{
		"refused": func(ids []processlog.ID) processlog.Claimed {
			return processlog.Claimed{Refused: make([]processlog.Row, len(ids))}
		},
		"locked": func(ids []processlog.ID) processlog.Claimed {
			return processlog.Claimed{Waiting: slices.Repeat([]processlog.Scheduled{{In: processlog.LockedRetry}}, len(ids))}
		},
	} {
		t.Run(name, func(t *testing.T) {
			const stand = 20
			rows, ahead := newDueRows(30), newReadAhead()
			inFront := slices.Clone(rows.left[:stand])
			vain := 0
			for len(rows.left) > stand {
				s, err := ahead.take(1, rows.read)
				require.NoError(t, err)
				runnable := allBut(s.ids, inFront)
				found := cannot(allBut(s.ids, runnable))
				switch {
				case len(runnable) == 0 && s.fresh:
					vain++ // the next look waits for a poll
				case len(runnable) > 0:
					found.Mine = []processlog.Row{{ID: runnable[0]}} // one slot
					rows.left = allBut(rows.left, runnable[:1])
				}
				ahead.tried(s, found, nil)
			}
			require.LessOrEqual(t, vain, 4, "each looks twice as far")
		})
	}
}

func TestFailedReadingIsToldAndForgotten(t *testing.T) {
	away := errors.New("the database is away")
	rows, ahead := newDueRows(50), newReadAhead()
	_, err := ahead.take(10, func(int) ([]processlog.ID, bool, error) { return nil, false, away })
	require.ErrorIs(t, err, away)
	s, err := ahead.take(10, rows.read)
	require.NoError(t, err)
	require.Len(t, s.ids, 10)
}

// What came due since is not among what was read.
func TestLastShareOfAReadingIsNotTheDatabasesLastWord(t *testing.T) {
	rows, ahead := newDueRows(150), newReadAhead()
	ahead.claims = 2
	s, err := ahead.take(100, rows.read)
	require.NoError(t, err)
	require.True(t, s.more)
	ahead.tried(s, rows.claim(s), nil)
	s, err = ahead.take(100, rows.read)
	require.NoError(t, err)
	require.Len(t, s.ids, 50)
	require.True(t, s.more)
	ahead.tried(s, rows.claim(s), nil)
	s, err = ahead.take(100, rows.read)
	require.NoError(t, err)
	require.Empty(t, s.ids)
	require.False(t, s.more)
}

// The database offers what is being claimed until that has been committed.
func TestReadingLeavesOutWhatAnotherClaimIsAt(t *testing.T) {
	rows, ahead := newDueRows(1000), newReadAhead()
	first, err := ahead.take(100, rows.read)
	require.NoError(t, err)
	second, err := ahead.take(100, rows.read)
	require.NoError(t, err)
	require.Len(t, second.ids, 100)
	require.Equal(t, second.ids, allBut(second.ids, first.ids))
	ahead.tried(first, processlog.Claimed{}, errors.New("the database is away"))
	third, err := ahead.take(100, rows.read)
	require.NoError(t, err)
	require.Equal(t, first.ids, third.ids)
}

func TestClaimOfABacklogDoesNotWaitForAnothersReading(t *testing.T) {
	rows, ahead := newDueRows(1000), newReadAhead()
	s, err := ahead.take(100, rows.read)
	require.NoError(t, err)
	reading, end := make(chan struct{}), make(chan struct{})
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = ahead.take(100, func(int) ([]processlog.ID, bool, error) {
			close(reading)
			<-end
			return nil, false, nil
		})
	}()
	<-reading
	ahead.tried(s, rows.claim(s), nil)
	close(end)
	<-over
}

// allBut returns the ids that are not in drop.
func allBut(ids, drop []processlog.ID) []processlog.ID {
	return slices.DeleteFunc(slices.Clone(ids), func(id processlog.ID) bool { return slices.Contains(drop, id) })
}
