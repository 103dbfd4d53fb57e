// Package history defines the history of a chaos run: everything that its processes did and saw, as lines of JSON.
//
// # Files
//
// A run is a directory. Each process of the run calls Create and writes its own file. It opens the file with O_APPEND
// and makes one write(2) for each call of Write, so that written lines survive a SIGKILL of the process. The first line
// of a file is a Process. Every line belongs to the process of its file. The driver writes a file, too. That file holds
// the Run, the faults and, at the end, the dumps of the tables and the queue.
//
// # Before and after
//
// For a call that may fail there are two lines. One line (insert, commit, attempt …) is written before the call. If it
// is missing, the call was never made. A second line (inserted, committed, attempt_end …) is written after the call,
// before the process acts on the answer. If only the first line exists, the outcome of the call is unknown.
//
// # Clocks
//
// The field At is the machine's wall clock in µs since 1970, read when the line is made. All processes of a run share
// that clock, and no fault moves it. Times from the database use the database's own clock, which faults may move.
// NextAt and LeaseUntil are in ms, as the columns hold them, and DBNow is in µs. Clock lines relate the two clocks.
package history

// Record is one line of the history. Each implementation is a struct whose fields are named after the JSON keys. Fields
// with a zero value are left out of the line.
type Record interface {
	// Kind is the value of the line's first field, "kind".
	Kind() string
}

// kinds holds a constructor for each kind. Decode fills the record that the constructor returns.
var kinds = map[string]func() Record{
	"process":            func() Record { return new(Process) },
	"run":                func() Record { return new(Run) },
	"insert":             func() Record { return new(Insert) },
	"inserted":           func() Record { return new(Inserted) },
	"savepoint":          func() Record { return new(Savepoint) },
	"savepoint_rollback": func() Record { return new(SavepointRollback) },
	"commit":             func() Record { return new(Commit) },
	"committed":          func() Record { return new(Committed) },
	"resolved":           func() Record { return new(Resolved) },
	"rollback":           func() Record { return new(Rollback) },
	"attempt":            func() Record { return new(Attempt) },
	"attempt_end":        func() Record { return new(AttemptEnd) },
	"effect":             func() Record { return new(Effect) },
	"action":             func() Record { return new(Action) },
	"action_end":         func() Record { return new(ActionEnd) },
	"event":              func() Record { return new(Event) },
	"fault":              func() Record { return new(Fault) },
	"fault_end":          func() Record { return new(FaultEnd) },
	"mark":               func() Record { return new(Mark) },
	"clock":              func() Record { return new(Clock) },
	"audit":              func() Record { return new(Audit) },
	"effect_row":         func() Record { return new(EffectRow) },
	"result_row":         func() Record { return new(ResultRow) },
	"waited":             func() Record { return new(Waited) },
	"row":                func() Record { return new(Row) },
	"member":             func() Record { return new(Member) },
	"deadlock":           func() Record { return new(Deadlock) },
	"stall":              func() Record { return new(Stall) },
	"sample":             func() Record { return new(Sample) },
}
