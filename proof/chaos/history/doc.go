// Package history is what a chaos run leaves behind: everything its processes did and saw, as lines of JSON.
//
// # Files
//
// A run is a directory. Each process that takes part writes one file of its own (Create), by O_APPEND and one
// write(2) a call, so that what was written survives the SIGKILL of its writer. The first line of a file is a
// Process; the process of a line is the file's. The driver writes a file, too: the Run, the faults, and at the
// end the dumps of tables and queue.
//
// # Before and after
//
// What may fail is written twice. The line before (insert, commit, attempt …) is written before the call: what
// has no such line was never asked for. The line after (inserted, committed, attempt_end …) is written before
// anything is made of the answer. A line before with none after it is an unknown outcome.
//
// # Clocks
//
// At is the machine's wall clock in µs since 1970, read as the line is made; all processes of a run share that
// clock, and no fault touches it. Instants of the database are by its own clock, which faults may move: NextAt
// and LeaseUntil in ms as the columns hold them, DBNow in µs. Clock lines tie the two together.
package history

// A Record is one line. Its fields' names are the JSON's; zero values are left out.
type Record interface {
	// Kind is the value of the line's first field, "kind".
	Kind() string
}

// kinds makes an empty record of each kind, to decode into.
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
	"row":                func() Record { return new(Row) },
	"member":             func() Record { return new(Member) },
	"deadlock":           func() Record { return new(Deadlock) },
	"stall":              func() Record { return new(Stall) },
	"sample":             func() Record { return new(Sample) },
}
