package history

// Process is the first line of every file: who writes it. Create writes it.
type Process struct {
	App string `json:"app"` // "app1", "producer", "driver"; the same for each incarnation
	PID int    `json:"pid"`
	At  int64  `json:"at"` // wall µs
}

// Run is what the checker must know of the run as a whole. The driver writes it once, before anything else.
type Run struct {
	At       int64             `json:"at"` // wall µs
	Seed     uint64            `json:"seed"`
	Versions map[string]string `json:"versions,omitempty"` // "mariadb" → "10.11.19", "redis", "go", "commit" …

	Types []Type `json:"types"` // every business type that producers record

	GraceMS             int64 `json:"grace_ms"`
	ReconcileIntervalMS int64 `json:"reconcile_interval_ms"`
	PollIntervalMS      int64 `json:"poll_interval_ms"`
	HorizonMS           int64 `json:"horizon_ms"`
	PurgeAgeMS          int64 `json:"purge_age_ms,omitempty"` // the youngest age ever given to Purge; 0: no purge, no row may go

	// SettleMS is how long an outcome may take to be stored while no fault is on. The lost-success check looks
	// at attempts that ended with more than this left of their lease. 0: 1,500.
	SettleMS int64 `json:"settle_ms,omitempty"`

	// PutOffMS is the longest that the library puts an entry off after an attempt that named no time itself. 0: not
	// known.
	PutOffMS int64 `json:"put_off_ms,omitempty"`

	MinEntries int `json:"min_entries,omitempty"` // fewer committed entries make the run vacuous

	FaultKinds  []string          `json:"fault_kinds"`           // kinds that must fire at least once
	Unavailable map[string]string `json:"unavailable,omitempty"` // kind → why this machine cannot do it

	// Excused names vacuity demands that this run cannot meet, and why: of a run too short, say. The names are
	// the checker's: "unknown commit that happened", "quarantine" …
	Excused map[string]string `json:"excused,omitempty"`
}

// Type is a business type's configuration.
type Type struct {
	Name string `json:"name"`

	// Handler is how it runs: HandlerPlain, HandlerTx, HandlerBatch, or HandlerNone for a type that no process
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

// How a type runs, and how it is undone.
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
	At   int64  `json:"at"` // wall µs
	What string `json:"what"`
}

// The marks.
const (
	MarkHealed    = "healed"    // every fault is over, every server is back, every app runs
	MarkStopped   = "stopped"   // producers and people record nothing more
	MarkQuiescent = "quiescent" // nothing was left to do; the dumps come next. Without it the run never came to rest
	MarkGaveUp    = "gave up"   // the deadline for coming to rest passed; the dumps come next
	MarkExit      = "exit"      // written by an app that ends in order, as its last line: Run and Close have returned
)

// Clock ties the clocks together. The driver writes one a second, and one right after each fault that moves a
// clock. Without any, the clocks count as equal.
type Clock struct {
	At       int64  `json:"at"`                  // wall µs, read before the database is asked
	DBNow    int64  `json:"db_now"`              // the database's clock, µs
	RedisNow int64  `json:"redis_now,omitempty"` // Redis's TIME, µs; 0: not known
	AuditSeq uint64 `json:"audit_seq,omitempty"` // the greatest seq of the audit table that is visible now
}

// Stall is a time in which the machine had too much to do: a small change that the process commits to the database
// again and again, past all proxies, took far too long. The driver, whose process carries everybody's connections,
// writes those of all.
type Stall struct {
	At    int64 `json:"at"`    // wall µs: the last time all was well
	Until int64 `json:"until"` // wall µs
}

// Sample is a reading of resources, for soaks. Nothing is judged by it here.
type Sample struct {
	At     int64              `json:"at"` // wall µs
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
