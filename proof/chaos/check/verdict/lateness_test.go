package verdict

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

func starts(s *story) []Start {
	s.t.Helper()
	l, err := s.buildLedger()
	require.NoError(s.t, err)
	return l.Starts()
}

func TestLatenessIsFromTheDueMoment(t *testing.T) {
	s := newStory(t)
	e := s.entry("ship")
	e.delay = 3000
	e.record(false, history.CommitOK)
	s.wait(3040)
	e.claim()
	s.wait(2)
	e.run("app1").end(history.OutcomeOK).succeed()
	got := starts(s)
	require.Len(t, got, 1)
	require.Equal(t, int64(43_000), got[0].Late)
	require.True(t, got[0].Calm)
}

func TestLatenessIsFromTheCommitWhenThatCameLater(t *testing.T) {
	s := newStory(t)
	e, x := s.entry("ship"), s.begin()
	e.insert(x).writeInsert(true)
	s.wait(500)
	x.commit(history.CommitOK)
	s.wait(3)
	e.run("producer").end(history.OutcomeOK).succeed()
	require.Equal(t, int64(3_000), starts(s)[0].Late)
}

func TestLatenessIsMeasuredThoughTheDatabasesClockIsAhead(t *testing.T) {
	s := newStory(t)
	s.skew = 600_000_000
	s.clock()
	e := s.committed("ship")
	s.wait(10)
	e.claim().run("app1").end(history.OutcomeOK).succeed()
	s.clock()
	require.Equal(t, int64(12_000), starts(s)[0].Late)
}

func TestLatenessUnderAFaultIsNotCalm(t *testing.T) {
	s := newStory(t)
	e := s.committed("ship")
	s.fault("kill", "redis", 500, history.TouchesQueue)
	e.claim().run("app1").end(history.OutcomeOK).succeed()
	require.False(t, starts(s)[0].Calm)
}

func TestWaitForALostLeaseIsNoLateness(t *testing.T) {
	s := newStory(t)
	e := s.committed("ship").claim()
	e.run("app1")
	s.fault("kill", "app1", 5000, history.TouchesApp)
	e.claim().run("app2").end(history.OutcomeOK).succeed()
	require.Len(t, starts(s), 1, "the first run only")
}

func TestPercentilesAreTheSamplesThemselves(t *testing.T) {
	var all []Start
	for i := range 1000 {
		all = append(all, Start{Late: int64(1000 - i), Calm: i%2 == 0})
	}
	got := Sum(all, func(Start) bool { return true })
	require.Equal(t, Percentiles{N: 1000, P50: 501 * time.Microsecond, P90: 901 * time.Microsecond, P99: 991 * time.Microsecond,
		P999: 1000 * time.Microsecond, Max: 1000 * time.Microsecond}, got)
	require.Equal(t, 500, Sum(all, func(s Start) bool { return s.Calm }).N)
	require.Zero(t, Sum(nil, func(Start) bool { return true }))
}

func TestTimelineCountsEverythingOnce(t *testing.T) {
	l, err := fullRun(t).buildLedger()
	require.NoError(t, err)
	_, seconds := l.Timeline()
	var sum Second
	late := 0
	for _, s := range seconds {
		sum.Recorded += s.Recorded
		sum.Attempts += s.Attempts
		late += s.Late.N
	}
	count := l.Count()
	require.Equal(t, count.Entries, sum.Recorded)
	require.Equal(t, count.Attempts, sum.Attempts)
	require.Len(t, l.Starts(), late)
}
