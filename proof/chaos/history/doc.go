// Package history defines the history of a chaos run: everything that its processes did and saw, as lines of JSON. Each
// process writes its own file, whose first line is a Process.
//
// A line such as insert, commit or attempt is written before the call. A second line (inserted, committed, attempt_end)
// is written after the call, before the process acts on the answer. If only the first line exists, the outcome of the
// call is unknown.
//
// The field At is the machine's wall clock in µs since 1970. No fault moves that clock. Times from the database use the
// database's own clock, which faults may move. Clock lines relate the two clocks. NextAt and LeaseUntil are in ms, and
// DBNow is in µs.
package history

// Record is one line of the history.
type Record interface {
	Kind() string
}

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
