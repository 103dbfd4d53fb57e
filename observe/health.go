package observe

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// Health says how this process and the log are. [Health.Ready] is for a readiness probe; the rest is to look at, and to
// alert on. String tells all of it in a line, and MarshalJSON in names of its own.
type Health struct {
	Database error // nil: it answers
	Queue    error // nil: it answers; otherwise the database is polled, which works, with more delay
	History  error // not nil: the database has gone back, and this process has stopped; see ErrHistoryLost

	Handlers int  // how many types have a handler in this process
	Running  bool // Run is at work in this process, and has not been told to stop

	// OldestOverdue is how long the entry that waits longest has been due and unclaimed, of any type; read
	// from the database, so that a queue that has lost entries does not hide them. Overdue says it of each type that
	// has one.
	OldestOverdue     time.Duration
	OldestOverdueType string
	Overdue           map[string]time.Duration

	UnknownTypes []string                  // types with overdue entries that this process has no handler for
	Stuck        []processlog.StuckAttempt // handlers, or their COMMITs, that run on after their timeout, or after a Run that has given them up
	OpenBreakers []OpenBreaker             // types that are not claimed in this process for now
	Troubles     []Trouble                 // what of the library's own fails at present, and since when; it is tried again
}

// Ready is nil when this process can do its part: the database answers and has kept what it had, and if types have
// handlers here Run is at work. No backlog makes a process unready: without it there would be more of it, and what waits
// may be another deployment's.
func (h Health) Ready() error {
	switch {
	case h.Database != nil:
		return fmt.Errorf("database: %w", h.Database)
	case h.History != nil:
		return fmt.Errorf("history: %w", h.History)
	case h.Handlers > 0 && !h.Running:
		return errors.New("handlers are registered, and Run is not at work")
	}
	return nil
}

// Trouble is work of the library's own that a server does not let it do, and that it tries again by itself.
type Trouble struct {
	What         string    // what fails
	BusinessType string    // where it concerns one type
	Error        string    // the last one
	Since        time.Time // it has failed since, with no success in between
	Times        int
}

func (t Trouble) String() string {
	about := ""
	if t.BusinessType != "" {
		about = " (" + t.BusinessType + ")"
	}
	return fmt.Sprintf("%s%s: %s, %d times since %s", t.What, about, t.Error, t.Times, t.Since.UTC().Format(time.RFC3339))
}

// OpenBreaker is a type whose entries this process leaves alone, because what its handler needs is down: they wait, due, in
// the log and the queue, and other processes may take them.
type OpenBreaker struct {
	BusinessType string
	Since        time.Time // it has been open
	ProbeAt      time.Time // from then on one entry is tried; that one may be under way, or not have come due yet
	Probes       int       // that have failed since it opened
	Err          error     // of the last call that failed
}

func (b OpenBreaker) String() string {
	return fmt.Sprintf("breaker open (%s): %v, since %s, %d probes failed, next from %s", b.BusinessType, b.Err,
		b.Since.UTC().Format(time.RFC3339), b.Probes, b.ProbeAt.UTC().Format(time.RFC3339))
}

// String tells all there is, in one line.
func (h Health) String() string {
	parts := []string{"ready"}
	if err := h.Ready(); err != nil {
		parts[0] = "not ready: " + err.Error()
	}
	if h.Queue != nil {
		parts = append(parts, fmt.Sprintf("queue: %v", h.Queue))
	}
	for _, b := range h.OpenBreakers {
		parts = append(parts, b.String())
	}
	for _, t := range h.Troubles {
		parts = append(parts, t.String())
	}
	for _, s := range h.Stuck {
		parts = append(parts, "stuck: "+s.String())
	}
	if len(h.UnknownTypes) > 0 {
		parts = append(parts, "no handler here for "+strings.Join(h.UnknownTypes, ", "))
	}
	overdue := fmt.Sprintf("oldest overdue %v", h.OldestOverdue)
	if h.OldestOverdueType != "" {
		overdue += " (" + h.OldestOverdueType + ")"
	}
	return strings.Join(append(parts, overdue), "; ")
}

// MarshalJSON writes durations in seconds and errors as texts; what there is none of is left out.
func (h Health) MarshalJSON() ([]byte, error) {
	type stuck struct {
		ID      processlog.ID `json:"id"`
		Type    string        `json:"type"`
		Seconds float64       `json:"running_seconds"`
	}
	type trouble struct {
		What  string    `json:"what"`
		Type  string    `json:"type,omitempty"`
		Error string    `json:"error"`
		Since time.Time `json:"since"`
		Times int       `json:"times"`
	}
	type breaker struct {
		Type    string    `json:"type"`
		Error   string    `json:"error"`
		Since   time.Time `json:"since"`
		Probes  int       `json:"failed_probes"`
		ProbeAt time.Time `json:"probe_at"`
	}
	told := struct {
		Ready    bool               `json:"ready"`
		NotReady string             `json:"not_ready,omitempty"`
		Database string             `json:"database,omitempty"`
		Queue    string             `json:"queue,omitempty"`
		History  string             `json:"history,omitempty"`
		Handlers int                `json:"handlers"`
		Running  bool               `json:"running"`
		Oldest   float64            `json:"oldest_overdue_seconds"`
		Type     string             `json:"oldest_overdue_type,omitempty"`
		Overdue  map[string]float64 `json:"overdue_seconds,omitempty"`
		Unknown  []string           `json:"unknown_types,omitempty"`
		Stuck    []stuck            `json:"stuck,omitempty"`
		Breakers []breaker          `json:"open_breakers,omitempty"`
		Troubles []trouble          `json:"troubles,omitempty"`
	}{
		Ready: h.Ready() == nil, NotReady: text(h.Ready()), Database: text(h.Database), Queue: text(h.Queue), History: text(h.History),
		Handlers: h.Handlers, Running: h.Running, Oldest: h.OldestOverdue.Seconds(), Type: h.OldestOverdueType, Unknown: h.UnknownTypes,
	}
	for name, overdue := range h.Overdue {
		if told.Overdue == nil {
			told.Overdue = make(map[string]float64, len(h.Overdue))
		}
		told.Overdue[name] = overdue.Seconds()
	}
	for _, s := range h.Stuck {
		told.Stuck = append(told.Stuck, stuck{s.ID, s.BusinessType, s.Running.Seconds()})
	}
	for _, b := range h.OpenBreakers {
		told.Breakers = append(told.Breakers, breaker{b.BusinessType, text(b.Err), b.Since.UTC(), b.Probes, b.ProbeAt.UTC()})
	}
	for _, t := range h.Troubles {
		told.Troubles = append(told.Troubles, trouble{t.What, t.BusinessType, t.Error, t.Since.UTC(), t.Times})
	}
	return json.Marshal(told)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
