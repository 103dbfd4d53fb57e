package processlog

import "time"

// Backlog counts the entries of a type that have not ended, and its dead entries.
type Backlog struct {
	BusinessType string `json:"type"`         // business type of the entries
	Pending      int    `json:"pending"`      // entries in state Pending
	Retrying     int    `json:"retrying"`     // entries in state Retrying
	Compensating int    `json:"compensating"` // entries in state Compensating
	Dead         int    `json:"dead"`         // entries in state Dead
	Due          int    `json:"due"`          // entries that are not dead and whose due time has come, with those that run now
	Overdue      int    `json:"overdue"`      // entries in Due that have been due for longer than OverdueAfter
}

// BacklogStates are the states that a Backlog counts.
var BacklogStates = [...]State{Pending, Retrying, Compensating, Dead}

// OverdueAfter is the time after which a due entry counts as overdue in a Backlog.
const OverdueAfter = time.Minute

// Of returns the number of entries in one of BacklogStates, and 0 for any other state.
func (b Backlog) Of(state State) int {
	switch state {
	case Pending:
		return b.Pending
	case Retrying:
		return b.Retrying
	case Compensating:
		return b.Compensating
	case Dead:
		return b.Dead
	}
	return 0
}

// Add adds the entries of a slice to the backlog of their type.
func (b *Backlog) Add(state State, s BacklogSlice) {
	switch state {
	case Pending:
		b.Pending += s.N
	case Retrying:
		b.Retrying += s.N
	case Compensating:
		b.Compensating += s.N
	case Dead:
		b.Dead += s.N
		return
	}
	b.Due += s.Due
	b.Overdue += s.Overdue
}

// BacklogRange selects what CountBacklog counts: the entries of one type and state after a position.
type BacklogRange struct {
	BusinessType string    // business type of the entries
	State        State     // state of the entries
	After        Scheduled // zero, or BacklogSlice.Last of the previous slice. CountBacklog uses its NextAt and ID
}

// BacklogSlice counts the first entries of a BacklogRange, in the order of their due times and ids.
type BacklogSlice struct {
	N       int       // number of entries, at most the limit of the call
	Due     int       // entries whose due time has come
	Overdue int       // entries in Due that have been due for longer than OverdueAfter
	Last    Scheduled // the last counted entry if N is the limit; zero if the range has no further entries
}

// BacklogReading is the backlog that WriteBacklog stored last.
type BacklogReading struct {
	Types []Backlog     // types with entries, sorted by name
	Age   time.Duration // time since the planned start of the round that counted Types
	Known bool          // whether a backlog is stored
}

// MaxBacklogRanges is the maximum number of ranges of one call of CountBacklog.
const MaxBacklogRanges = 100
