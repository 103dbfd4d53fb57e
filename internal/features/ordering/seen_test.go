package ordering

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

func memberOf(id uint64, epoch uint32) processlog.Member {
	return processlog.Member{ID: processlog.RowID(id), Epoch: epoch}
}

func positionOf(id uint64, epoch uint32) processlog.Position {
	return processlog.Position{BusinessType: "book", Key: "ann", ID: processlog.RowID(id), Epoch: epoch}
}

func TestSeenEntriesAreOfOneEpoch(t *testing.T) {
	var s seenEntries
	s.add(orderingKey{"book", "ann"}, []processlog.Member{memberOf(1, 0), memberOf(2, 3)})
	require.True(t, s.contains(positionOf(2, 3)))
	require.False(t, s.contains(positionOf(2, 4)), "requeued since")
	require.False(t, s.contains(positionOf(3, 0)), "committed since")
	require.False(t, s.contains(processlog.Position{BusinessType: "book", Key: "bob", ID: processlog.RowID(2), Epoch: 3}))
	s.forgetAll()
	require.False(t, s.contains(positionOf(2, 3)))
}

func TestNextOfSeenEntriesIsTheFirstThatHasNotEnded(t *testing.T) {
	var s seenEntries
	s.add(orderingKey{"book", "ann"}, []processlog.Member{memberOf(1, 0), memberOf(2, 0), memberOf(3, 0), memberOf(4, 0)})
	require.Equal(t, processlog.RowID(1), s.remove(positionOf(2, 0)), "a person has ended it")
	require.Equal(t, processlog.RowID(3), s.remove(positionOf(1, 0)))
	require.Equal(t, processlog.RowID(3), s.remove(positionOf(9, 0)), "one that is not seen")
	require.Equal(t, processlog.RowID(4), s.remove(positionOf(3, 0)))
	require.Zero(t, s.remove(positionOf(4, 0)))
	require.Zero(t, s.size)
	require.Empty(t, s.keys)
}

func TestEntryBehindIsToldOfTheFirstThatHasNotEnded(t *testing.T) {
	var s seenEntries
	s.add(orderingKey{"book", "ann"}, []processlog.Member{memberOf(1, 0), memberOf(2, 0), memberOf(3, 0), memberOf(4, 0)})
	require.Equal(t, processlog.RowID(2), s.successorOf(positionOf(1, 0)))
	require.Zero(t, s.successorOf(positionOf(1, 1)), "requeued since")
	require.Zero(t, s.successorOf(positionOf(2, 0)), "another is in front")
	require.Zero(t, s.successorOf(positionOf(9, 0)), "one that is not seen")
	s.remove(positionOf(1, 0))
	s.remove(positionOf(3, 0))
	require.Equal(t, processlog.RowID(4), s.successorOf(positionOf(2, 0)))
	s.remove(positionOf(2, 0))
	require.Zero(t, s.successorOf(positionOf(4, 0)), "nobody")
}

func TestSeenEntriesAreBounded(t *testing.T) {
	var s seenEntries
	for key := range 3 * maxSeen / processlog.MaxMembers {
		members := make([]processlog.Member, processlog.MaxMembers)
		for i := range members {
			members[i] = memberOf(uint64(key*processlog.MaxMembers+i+1), 0)
		}
		s.add(orderingKey{"book", string(rune(key))}, members)
		require.LessOrEqual(t, s.size, maxSeen)
	}
	require.Positive(t, s.size)
}
