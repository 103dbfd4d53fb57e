package history

// Fault is written before the fault is made.
type Fault struct {
	At     int64  `json:"at"`
	N      uint64 `json:"n"` // number of the fault in the run, from 1
	Fault  string `json:"fault"`
	Target string `json:"target,omitempty"`
	Params string `json:"params,omitempty"`

	Touches []string `json:"touches"` // parts that the fault may slow, stop or break: constants Touches…
}

// A Fault names in Touches the parts of the system that the fault may disturb. The checker excuses deviations only in
// these parts.
const (
	TouchesApp        = "app"         // The fault stops or kills Target.
	TouchesDatabase   = "database"    // The fault affects the database or the connections of all apps to the database.
	TouchesAppToDB    = "app to db"   // The fault affects the connections of one app, Target, to the database.
	TouchesQueue      = "queue"       // Redis is slow or cannot be reached.
	TouchesQueueData  = "queue data"  // Redis loses data.
	TouchesLocks      = "locks"       // Rows or the table are locked.
	TouchesDBClock    = "db clock"    // The database's clock moves.
	TouchesQueueClock = "queue clock" // Redis's clock moves.
)

// At a FaultEnd, a server that was killed answers again, and an app that was killed has been restarted and has written
// a new Process line.
type FaultEnd struct {
	At  int64  `json:"at"`
	N   uint64 `json:"n"`
	Err string `json:"err,omitempty"` // reason why the fault could not be made. A fault with a reason does not count
}

type Deadlock struct {
	At         int64    `json:"at,omitempty"` // wall clock in µs, as exactly as the log says
	Statements []string `json:"statements"`   // statements of the transactions in the log's order, cut to 300 bytes each
	Victim     int      `json:"victim"`       // index into Statements; -1: unknown
}

const NemesisComment = "/* nemesis */"

func (*Fault) Kind() string { return "fault" }

func (*FaultEnd) Kind() string { return "fault_end" }

func (*Deadlock) Kind() string { return "deadlock" }
