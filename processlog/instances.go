package processlog

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"
)

// InstanceID identifies a process from its New to its Close. It is random.
type InstanceID [8]byte

// NewInstanceID draws a random InstanceID.
func NewInstanceID() InstanceID {
	var id InstanceID
	_, _ = rand.Read(id[:]) // rand.Read never returns an error. It ends the program instead.
	return id
}

// String returns 16 hexadecimal digits.
func (id InstanceID) String() string { return hex.EncodeToString(id[:]) }

// MarshalText implements encoding.TextMarshaler.
func (id InstanceID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads the text of String, or returns a *FieldError.
func (id *InstanceID) UnmarshalText(text []byte) error {
	data, err := hex.DecodeString(string(text))
	if err != nil || len(data) != len(id) {
		return &FieldError{Field: "process", Reason: fmt.Sprintf("%q is no id of one", text)}
	}
	copy(id[:], data)
	return nil
}

// instanceMark is the number of bytes of a token that name the process. The other 12 are random.
const instanceMark = 4

// Mark returns the token with the mark of a process in its first bytes.
func (t Token) Mark(by InstanceID) Token {
	copy(t[:instanceMark], by[:])
	return t
}

// MarkedBy reports whether the token has the mark of a process. Two of n processes have the same mark with a probability
// of about n*n/2^33, so the answer only informs people.
func (t Token) MarkedBy(id InstanceID) bool {
	return [instanceMark]byte(t[:]) == [instanceMark]byte(id[:])
}

// LeaseMark returns the bytes with which the token of a lease of this process begins.
func (id InstanceID) LeaseMark() []byte { return id[:instanceMark] }

// Instance is what a process says about itself, for people to read.
type Instance struct {
	ID      InstanceID     `json:"id"`      // the process
	Name    string         `json:"name"`    // host and process id, or the name that the process was given; at most 191 characters
	Library string         `json:"library"` // version of the library, at most 191 characters; empty: not known
	Build   string         `json:"build"`   // version of the service, at most 191 characters; empty: not known
	Running bool           `json:"running"` // whether Run takes new entries
	Queue   InstanceQueue  `json:"queue"`   // whether the process reaches the shared queue
	Types   []InstanceType `json:"types"`   // business types with a handler in this process, and its periodic types, sorted by name

	StartedAt time.Time     `json:"started_at"` // by the database's clock, like the next two
	SeenAt    time.Time     `json:"seen_at"`    // when the process last wrote this
	EndedAt   time.Time     `json:"ended_at"`   // when Close ended the process; zero: it runs, or was killed
	Unseen    time.Duration `json:"unseen"`     // time since SeenAt when this was read, in nanoseconds
}

// InstanceType is a business type with a handler in a process, or a periodic type without one.
type InstanceType struct {
	Name    string `json:"name"`    // business type
	Slots   int    `json:"slots"`   // number of handler calls that may run at once; 0: the process has no handler
	Running int    `json:"running"` // attempts whose handler runs. One call of a batch handler runs several attempts
	Stuck   int    `json:"stuck"`   // those of them whose handler runs on after its timeout

	Schedule *InstanceSchedule `json:"schedule,omitempty"` // set if the process records the slots of the type

	Hold *ClaimHold `json:"hold,omitempty"` // why the process does not claim due entries of the type; nil if it claims them
}

// InstanceSchedule is what a process says about the schedule of a periodic type.
type InstanceSchedule struct {
	Next []time.Time `json:"next"` // the next slots when the process wrote its row, at most InstanceSlots; none: the schedule has ended
}

// InstanceSlots is the maximum number of slots that an InstanceSchedule names.
const InstanceSlots = 3

// ClaimHold says why a process does not claim due entries of a type. A pause, a limit or a breaker of the type is no
// ClaimHold.
type ClaimHold struct {
	Reason ClaimHoldReason `json:"reason"` // what keeps the process from claiming
	// N is a number that depends on Reason: waiting outcomes, refused outcomes, or running entries that have lost
	// leases.
	N int `json:"n"`
	// LostLeases says which entries of the type the process does not claim: those that have lost at least this number
	// of leases in a row. 0 means that the process claims no entry of the type.
	LostLeases int           `json:"lost_leases,omitempty"`
	For        time.Duration `json:"for_ns"` // time since the process began to hold claims back
}

// ClaimHoldReason is the reason of a ClaimHold.
type ClaimHoldReason string

// The reasons for which a process does not claim due entries.
const (
	HeldByBacklog ClaimHoldReason = "outcomes wait" // too many outcomes of all types wait until the database can store them
	// HeldByRefusals means that too many outcomes of the type wait in the process, because the database refuses to
	// store them.
	HeldByRefusals ClaimHoldReason = "outcomes refused"
	// HeldBySuspects means that suspects run, and no further suspect may start. A suspect is an entry that has lost
	// leases, so it may have crashed a process. Only few suspects may run at once. ClaimHold.N is their number now.
	HeldBySuspects ClaimHoldReason = "suspects run"
)

// InstanceQueue says whether a process reaches the shared queue.
type InstanceQueue string

// The states of a queue, as a process sees them.
const (
	InstanceQueueNone    InstanceQueue = ""        // the process has no shared queue
	InstanceQueueReached InstanceQueue = "reached" // the queue answered the last call
	InstanceQueueDown    InstanceQueue = "down"    // the last call failed, and the process asks the database instead
)

// InstanceInterval is the time between two writes of a process about itself.
const InstanceInterval = time.Minute

// InstanceState says whether a process runs.
type InstanceState string

// The states of a process.
const (
	InstanceLive InstanceState = "live" // the process has written its record within 3 times InstanceInterval
	// InstanceGone means that the process was not closed, but has not written its record for 3 times InstanceInterval.
	InstanceGone  InstanceState = "gone"
	InstanceEnded InstanceState = "ended" // Close has ended the process
)

// State returns whether the process runs.
func (i Instance) State() InstanceState {
	switch {
	case !i.EndedAt.IsZero():
		return InstanceEnded
	case i.Unseen >= 3*InstanceInterval:
		return InstanceGone
	}
	return InstanceLive
}
