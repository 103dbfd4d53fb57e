package processlog

import (
	"fmt"
	"slices"
	"strings"
)

// State is the state of an entry. The numbers are stored.
type State int8

// The states of an entry. Only a person moves an entry out of a terminal state. There is one exception: a service may
// complete or cancel a dead entry that was never compensated.
const (
	Pending         State = 0  // not attempted yet, or attempted without a recorded failure
	Retrying        State = -1 // failed at least once, and will be attempted again
	Dead            State = -2 // terminal: waits for a person
	Compensating    State = -3 // attempts used up, and the compensation runs with its own number of attempts
	Succeeded       State = 1  // terminal
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

func (s State) String() string {
	if name, ok := stateNames[s]; ok {
		return name
	}
	return fmt.Sprintf("State(%d)", int8(s))
}

// GoString returns the name of the state in Go. %#v prints it, and so do tests that compare values.
func (s State) GoString() string {
	name, ok := stateNames[s]
	if !ok {
		return "compensator." + s.String()
	}
	if s == SettledManually { // the stored word differs from the constant's name
		return "compensator.SettledManually"
	}
	var constant strings.Builder
	for word := range strings.FieldsSeq(name) {
		constant.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return "compensator." + constant.String()
}

// ParseState parses the result of String for a known state. It accepts no other spelling. Its *FieldError lists all
// states.
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
	return 0, noSuchWord("state", text, words)
}

// MarshalText returns the result of String. It returns a *FieldError for a number that is no state.
func (s State) MarshalText() ([]byte, error) {
	_, err := ParseState(s.String())
	return []byte(s.String()), err
}

// UnmarshalText works as ParseState.
func (s *State) UnmarshalText(text []byte) error {
	parsed, err := ParseState(string(text))
	if err == nil {
		*s = parsed
	}
	return err
}

// Terminal reports whether the entry stays in s until a service or a person acts on it.
func (s State) Terminal() bool {
	switch s {
	case Pending, Retrying, Compensating:
		return false
	}
	return true
}

// EndedBy is the cause that moved an entry to its terminal state. It is empty before that.
type EndedBy string

// The causes that move an entry to a terminal state.
const (
	EndedByHandler   EndedBy = "handler"   // its handler or its compensation returned nil
	EndedByComplete  EndedBy = "complete"  // Complete or Once: the work was done elsewhere
	EndedByCancel    EndedBy = "cancel"    // Cancel: the work was no longer wanted
	EndedByPermanent EndedBy = "permanent" // a Permanent error, of the compensation if there is one
	EndedByExhausted EndedBy = "exhausted" // attempts used up, of the compensation if there is one
	EndedByCrash     EndedBy = "crash"     // too many consecutive leases ended without an outcome
	EndedByPerson    EndedBy = "person"    // SettleManually
)

var allEndedBy = [...]EndedBy{EndedByHandler, EndedByComplete, EndedByCancel, EndedByPermanent, EndedByExhausted, EndedByCrash, EndedByPerson}

// MarshalText returns the stored word. It also accepts the word of a later version.
func (by EndedBy) MarshalText() ([]byte, error) { return []byte(by), nil }

// UnmarshalText parses a known word, or an empty text. Any other word is a *FieldError that lists all of them.
func (by *EndedBy) UnmarshalText(text []byte) error {
	word := EndedBy(text)
	if word != "" && !slices.Contains(allEndedBy[:], word) {
		return noSuchWord("ended by", string(text), allEndedBy[:])
	}
	*by = word
	return nil
}

// noSuchWord refuses a word and lists the known ones.
func noSuchWord[T ~string](field, text string, words []T) error {
	names := make([]string, len(words))
	for i, word := range words {
		names[i] = string(word)
	}
	return &FieldError{Field: field, Reason: fmt.Sprintf("%q: want one of %s", text, strings.Join(names, ", "))}
}
