package processlog

import "time"

// AttemptVerdict says what the library decided after a failed attempt.
type AttemptVerdict string

// The verdicts on failed attempts.
const (
	AttemptFailed      AttemptVerdict = "failed"      // the attempt counts as a failure, and another attempt follows
	AttemptWaits       AttemptVerdict = "waits"       // the attempt costs nothing, because something was not available
	AttemptExhausted   AttemptVerdict = "exhausted"   // the attempt was the last one that was allowed
	AttemptPermanent   AttemptVerdict = "permanent"   // the error was permanent, so no further attempt follows
	AttemptCrashed     AttemptVerdict = "crashed"     // several leases in a row ended without an outcome, usually by a crash
	AttemptInterrupted AttemptVerdict = "interrupted" // the process stopped, so the attempt costs nothing
)

// MaxAttemptsKept is the maximum number of failed attempts that a store keeps of an entry.
const MaxAttemptsKept = 50

// FailedAttempt is an attempt that did not succeed. It is stored for people, and the library bases no decision on it.
// All times are by the database's clock.
type FailedAttempt struct {
	Version      uint64         `json:"version,string"`         // version of the entry during the attempt. The store sets it
	Epoch        uint32         `json:"epoch"`                  // epoch of the entry
	Number       int            `json:"attempt"`                // number of the attempt in its epoch, as Row.Attempt returns it
	Compensating bool           `json:"compensating,omitempty"` // whether the compensation ran, not the handler
	Verdict      AttemptVerdict `json:"verdict"`                // what the library decided after the attempt
	TimedOut     bool           `json:"timed_out,omitempty"`    // whether the attempt ended after its timeout, so that it may have had an effect
	LostLeases   int            `json:"lost_leases,omitempty"`  // number of consecutive leases before this attempt that ended without an outcome
	Instance     string         `json:"instance"`               // process that ran the attempt, as host:pid
	DueAt        time.Time      `json:"due_at"`                 // when the entry was due
	StartedAt    time.Time      `json:"started_at"`             // when the entry was claimed for the attempt
	Took         time.Duration  `json:"took_ns"`                // how long the attempt ran, in whole milliseconds
	NextAt       time.Time      `json:"next_at,omitzero"`       // when the entry was due again; zero if it was dead. The store sets it
	Trace        string         `json:"trace,omitempty"`        // trace id of the attempt, if there is one
	Error        string         `json:"error,omitempty"`        // error without confidential data, at most MaxText characters
}

// Late returns how long after its due time the entry was claimed.
func (a *FailedAttempt) Late() time.Duration { return max(0, a.StartedAt.Sub(a.DueAt)) }

// AttemptSlot returns a number below MaxAttemptsKept: the slot in which a store keeps the attempt with the given
// Outcome.Version. A new attempt replaces the earlier attempt in its slot. The versions of two attempts of an entry
// differ by at least two.
func AttemptSlot(version uint64) uint64 { return version / 2 % MaxAttemptsKept }
