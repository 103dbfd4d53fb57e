package compensator

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// EntryID names one row of the process log. It is opaque: compare it, store its String, hand it back. A
// service that shards its log later keeps the same type, so code that does arithmetic on ids would break.
// The zero EntryID names no entry.
type EntryID struct{ row uint64 }

// RowID is the EntryID of a row number. Only Store implementations need it.
func RowID(row uint64) EntryID { return EntryID{row} }

// ParseEntryID reads what String wrote, and no other spelling of it.
func ParseEntryID(s string) (EntryID, error) {
	row, err := strconv.ParseUint(s, 10, 64)
	if err != nil || s[0] == '0' {
		return EntryID{}, &FieldError{Field: "entry id", Reason: fmt.Sprintf("%q is not an entry id", s)}
	}
	return EntryID{row}, nil
}

// Row is the number RowID was given.
func (id EntryID) Row() uint64 { return id.row }

// IsZero reports whether id names no entry.
func (id EntryID) IsZero() bool { return id.row == 0 }

// String is stable across versions; ParseEntryID reads it back.
func (id EntryID) String() string { return strconv.FormatUint(id.row, 10) }

// MarshalText writes the id as text, so that JSON carries it as a string: a number beyond 2^53 would be
// rounded by most readers.
func (id EntryID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (id *EntryID) UnmarshalText(text []byte) error {
	parsed, err := ParseEntryID(string(text))
	if err == nil {
		*id = parsed
	}
	return err
}

// Ref names an entry in the calls a service or a person makes: an EntryID, or an IdempotentID when the
// caller knows only the key it recorded under.
type Ref interface{ isRef() }

// IdempotentID refers to an entry by the key it was recorded with.
type IdempotentID string

func (EntryID) isRef()      {}
func (IdempotentID) isRef() {}

// State is where an entry stands. The numbers are stored.
type State int8

// The states of an entry. Only a person leaves a terminal one.
const (
	Pending       State = 0  // not attempted yet, or attempted without a recorded failure
	Retrying      State = -1 // failed at least once, will be attempted again
	Dead          State = -2 // terminal: waits for a person
	Compensating  State = -3 // attempts used up; the type's undo runs, with a budget of its own
	Succeeded     State = 1  // terminal
	Compensated   State = 2  // terminal: the undo succeeded
	Cancelled     State = 3  // terminal: the work was no longer wanted
	SettledByHand State = 4  // terminal: a person did the work
)

// States lists every state, in the order of their numbers.
var States = [...]State{Compensating, Dead, Retrying, Pending, Succeeded, Compensated, Cancelled, SettledByHand}

var stateNames = map[State]string{
	Pending: "pending", Retrying: "retrying", Dead: "dead", Compensating: "compensating",
	Succeeded: "succeeded", Compensated: "compensated", Cancelled: "cancelled", SettledByHand: "settled by hand",
}

func (s State) String() string {
	if name, ok := stateNames[s]; ok {
		return name
	}
	return fmt.Sprintf("State(%d)", int8(s))
}

// Terminal reports whether only a person moves an entry on from s.
func (s State) Terminal() bool {
	switch s {
	case Pending, Retrying, Compensating:
		return false
	}
	return true
}

// EndedBy tells what brought an entry to its terminal state; empty while it is on its way.
type EndedBy string

// What may end an entry.
const (
	EndedByHandler   EndedBy = "handler"   // its handler, or its compensation, returned nil
	EndedByComplete  EndedBy = "complete"  // Complete: somebody else finished the work
	EndedByPermanent EndedBy = "permanent" // a Permanent error, with no compensation registered
	EndedByExhausted EndedBy = "exhausted" // attempts used up
	EndedByCrash     EndedBy = "crash"     // too many leases in a row ended with no outcome
	EndedByPerson    EndedBy = "person"    // Cancel, SettleByHand
)

// Entry is one row of the process log, as read from the database. A handler gets its own copy; changing it
// changes nothing that is stored.
type Entry struct {
	ID            EntryID
	IdempotentID  string
	BusinessType  string
	BatchID       string
	BusinessID    string
	BusinessExtID string
	UserID        string
	UserName      string
	Content       []byte
	Headers       map[string]string // what Config.Propagator put in when the entry was recorded

	State           State
	ProcessCount    int // failures recorded in this epoch
	MaxProcessCount int // 0: the type's
	CompensateCount int // failed compensations in this epoch
	DeliveryCount   int // leases in a row without a recorded outcome, the present one included
	Version         uint64
	Epoch           uint32
	NextAt          time.Time // due; in a terminal state: when it got there. UTC, milliseconds
	EndedBy         EndedBy
	LastError       string // of the last failed attempt; a compensation reads here what went wrong. A success clears it

	CreatedAt time.Time // UTC, milliseconds
	UpdatedAt time.Time // UTC, milliseconds

	codec  Codec
	engine *Compensator // of a handler's entry
}

// Context is parent with the values that travelled with the entry, by Config.Propagator. They are extracted at each
// call. A handler of single entries is given them already; the context of a batch carries those of none. Of an entry
// that was not given to a handler it is parent itself.
func (e *Entry) Context(parent context.Context) context.Context {
	if e.engine == nil {
		return parent
	}
	return e.engine.extract(parent, e.Headers)
}

// Attempt counts the runs of this epoch that were recorded, this one included: 1 on the first.
func (e *Entry) Attempt() int {
	if e.State == Compensating {
		return e.CompensateCount + 1
	}
	return e.ProcessCount + 1
}

// Key identifies this generation of the entry to other systems: give it to whatever your handler calls as
// its idempotency key. It is the same for every attempt, and changes when a person requeues the entry.
func (e *Entry) Key() string {
	return e.ID.String() + "-" + strconv.FormatUint(uint64(e.Epoch), 10)
}

// Decode reads Content into v with the codec of the entry's type; JSON for an entry that no type of this
// process claims.
func (e *Entry) Decode(v any) error {
	codec := e.codec
	if codec == nil {
		codec = JSON
	}
	return codec.Unmarshal(e.Content, v)
}

// Codec turns a handler's value into stored content and back. Both methods may be called concurrently.
type Codec interface {
	Marshal(v any) ([]byte, error)
	Unmarshal(data []byte, v any) error
}

// JSON is the default Codec.
var JSON Codec = jsonCodec{}

type jsonCodec struct{}

func (jsonCodec) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (jsonCodec) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }
