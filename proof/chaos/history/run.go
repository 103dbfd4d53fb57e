package history

// Create writes a Process as the first line of every file.
type Process struct {
	App string `json:"app"`
	PID int    `json:"pid"`
	At  int64  `json:"at"`
}

// The driver writes one Run, before anything else.
type Run struct {
	At       int64             `json:"at"`
	Seed     uint64            `json:"seed"`
	Versions map[string]string `json:"versions,omitempty"` // versions by name: "mariadb" → "10.11.19", "redis", "go", "commit" …

	Types []Type `json:"types"`

	GraceMS             int64 `json:"grace_ms"`
	ReconcileIntervalMS int64 `json:"reconcile_interval_ms"`
	PollIntervalMS      int64 `json:"poll_interval_ms"`
	HorizonMS           int64 `json:"horizon_ms"`
	PurgeAgeMS          int64 `json:"purge_age_ms,omitempty"` // smallest age passed to Purge (0: no purge, so no row may be deleted)

	// SettleMS is the time within which an outcome is stored if there is no fault. checkLostSuccess looks at attempts
	// that ended more than this time before the end of their lease. 0 means 1,500.
	SettleMS int64 `json:"settle_ms,omitempty"`

	// PutOffMS is the longest delay that the library chooses after an attempt whose handler named no delay. 0 means
	// unknown.
	PutOffMS int64 `json:"put_off_ms,omitempty"`

	MinEntries int `json:"min_entries,omitempty"` // smallest number of committed entries; a run with fewer is vacuous

	FaultKinds  []string          `json:"fault_kinds"`           // kinds of faults that must fire at least once
	Unavailable map[string]string `json:"unavailable,omitempty"` // reason why this machine cannot make a fault, by kind of fault

	// Excused names events that the checker must not demand of this run, for example because the run is too short. The
	// values are the reasons.
	Excused map[string]string `json:"excused,omitempty"`
}

type Type struct {
	Name string `json:"name"`

	Handler string `json:"handler"`

	Compensation string `json:"compensation,omitempty"`

	MaxAttempts           int   `json:"max_process_count,omitempty"`
	MaxCompensateAttempts int   `json:"max_compensate_count,omitempty"`
	LeaseMS               int64 `json:"lease_ms,omitempty"`
	TimeoutMS             int64 `json:"timeout_ms,omitempty"`
	CompensateCrashed     bool  `json:"compensate_crashed,omitempty"`
	Returns               bool  `json:"returns,omitempty"`
}

const (
	HandlerPlain = "plain"
	HandlerTx    = "tx"
	HandlerBatch = "batch"
	HandlerNone  = "none"

	CompensationNone  = ""
	CompensationPlain = "plain"
	CompensationTx    = "tx"
)

type Mark struct {
	At   int64  `json:"at"`
	What string `json:"what"`
}

const (
	MarkHealed    = "healed"    // Every fault is over. Every server and every app runs.
	MarkStopped   = "stopped"   // Producers and people make no more changes.
	MarkQuiescent = "quiescent" // Nothing is left to do, and the dumps follow. Without this mark the run never came to its end.
	MarkGaveUp    = "gave up"   // Entries were still open at the deadline. The dumps follow.
	MarkExit      = "exit"
)

// The driver writes a Clock every second, and one right after each fault that moves a clock. If a run has none, the
// checker assumes that the clocks are equal.
type Clock struct {
	At       int64  `json:"at"`                  // wall clock in µs, read before the database's clock
	DBNow    int64  `json:"db_now"`              // the database's clock in µs
	RedisNow int64  `json:"redis_now,omitempty"` // Redis's TIME in µs (0: unknown)
	AuditSeq uint64 `json:"audit_seq,omitempty"` // greatest seq of the audit table that is visible
}

// Stall is a time in which a commit to the database, without a proxy, took far too long. A Stall of the driver counts
// for all apps, because the driver's process carries all connections.
type Stall struct {
	At    int64 `json:"at"`    // wall clock in µs of the last commit in time
	Until int64 `json:"until"` // end of the stall: wall clock in µs
}

// Sample is a reading of resource usage. The checker does not judge it.
type Sample struct {
	At     int64              `json:"at"`
	App    string             `json:"app"`
	Values map[string]float64 `json:"values"`
}

func (*Process) Kind() string { return "process" }

func (*Run) Kind() string { return "run" }

func (*Mark) Kind() string { return "mark" }

func (*Clock) Kind() string { return "clock" }

func (*Stall) Kind() string { return "stall" }

func (*Sample) Kind() string { return "sample" }
