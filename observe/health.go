package observe

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// Health is the condition of this process and of the log. [Health.Ready] answers a readiness probe. String returns all
// fields in one line.
type Health struct {
	Database error // error of the database; nil if it answers
	Queue    error // error of the queue; nil if it answers. As long as it is not nil, the library polls the database, so entries start later
	// History is not nil if the database was rolled back to an earlier state. It is a *LossError, which says whether
	// this process has stopped.
	History error

	Handlers int  // number of types with a handler in this process
	Running  bool // whether Run is running in this process and its context has not ended

	// OldestOverdue is how long the oldest due entry of any type has waited for a claim. It is read from the database,
	// so it includes entries that the queue has lost. It is 0 if no entry waits.
	OldestOverdue     time.Duration
	OldestOverdueType string                   // type of the entry that OldestOverdue describes
	Overdue           map[string]time.Duration // how long the oldest due entry of each type has waited; types without one are missing

	UnknownTypes []string                  // types with overdue entries and without a handler in this process
	Stuck        []processlog.StuckAttempt // handlers, or their COMMITs, that still run after their timeout or after Run stopped waiting for them
	OpenBreakers []OpenBreaker             // types that this process does not claim now
	Limited      []LimitedType             // types with entries that this process knows to wait for a limit
	Paused       []PausedType              // types that people have paused, as this process read them last. Their entries become overdue
	Problems     []Problem                 // tasks of the library that fail now and that the library retries
}

// Ready returns nil if this process can do its work. A backlog does not make a process unready. Ready returns an error
// in three cases:
//   - The database does not answer. The error wraps Database.
//   - A loss has stopped this process (Config.StopOnLoss). The error wraps History.
//   - Types have handlers in this process, and Run is not running.
func (h Health) Ready() error {
	switch {
	case h.Database != nil:
		return fmt.Errorf("database: %w", h.Database)
	case h.hasStopped():
		return fmt.Errorf("history: %w", h.History)
	case h.Handlers > 0 && !h.Running:
		return errors.New("handlers are registered, and Run is not at work")
	}
	return nil
}

func (h Health) hasStopped() bool {
	var loss *processlog.LossError
	return errors.As(h.History, &loss) && loss.Stopped
}

// Problem is a task of the library that fails now, for example because a server refuses it. The library retries the
// task.
type Problem struct {
	What         string    // name of the task
	BusinessType string    // business type, if the task concerns one type
	Error        string    // text of the last error
	Since        time.Time // time of the first failure after the last success, by the clock of this process
	Times        int       // number of failures since Since
}

// String returns one line with all fields.
func (t Problem) String() string {
	typeSuffix := ""
	if t.BusinessType != "" {
		typeSuffix = " (" + t.BusinessType + ")"
	}
	return fmt.Sprintf("%s%s: %s, %d times since %s", t.What, typeSuffix, t.Error, t.Times, t.Since.UTC().Format(time.RFC3339))
}

// OpenBreaker is a type that this process does not claim, because a system that its handler needs is down. Its due
// entries wait in the log and the queue. Other processes may run them.
type OpenBreaker struct {
	BusinessType string    // business type that is not claimed
	Since        time.Time // when the breaker opened, by the clock of this process
	// ProbeAt is the time at which the process tries one entry again. If the time has passed, that attempt may be
	// running, or no entry is due yet.
	ProbeAt time.Time
	Probes  int   // number of failed attempts since the breaker opened
	Err     error // error of the last failed call
}

// String returns one line with all fields.
func (b OpenBreaker) String() string {
	return fmt.Sprintf("breaker open (%s): %v, since %s, %d probes failed, next from %s", b.BusinessType, b.Err,
		b.Since.UTC().Format(time.RFC3339), b.Probes, b.ProbeAt.UTC().Format(time.RFC3339))
}

// LimitedType is a type with entries that wait for a permit of their limit (TypeConfig.Limit). They are due, and cost
// no attempt.
type LimitedType struct {
	BusinessType string `json:"type"`  // business type of the entries
	Limit        string `json:"limit"` // name of the limit
	// Waiting is the number of entries that this process has tried to claim, and that got no permit yet. More entries
	// may wait. The reason is that the process claims no entries of the type while a limit without keys is used up.
	Waiting int `json:"waiting"`
	// NextAt is the time in UTC at which the rate of the limit allows one more start, by the clock of this process.
	// Another process may take this start. NextAt is zero if the waiting entries need the end of running entries and
	// not a start.
	NextAt time.Time `json:"next_at,omitzero"`
}

