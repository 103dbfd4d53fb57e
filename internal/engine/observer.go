package engine

import (
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// Observer is told what happens; see the root's, which says when. Any field may be nil.
type Observer struct {
	AttemptStarted func(AttemptEvent)
	AttemptEnded   func(AttemptEvent)
	Settled        func(SettledEvent)
	OutcomeDropped func(SettledEvent)
	Stuck          func(AttemptEvent)
	QueueDown      func(err error)
	QueueUp        func()
	EntryMissing   func(MissingEvent)
	HistoryLost    func(*processlog.LossError)
	Reconciled     func(ReconciledEvent)
}

// The events have the fields of the root's, so that one converts into the other.
type (
	AttemptEvent struct {
		ID           processlog.ID
		BusinessType string
		Attempt      int
		Compensation bool
		Late         time.Duration
		Duration     time.Duration
		Err          error
	}
	SettledEvent struct {
		ID           processlog.ID
		BusinessType string
		State        processlog.State
		EndedBy      processlog.EndedBy
		Attempt      int
	}
	MissingEvent struct {
		ID           processlog.ID
		BusinessType string
		IdempotentID string
		LikelyCause  string
	}
	ReconciledEvent struct {
		Announced    int
		Polled       int
		Rebuilt      bool
		RebuiltTypes []string
		UnknownTypes []string
	}
)
