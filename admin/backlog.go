package admin

import (
	"context"
	"slices"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

type (
	Backlog        = processlog.Backlog        // number of waiting entries of a type
	BacklogReading = processlog.BacklogReading // the backlog of all types, and its age
)

// Processes count the backlog once a minute.
const maxBacklogAge = 5 * time.Minute

// Backlog reads how many entries of each type waited when a process with Operations.Statistics counted them last. The
// field Known is false if no process has counted within the last five minutes. If Operations.Statistics is not set,
// Backlog sends no query and returns a *FieldError.
func (l *Log) Backlog(ctx context.Context) (BacklogReading, error) {
	if !l.c.KeepsStatistics() {
		return BacklogReading{}, newNoStatisticsError()
	}
	reading, err := l.c.Operations().ReadBacklog(ctx)
	if err != nil || !isRecent(reading) {
		return BacklogReading{}, err
	}
	return reading, nil
}

func isRecent(r BacklogReading) bool {
	return r.Known && r.Age < maxBacklogAge && r.Age > -maxBacklogAge
}

// AddBacklog sets o.BacklogAge, and the Backlog of each type in o that has a count in the reading r.
//
// Overview counts at most 1,000 entries of each type and state. If Overview stopped at 1,000, AddBacklog replaces this
// count by the count in r. If the count in r is below 1,000, it is older than the count of Overview, and AddBacklog
// ignores it.
//
// If the field r.Known is false or r is older than five minutes, AddBacklog changes nothing. If Operations.Statistics
// is set, Overview calls AddBacklog itself.
func (o *Overview) AddBacklog(r BacklogReading) {
	if !isRecent(r) {
		return
	}
	o.BacklogAge = max(0, r.Age)
	for i := range o.Types {
		t := &o.Types[i]
		at := slices.IndexFunc(r.Types, func(b Backlog) bool { return b.BusinessType == t.Type })
		if at < 0 {
			continue
		}
		b := r.Types[at]
		t.Backlog = &b
		for j := range t.Counts {
			if c := &t.Counts[j]; c.More && b.Of(c.State) >= c.N {
				c.N, c.More = b.Of(c.State), false
			}
		}
	}
}

// Waiting returns how many entries of the type are pending, retrying or compensating. If hasMore is true, counting
// stopped early, and n is a lower bound.
func (t TypeOverview) Waiting() (n int, hasMore bool) {
	for _, c := range t.Counts {
		if !c.State.Terminal() {
			n += c.N
			hasMore = hasMore || c.More
		}
	}
	return n, hasMore
}
