package compensator

import (
	"github.com/compensator-go/compensator/internal/timingwheel"
	"github.com/compensator-go/compensator/processlog"
)

// localQueue returns the queue of a process without Redis. It knows the entries that this process recorded. The database
// is polled for the others. A nil queue is allowed: then the database is polled for all entries. Only this file knows
// the package timingwheel.
func localQueue() processlog.Queue { return timingwheel.New() }
