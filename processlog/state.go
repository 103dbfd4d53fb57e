package processlog

import (
	"fmt"
	"slices"
	"strings"
)

// State is where an entry stands. The numbers are stored.
type State int8

// The states of an entry. Only a person leaves a terminal one, but for a dead one that was never compensated: a service
// may still complete or cancel that.
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

// GoString is the state's name in Go, which %#v writes, and with it what compares values in tests.
func (s State) GoString() string {
	name, ok := stateNames[s]
	if !ok {
		return "compensator." + s.String()
	}
	var constant strings.Builder
	for word := range strings.FieldsSeq(name) {
		constant.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return "compensator." + constant.String()
}

// ParseState reads what String writes of a known state, and no other spelling of it. A *FieldError names them all.
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

// MarshalText writes the state as String does. A number that is no state is a *FieldError.
func (s State) MarshalText() ([]byte, error) {
	_, err := ParseState(s.String())
	return []byte(s.String()), err
}

// UnmarshalText is ParseState.
func (s *State) UnmarshalText(text []byte) error {
	parsed, err := ParseState(string(text))
	if err == nil {
		*s = parsed
	}
	return err
}

// Terminal reports whether an entry stays in s for good unless it is acted on: nothing runs any more.
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
	EndedByComplete  EndedBy = "complete"  // Complete, Once: somebody else did the work
	EndedByCancel    EndedBy = "cancel"    // Cancel: the work was no longer wanted
	EndedByPermanent EndedBy = "permanent" // a Permanent error, of the compensation where there is one
	EndedByExhausted EndedBy = "exhausted" // attempts used up, of the compensation where there is one
	EndedByCrash     EndedBy = "crash"     // too many leases in a row ended with no outcome
	EndedByPerson    EndedBy = "person"    // SettleByHand
)

var allEndedBy = [...]EndedBy{EndedByHandler, EndedByComplete, EndedByCancel, EndedByPermanent, EndedByExhausted, EndedByCrash, EndedByPerson}

// MarshalText writes the word as it is stored, also one of a later version's.
func (by EndedBy) MarshalText() ([]byte, error) { return []byte(by), nil }

// UnmarshalText takes a known word, or none. Any other is a *FieldError that names them all.
func (by *EndedBy) UnmarshalText(text []byte) error {
	word := EndedBy(text)
	if word != "" && !slices.Contains(allEndedBy[:], word) {
		return noSuchWord("ended by", string(text), allEndedBy[:])
	}
	*by = word
	return nil
}

// noSuchWord refuses a word and names what there is.
func noSuchWord[T ~string](field, text string, words []T) error {
	names := make([]string, len(words))
	for i, word := range words {
		names[i] = string(word)
	}
	return &FieldError{Field: field, Reason: fmt.Sprintf("%q: want one of %s", text, strings.Join(names, ", "))}
}
