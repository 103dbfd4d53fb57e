package observe

import (
	"fmt"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// Health is what a readiness probe wants to know.
type Health struct {
	Database error // nil: it answers
	Queue    error // nil: it answers; otherwise the database is polled, which works, with more delay
	History  error // not nil: the database has gone back, and this process has stopped; see ErrHistoryLost

	// OldestOverdue is how long the entry that waits longest has been due and unclaimed, of any type; read
	// from the database, so that a queue that has lost entries does not hide them.
	OldestOverdue     time.Duration
	OldestOverdueType string

	UnknownTypes []string                  // types with overdue entries that this process has no handler for
	Stuck        []processlog.StuckAttempt // handlers, or their COMMITs, that run on after their timeout, or after a Run that has given them up
	Troubles     []Trouble                 // what of the library's own fails at present, and since when; it is tried again
}

// OK reports whether entries are being worked off in time: the database answers, has kept what it had, and nothing has
// been due for longer than patience.
func (h Health) OK(patience time.Duration) bool {
	return h.Database == nil && h.History == nil && h.OldestOverdue <= patience
}

// Trouble is work of the library's own that a server does not let it do, and that it tries again by itself.
type Trouble struct {
	What         string    // what fails
	BusinessType string    // where it concerns one type
	Error        string    // the last one
	Since        time.Time // it has failed since, with no success in between
	Times        int
}

// String sums a Health up in a line.
func (h Health) String() string {
	switch {
	case h.Database != nil:
		return fmt.Sprintf("database: %v", h.Database)
	case h.History != nil:
		return fmt.Sprintf("history: %v", h.History)
	case len(h.Troubles) > 0:
		return fmt.Sprintf("%s: %s; oldest overdue %v", h.Troubles[0].What, h.Troubles[0].Error, h.OldestOverdue)
	case h.Queue != nil:
		return fmt.Sprintf("queue: %v; oldest overdue %v", h.Queue, h.OldestOverdue)
	}
	return fmt.Sprintf("oldest overdue %v", h.OldestOverdue)
}
