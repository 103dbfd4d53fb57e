package processlog

import (
	"fmt"
	"slices"
	"strings"
)

// State is the state of an entry. The numbers are stored.
type State int8

// The states of an entry. Only a person moves an entry out of a terminal state. But a service may complete or cancel a
// dead entry that was never compensated.
const (
	Pending         State = 0  // the entry was not attempted yet, or no failure was recorded
	Retrying        State = -1 // an attempt failed, and the entry will be attempted again
	Dead            State = -2 // terminal: the entry waits for a person
	Compensating    State = -3 // the attempts are used up; the compensation runs, and its attempts are counted separately
	Succeeded       State = 1  // terminal: the handler succeeded
	Compensated     State = 2  // terminal: the compensation succeeded
	Cancelled       State = 3  // terminal: the work was no longer wanted
	SettledManually State = 4  // terminal: a person did the work
)

// States lists every state, in the order of their numbers.
var States = [...]State{Compensating, Dead, Retrying, Pending, Succeeded, Compensated, Cancelled, SettledManually}

var stateNames = map[State]string{
	Pending: "pending", Retrying: "retrying", Dead: "dead", Compensating: "compensating",
	Succeeded: "succeeded", Compensated: "compensated", Cancelled: "cancelled", SettledManually: "settled by hand",
}

// String returns the word of the state in logs, JSON and the command line.
func (s State) String() string {
	if name, ok := stateNames[s]; ok {
		return name
	}
	return fmt.Sprintf("State(%d)", int8(s))
}

// GoString returns the name of the Go constant, for %#v and for tests that compare values.
func (s State) GoString() string {
	name, ok := stateNames[s]
	if !ok {
		return "compensator." + s.String()
	}
	if s == SettledManually { // The stored word of this state differs from the constant's name.
		return "compensator.SettledManually"
	}
	var constant strings.Builder
	for word := range strings.FieldsSeq(name) {
		constant.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return "compensator." + constant.String()
}

// ParseState parses the result of String for a known state, and nothing else. Its *FieldError lists all states.
func ParseState(text string) (State, error) {
	for _, s := range States {
		if stateNames[s] == text {
			return s, nil
		}
	}
	words := make([]string, len(States))
	for i, s := range States {
		words[i] = s.String()
	}
	return 0, newWordError("state", text, words)
}

// IsSuccess reports whether the state says that the work was done or undone: Succeeded or Compensated.
func (s State) IsSuccess() bool { return s == Succeeded || s == Compensated }

// MarshalText returns the result of String. It returns a *FieldError for a number that is no state.
func (s State) MarshalText() ([]byte, error) {
	_, err := ParseState(s.String())
	return []byte(s.String()), err
}

// UnmarshalText parses text as ParseState does.
func (s *State) UnmarshalText(text []byte) error {
	parsed, err := ParseState(string(text))
	if err == nil {
		*s = parsed
	}
	return err
}

// Terminal reports whether s is terminal: the entry stays in s until a service or a person acts on it.
func (s State) Terminal() bool {
	switch s {
	case Pending, Retrying, Compensating:
		return false
	}
	return true
}

// EndedBy is the cause that moved an entry to its terminal state. It is empty if the state is not terminal.
type EndedBy string

// The causes that move an entry to a terminal state.
const (
	EndedByHandler   EndedBy = "handler"   // the handler or the compensation returned nil
	EndedByComplete  EndedBy = "complete"  // Complete or Once was called: another program did the work
	EndedByCancel    EndedBy = "cancel"    // Cancel was called: the work was no longer wanted
	EndedByPermanent EndedBy = "permanent" // the compensation returned a Permanent error; without a compensation, the handler returned it
	EndedByExhausted EndedBy = "exhausted" // the attempts of the compensation were used up; without a compensation, those of the handler
	EndedByCrash     EndedBy = "crash"     // too many consecutive leases ended without an outcome
	EndedByPerson    EndedBy = "person"    // a person called SettleManually
)

var endedByValues = [...]EndedBy{EndedByHandler, EndedByComplete, EndedByCancel, EndedByPermanent, EndedByExhausted, EndedByCrash, EndedByPerson}

// MarshalText returns the stored word, also one that only a later version knows.
func (by EndedBy) MarshalText() ([]byte, error) { return []byte(by), nil }

// UnmarshalText parses a known word, or an empty text. For any other word it returns a *FieldError.
func (by *EndedBy) UnmarshalText(text []byte) error {
	word := EndedBy(text)
	if word != "" && !slices.Contains(endedByValues[:], word) {
		return newWordError("ended by", string(text), endedByValues[:])
	}
	*by = word
	return nil
}

func newWordError[T ~string](field, text string, words []T) error {
	names := make([]string, len(words))
	for i, word := range words {
		names[i] = string(word)
	}
	return &FieldError{Field: field, Reason: fmt.Sprintf("%q: want one of %s", text, strings.Join(names, ", "))}
}
