package admin

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

type (
	FailedAttempt  = processlog.FailedAttempt  // an attempt that did not succeed
	AttemptVerdict = processlog.AttemptVerdict // what followed from a failed attempt
)

// EventKind is the kind of an Event.
type EventKind string

// The kinds of events, in the order of an entry's life.
const (
	EventRecorded   EventKind = "recorded"   // the entry was recorded
	EventUnrecorded EventKind = "unrecorded" // N failures of the present epoch are not kept
	EventFailed     EventKind = "failed"     // an attempt failed: see Event.Attempt
	EventAction     EventKind = "action"     // a person or a program acted: see Event.Action
	EventEnded      EventKind = "ended"      // the entry ended. A successful attempt has no event of its own
	EventDue        EventKind = "due"        // when the entry is due for its next attempt. Admin.Explain says why the attempt has not begun
)

// Event is one line of an entry's timeline.
type Event struct {
	At      time.Time           `json:"at"`                 // when it happened, or will happen, by the database's clock. For an attempt it is the start
	Kind    EventKind           `json:"kind"`               // what happened
	N       int                 `json:"n,omitempty"`        // number of failures that are not kept; only for EventUnrecorded
	Attempt *FailedAttempt      `json:"attempt,omitempty"`  // the failed attempt; only for EventFailed
	Action  *AuditLogRecord     `json:"action,omitempty"`   // the action; only for EventAction
	State   compensator.State   `json:"state"`              // state of the entry; only for EventEnded and EventDue
	EndedBy compensator.EndedBy `json:"ended_by,omitempty"` // cause that ended the entry; only for EventEnded
}

// Timeline returns the life of the entry in order of time.
func (v EntryView) Timeline() []Event {
	e := &v.Entry
	var middle []Event
	for i := range v.Attempts {
		middle = append(middle, Event{At: v.Attempts[i].StartedAt, Kind: EventFailed, Attempt: &v.Attempts[i]})
	}
	for i := range slices.Backward(v.AuditLog) {
		middle = append(middle, Event{At: v.AuditLog[i].At, Kind: EventAction, Action: &v.AuditLog[i]})
	}
	slices.SortStableFunc(middle, func(a, b Event) int { return a.At.Compare(b.At) })
	events := []Event{{At: e.CreatedAt, Kind: EventRecorded}}
	if n := v.unrecordedAttempts(); n > 0 {
		events = append(events, Event{At: e.CreatedAt, Kind: EventUnrecorded, N: n})
	}
	finalEvent := Event{At: e.NextAt, Kind: EventDue, State: e.State}
	if e.State.Terminal() {
		finalEvent.Kind, finalEvent.EndedBy = EventEnded, e.EndedBy
		at, _ := slices.BinarySearchFunc(middle, finalEvent, func(a, b Event) int { return cmp.Or(a.At.Compare(b.At), -1) })
		return slices.Concat(events, middle[:at], []Event{finalEvent}, middle[at:])
	}
	return append(append(events, middle...), finalEvent)
}

// unrecordedAttempts returns how many counted failures of the present epoch are not in v.Attempts. It returns 0 for a
// settled or erased entry, because the counts of this entry belong to the previous epoch.
func (v EntryView) unrecordedAttempts() int {
	e := &v.Entry
	if !v.AttemptsKept || e.Erased || e.EndedBy == compensator.EndedByPerson {
		return 0
	}
	n := e.ProcessCount + e.CompensateCount
	for _, a := range v.Attempts {
		switch a.Verdict {
		case processlog.AttemptWaits, processlog.AttemptInterrupted:
			continue
		case processlog.AttemptCrashed: // A crash raises CompensateCount but not ProcessCount, so n counts only crashed compensations.
			if !a.Compensating {
				continue
			}
		}
		if a.Epoch == e.Epoch {
			n--
		}
	}
	return max(0, n)
}

func (d *Admin) attempts(ctx context.Context, view *EntryView, isErrorFull bool) (err error) {
	if view.AttemptsKept = d.log.KeepsAttempts(); !view.AttemptsKept {
		return nil
	}
	view.Attempts, err = runQuery(ctx, d, func(ctx context.Context) ([]FailedAttempt, error) {
		return d.log.Operations().AttemptsOf(ctx, view.Entry.ID)
	})
	for i := range view.Attempts {
		view.Attempts[i].Error = d.scrubText(view.Attempts[i].Error, isErrorFull)
	}
	return err
}