// String returns one line with all fields.
func (l LimitedType) String() string {
	nextStart := "when a running entry ends"
	if !l.NextAt.IsZero() {
		nextStart = "not before " + l.NextAt.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("limited (%s): %s held up by the limit %q, the next starts %s", l.BusinessType, processlog.EntryCount(l.Waiting), l.Limit, nextStart)
}

// PausedType is a type that a person has paused. No process with Config.Operations claims its entries.
type PausedType struct {
	BusinessType string    `json:"type"`             // business type of the entries
	EndsAt       time.Time `json:"ends_at,omitzero"` // when the pause ends by itself, by the database's clock; zero: a person must end it
}

// String returns one line with all fields.
func (p PausedType) String() string {
	if p.EndsAt.IsZero() {
		return "paused (" + p.BusinessType + ")"
	}
	return fmt.Sprintf("paused (%s): until %s", p.BusinessType, p.EndsAt.UTC().Format(time.RFC3339))
}

// String returns all fields in one line.
func (h Health) String() string {
	parts := []string{"ready"}
	if err := h.Ready(); err != nil {
		parts[0] = "not ready: " + err.Error()
	}
	if h.History != nil && !errors.Is(h.Ready(), processlog.ErrHistoryLost) {
		parts = append(parts, fmt.Sprintf("history: %v", h.History))
	}
	if h.Queue != nil {
		parts = append(parts, fmt.Sprintf("queue: %v", h.Queue))
	}
	for _, b := range h.OpenBreakers {
		parts = append(parts, b.String())
	}
	for _, l := range h.Limited {
		parts = append(parts, l.String())
	}
	for _, p := range h.Paused {
		parts = append(parts, p.String())
	}
	for _, t := range h.Problems {
		parts = append(parts, t.String())
	}
	for _, s := range h.Stuck {
		parts = append(parts, "stuck: "+s.String())
	}
	if len(h.UnknownTypes) > 0 {
		parts = append(parts, "no handler here for "+strings.Join(h.UnknownTypes, ", "))
	}
	overdueText := fmt.Sprintf("oldest overdue %v", h.OldestOverdue)
	if h.OldestOverdueType != "" {
		overdueText += " (" + h.OldestOverdueType + ")"
	}
	return strings.Join(append(parts, overdueText), "; ")
}

// MarshalJSON writes durations in seconds and errors as texts. It leaves out empty fields.
func (h Health) MarshalJSON() ([]byte, error) {
	type stuck struct {
		ID      processlog.ID `json:"id"`
		Type    string        `json:"type"`
		Seconds float64       `json:"running_seconds"`
	}
	type problem struct {
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
	health := struct {
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
		Limited  []LimitedType      `json:"limited,omitempty"`
		Paused   []PausedType       `json:"paused,omitempty"`
		Problems []problem          `json:"troubles,omitempty"`
	}{
		Ready: h.Ready() == nil, NotReady: errorText(h.Ready()), Database: errorText(h.Database), Queue: errorText(h.Queue), History: errorText(h.History),
		Handlers: h.Handlers, Running: h.Running, Oldest: h.OldestOverdue.Seconds(), Type: h.OldestOverdueType, Unknown: h.UnknownTypes, Limited: h.Limited, Paused: h.Paused,
	}
	for name, overdue := range h.Overdue {
		if health.Overdue == nil {
			health.Overdue = make(map[string]float64, len(h.Overdue))
		}
		health.Overdue[name] = overdue.Seconds()
	}
	for _, s := range h.Stuck {
		health.Stuck = append(health.Stuck, stuck{s.ID, s.BusinessType, s.Running.Seconds()})
	}
	for _, b := range h.OpenBreakers {
		health.Breakers = append(health.Breakers, breaker{b.BusinessType, errorText(b.Err), b.Since.UTC(), b.Probes, b.ProbeAt.UTC()})
	}
	for _, t := range h.Problems {
		health.Problems = append(health.Problems, problem{t.What, t.BusinessType, t.Error, t.Since.UTC(), t.Times})
	}
	return json.Marshal(health)
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
