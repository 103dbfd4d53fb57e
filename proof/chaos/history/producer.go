package history

// Insert says that one entry is about to be recorded. A Record call with many entries writes one line for each entry,
// all in one Write. A key may occur more than once in a transaction. The Inserted lines follow in the order of the
// Insert lines.
type Insert struct {
	At      int64  `json:"at"`                 // wall clock, µs
	Tx      uint64 `json:"tx"`                 // number of the caller's transaction in this process, from 1
	Key     string `json:"key"`                // idempotency key
	Type    string `json:"type"`               // business type
	Hash    uint64 `json:"hash"`               // hash of the content passed to the library
	DelayMS int64  `json:"delay_ms,omitempty"` // delay until the entry is due
	Max     int    `json:"max,omitempty"`      // largest number of attempts of this entry (0: the one of its type)
	Mode    string `json:"mode,omitempty"`     // how the transaction is committed, for human readers: "raw", "connector", "intx" …
}

// Inserted is the answer of the library's Record for one entry.
type Inserted struct {
	At        int64  `json:"at"` // wall clock in µs
	Tx        uint64 `json:"tx"`
	Key       string `json:"key"`
	ID        uint64 `json:"id,omitempty"` // id of the entry (0: unknown, or an error)
	Duplicate bool   `json:"duplicate,omitempty"`
	Err       string `json:"err,omitempty"`    // one of the constants Err… (empty: no error)
	Detail    string `json:"detail,omitempty"` // text of the error, for human readers
}

// Savepoint says that a SAVEPOINT succeeded.
type Savepoint struct {
	At   int64  `json:"at"` // wall clock, µs
	Tx   uint64 `json:"tx"`
	Name string `json:"name"`
}

// SavepointRollback says that a ROLLBACK TO SAVEPOINT succeeded. Entries inserted since the savepoint are gone. If a
// ROLLBACK TO SAVEPOINT fails, the process must roll back the whole transaction.
type SavepointRollback struct {
	At   int64  `json:"at"` // wall clock, µs
	Tx   uint64 `json:"tx"`
	Name string `json:"name"`
}

// Commit is written before a COMMIT. If the caller uses InTx, the function passed to InTx writes the Commit as its last
// step, before it returns nil.
type Commit struct {
	At int64  `json:"at"` // wall clock, µs
	Tx uint64 `json:"tx"`
}

// Committed is the answer to a COMMIT.
type Committed struct {
	At      int64  `json:"at"` // wall clock, µs
	Tx      uint64 `json:"tx"`
	Outcome string `json:"outcome"` // CommitOK, CommitFail or CommitUnknown
	Err     string `json:"err,omitempty"`
	Detail  string `json:"detail,omitempty"`
}

// Resolved is the answer of the library's Resolve about an entry whose COMMIT had an unknown outcome.
type Resolved struct {
	At  int64  `json:"at"` // wall clock when the answer came, µs
	Tx  uint64 `json:"tx"`
	Key string `json:"key"`
	ID  uint64 `json:"id,omitempty"`  // id of the entry that Resolve found
	Err string `json:"err,omitempty"` // one of the constants Err…; ErrNotFound means that the entry was rolled back
}

// These are the outcomes of a COMMIT. CommitFail means that the COMMIT certainly had no effect.
const (
	CommitOK      = "ok"
	CommitFail    = "fail"
	CommitUnknown = "unknown"
)

// Rollback is written before a transaction is rolled back without a COMMIT.
type Rollback struct {
	At int64  `json:"at"` // wall clock, µs
	Tx uint64 `json:"tx"`
}

const (
	ErrDeadlock      = "deadlock"  // server errors 1213 and 1020
	ErrLockWait      = "lock wait" // server error 1205
	ErrNoTransaction = "no transaction"
	ErrTxAborted     = "tx aborted"   // the library's ErrTxAborted that wraps neither 1213 nor 1205
	ErrNotRecorded   = "not recorded" // the library's ErrNotRecorded
	ErrReadOnly      = "read only"    // server errors 1290, 1792 and 1836
	ErrConnection    = "connection"   // the connection was refused, cut, or silent
	ErrContext       = "context"      // the caller's deadline ended, or the caller cancelled
	ErrState         = "state"        // the library's *StateError
	ErrNotFound      = "not found"
	ErrBusy          = "busy"
	ErrOther         = "other"
)

// Kind implements Record.
func (*Insert) Kind() string { return "insert" }

// Kind implements Record.
func (*Inserted) Kind() string { return "inserted" }

// Kind implements Record.
func (*Savepoint) Kind() string { return "savepoint" }

// Kind implements Record.
func (*SavepointRollback) Kind() string { return "savepoint_rollback" }

// Kind implements Record.
func (*Commit) Kind() string { return "commit" }

// Kind implements Record.
func (*Committed) Kind() string { return "committed" }

// Kind implements Record.
func (*Resolved) Kind() string { return "resolved" }

// Kind implements Record.
func (*Rollback) Kind() string { return "rollback" }
