package history

// Fault is a fault that begins, written before it is made.
type Fault struct {
	At     int64  `json:"at"`               // wall µs
	N      uint64 `json:"n"`                // counted from 1 over the run
	Fault  string `json:"fault"`            // its kind, one of Run.FaultKinds
	Target string `json:"target,omitempty"` // "mariadb", "redis", or an app
	Params string `json:"params,omitempty"` // for people

	Touches []string `json:"touches"` // what it may slow, stop or break: Touches…
}

// What a fault touches. The checker excuses by it: an early-looking claim while the database's clock is being
// moved, a lost lease while apps are stopped.
const (
	TouchesApp        = "app"         // stops or kills Target
	TouchesDatabase   = "database"    // for all apps
	TouchesAppToDB    = "app to db"   // the database, for Target alone
	TouchesQueue      = "queue"       // Redis is slow or away
	TouchesQueueData  = "queue data"  // Redis forgets
	TouchesLocks      = "locks"       // rows or the table are held locked
	TouchesDBClock    = "db clock"    // the database's clock moves
	TouchesQueueClock = "queue clock" // Redis's clock moves
)

// FaultEnd is the fault over and what it hit able to work again: a killed server answers, a killed app has
// written its Process line.
type FaultEnd struct {
	At  int64  `json:"at"` // wall µs
	N   uint64 `json:"n"`
	Err string `json:"err,omitempty"` // it could not be made; it does not count as fired
}

// Deadlock is one deadlock from the database's error log.
type Deadlock struct {
	At         int64    `json:"at,omitempty"` // wall µs, as exactly as the log tells
	Statements []string `json:"statements"`   // of the transactions in it, in the log's order; the first 300 bytes of each
	Victim     int      `json:"victim"`       // index into Statements; -1: not known
}

// Statements of the driver and its faults carry this comment, so that a deadlock report tells them from the
// library's: UPDATE /* nemesis */ …
const NemesisComment = "/* nemesis */"

// Kind implements Record.
func (*Fault) Kind() string { return "fault" }

// Kind implements Record.
func (*FaultEnd) Kind() string { return "fault_end" }

// Kind implements Record.
func (*Deadlock) Kind() string { return "deadlock" }
