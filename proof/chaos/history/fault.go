package history

// Fault says that a fault begins. It is written before the fault is made.
type Fault struct {
	At     int64  `json:"at"`               // wall clock, µs
	N      uint64 `json:"n"`                // number of the fault in the run, from 1
	Fault  string `json:"fault"`            // kind of the fault, one of Run.FaultKinds
	Target string `json:"target,omitempty"` // "mariadb", "redis", or an app
	Params string `json:"params,omitempty"` // details for human readers

	Touches []string `json:"touches"` // parts that the fault may slow, stop or break: constants Touches…
}

// These are the parts of the system that a fault can touch. The checker uses them to excuse deviations. For example, a
// claim may look early if the database's clock moves, and a lease may be lost if apps are stopped.
const (
	TouchesApp        = "app"         // The fault stops or kills Target.
	TouchesDatabase   = "database"    // The fault affects the database, for all apps.
	TouchesAppToDB    = "app to db"   // The fault affects the database, for Target only.
	TouchesQueue      = "queue"       // Redis is slow or cannot be reached.
	TouchesQueueData  = "queue data"  // Redis loses data.
	TouchesLocks      = "locks"       // Rows or the table are locked.
	TouchesDBClock    = "db clock"    // The database's clock moves.
	TouchesQueueClock = "queue clock" // Redis's clock moves.
)

// FaultEnd says that a fault is over and that its target works again. A server that was killed answers again. An app
// that was killed has been restarted and has written a new Process line.
type FaultEnd struct {
	At  int64  `json:"at"` // wall clock, µs
	N   uint64 `json:"n"`
	Err string `json:"err,omitempty"` // reason why the fault could not be made. A fault with a reason does not count
}

// Deadlock is one deadlock from the database's error log.
type Deadlock struct {
	At         int64    `json:"at,omitempty"` // wall clock in µs, as exactly as the log says
	Statements []string `json:"statements"`   // statements of the transactions in the log's order, cut to 300 bytes each
	Victim     int      `json:"victim"`       // index into Statements; -1: unknown
}

// NemesisComment is in every statement of the driver and of its faults, for example UPDATE /* nemesis */ … It
// distinguishes these statements from the library's in a deadlock report.
const NemesisComment = "/* nemesis */"

// Kind implements Record.
func (*Fault) Kind() string { return "fault" }

// Kind implements Record.
func (*FaultEnd) Kind() string { return "fault_end" }

// Kind implements Record.
func (*Deadlock) Kind() string { return "deadlock" }
