package history

// Process names the process that writes the file. Create writes it as the first line of every file.
type Process struct {
	App string `json:"app"` // "app1", "producer", "driver"; the same after each restart
	PID int    `json:"pid"`
	At  int64  `json:"at"` // wall clock, µs
}

// Run holds what the checker must know of the run as a whole. The driver writes it once, before anything else.
type Run struct {
	At       int64             `json:"at"` // wall clock, µs
	Seed     uint64            `json:"seed"`
	Versions map[string]string `json:"versions,omitempty"` // "mariadb" → "10.11.19", "redis", "go", "commit" …

	Types []Type `json:"types"` // every business type that producers record

	GraceMS             int64 `json:"grace_ms"`
	ReconcileIntervalMS int64 `json:"reconcile_interval_ms"`
	PollIntervalMS      int64 `json:"poll_interval_ms"`
	HorizonMS           int64 `json:"horizon_ms"`
	PurgeAgeMS          int64 `json:"purge_age_ms,omitempty"` // the smallest age passed to Purge; 0: no purge, no row may be deleted

	// SettleMS is the time within which an outcome is stored while no fault is on. The lost-success check looks at
	// attempts that ended with more than this left of their lease. 0 means 1,500.
	SettleMS int64 `json:"settle_ms,omitempty"`

	// PutOffMS is the longest delay that the library itself gives an entry after an attempt, when the handler asked for
	// no time. 0 means unknown.
	PutOffMS int64 `json:"put_off_ms,omitempty"`

	MinEntries int `json:"min_entries,omitempty"` // smallest number of committed entries; a run with fewer is vacuous

	FaultKinds  []string          `json:"fault_kinds"`           // kinds of faults that must fire at least once
	Unavailable map[string]string `json:"unavailable,omitempty"` // kind of fault → why this machine cannot make it

	// Excused maps demands that this run cannot meet to the reason, for example that the run is too short. The keys are
	// the checker's names of demands: "unknown commit that happened", "quarantine" …
	Excused map[string]string `json:"excused,omitempty"`
}

// Type is a business type's configuration.
type Type struct {
	Name string `json:"name"`

	// Handler is the kind of handler: HandlerPlain, HandlerTx, HandlerBatch, or HandlerNone for a type that no process
	// registers.
	Handler string `json:"handler"`

	// Compensation is CompensationNone, CompensationPlain or CompensationTx.
	Compensation string `json:"compensation,omitempty"`

	MaxProcessCount    int   `json:"max_process_count,omitempty"`
	MaxCompensateCount int   `json:"max_compensate_count,omitempty"`
	LeaseMS            int64 `json:"lease_ms,omitempty"`
	TimeoutMS          int64 `json:"timeout_ms,omitempty"`
	CompensateCrashed  bool  `json:"compensate_crashed,omitempty"`
}

// The kinds of handlers and compensations.
const (
	HandlerPlain = "plain"
	HandlerTx    = "tx"
	HandlerBatch = "batch"
	HandlerNone  = "none"

	CompensationNone  = ""
	CompensationPlain = "plain"
	CompensationTx    = "tx"
)

// Mark is a turning point of the run.
type Mark struct {
	At   int64  `json:"at"` // wall clock, µs
	What string `json:"what"`
}

// The marks.
const (
	MarkHealed    = "healed"    // every fault is over, every server and every app runs
	MarkStopped   = "stopped"   // producers and people make no more changes
	MarkQuiescent = "quiescent" // nothing is left to do, and the dumps follow; without this mark the run never came to rest
	MarkGaveUp    = "gave up"   // the deadline for coming to rest passed, and the dumps follow
	MarkExit      = "exit"      // last line of an app that ends normally: Run and Close have returned
)

// Clock relates the clocks. The driver writes one every second, and one right after each fault that moves a clock.
// Without any Clock line, the checker takes the clocks as equal.
type Clock struct {
	At       int64  `json:"at"`                  // wall clock before the database is asked, µs
	DBNow    int64  `json:"db_now"`              // the database's clock, µs
	RedisNow int64  `json:"redis_now,omitempty"` // Redis's TIME, µs; 0: unknown
	AuditSeq uint64 `json:"audit_seq,omitempty"` // the greatest visible seq of the audit table
}

// Stall is a time in which the machine was overloaded. The process commits a small change to the database again and
// again, past all proxies. A Stall is written when that takes far too long. A Stall of the driver counts for all apps,
// because its process carries all connections.
type Stall struct {
	At    int64 `json:"at"`    // wall clock of the last commit in time, µs
	Until int64 `json:"until"` // wall clock, µs
}

// Sample is a reading of resources, for soaks. The checker does not judge it.
type Sample struct {
	At     int64              `json:"at"` // wall clock, µs
	App    string             `json:"app"`
	Values map[string]float64 `json:"values"`
}

// Kind implements Record.
func (*Process) Kind() string { return "process" }

// Kind implements Record.
func (*Run) Kind() string { return "run" }

// Kind implements Record.
func (*Mark) Kind() string { return "mark" }

// Kind implements Record.
func (*Clock) Kind() string { return "clock" }

// Kind implements Record.
func (*Stall) Kind() string { return "stall" }

// Kind implements Record.
func (*Sample) Kind() string { return "sample" }
