package history

// Fault says that a fault begins. It is written before the fault is made.
type Fault struct {
	At     int64  `json:"at"`               // wall clock, µs
	N      uint64 `json:"n"`                // number of the fault in the run, from 1
	Fault  string `json:"fault"`            // kind of the fault, one of Run.FaultKinds
	Target string `json:"target,omitempty"` // "mariadb", "redis", or an app
	Params string `json:"params,omitempty"` // for human readers

	Touches []string `json:"touches"` // what the fault may slow, stop or break: Touches…
}

// The parts of the system that a fault can touch. The checker uses it to excuse deviations: a claim that looks early
// while the database's clock moves, or a lease lost while apps are stopped.
const (
	TouchesApp        = "app"         // stops or kills Target
	TouchesDatabase   = "database"    // the database, for all apps
	TouchesAppToDB    = "app to db"   // the database, for Target alone
	TouchesQueue      = "queue"       // Redis is slow or unreachable
	TouchesQueueData  = "queue data"  // Redis loses data
	TouchesLocks      = "locks"       // rows or the table are locked
	TouchesDBClock    = "db clock"    // the database's clock moves
	TouchesQueueClock = "queue clock" // Redis's clock moves
)

// FaultEnd says that a fault is over and that its target works again. A killed server answers, or a killed app has
// written its Process line.
type FaultEnd struct {
	At  int64  `json:"at"` // wall clock, µs
	N   uint64 `json:"n"`
	Err string `json:"err,omitempty"` // the fault could not be made and does not count as fired
}

// Deadlock is one deadlock from the database's error log.
type Deadlock struct {
	At         int64    `json:"at,omitempty"` // wall clock, µs, as exactly as the log says
	Statements []string `json:"statements"`   // statements of the transactions, in the log's order; the first 300 bytes of each
	Victim     int      `json:"victim"`       // index into Statements; -1: unknown
}

// NemesisComment stands in every statement of the driver and its faults: UPDATE /* nemesis */ … It distinguishes them
// from the library's statements in a deadlock report.
const NemesisComment = "/* nemesis */"

// Kind implements Record.
func (*Fault) Kind() string { return "fault" }

// Kind implements Record.
func (*FaultEnd) Kind() string { return "fault_end" }

// Kind implements Record.
func (*Deadlock) Kind() string { return "deadlock" }
