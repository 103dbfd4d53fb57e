package history

// Insert is one entry about to be recorded. A Record call with many entries writes one line for each, in one
// Write. A key may come more than once in a transaction; answers come in the order of the inserts.
type Insert struct {
	At      int64  `json:"at"`                 // wall µs
	Tx      uint64 `json:"tx"`                 // the caller's transaction, counted in this process from 1
	Key     string `json:"key"`                // idempotency key
	Type    string `json:"type"`               // business type
	Hash    uint64 `json:"hash"`               // of the content, as the library is given it
	DelayMS int64  `json:"delay_ms,omitempty"` // until due
	Max     int    `json:"max,omitempty"`      // max process count of this entry; 0: the type's
	Mode    string `json:"mode,omitempty"`     // how the transaction is handled, for people: "raw", "connector", "intx" …
}

// Inserted is Record's answer for one entry.
type Inserted struct {
	At        int64  `json:"at"` // wall µs
	Tx        uint64 `json:"tx"`
	Key       string `json:"key"`
	ID        uint64 `json:"id,omitempty"` // 0: not known, or an error
	Duplicate bool   `json:"duplicate,omitempty"`
	Err       string `json:"err,omitempty"`    // an Err… class; empty: no error
	Detail    string `json:"detail,omitempty"` // the error's text, for people
}

// Savepoint is a SAVEPOINT that succeeded.
type Savepoint struct {
	At   int64  `json:"at"` // wall µs
	Tx   uint64 `json:"tx"`
	Name string `json:"name"`
}

// SavepointRollback is a ROLLBACK TO SAVEPOINT that succeeded: entries inserted since the savepoint are gone. When
// one fails, the transaction must be rolled back.
type SavepointRollback struct {
	At   int64  `json:"at"` // wall µs
	Tx   uint64 `json:"tx"`
	Name string `json:"name"`
}

// Commit is written before COMMIT is asked for; with InTx, as the closure's last line before it returns nil.
type Commit struct {
	At int64  `json:"at"` // wall µs
	Tx uint64 `json:"tx"`
}

// Committed is COMMIT's answer.
type Committed struct {
	At      int64  `json:"at"` // wall µs
	Tx      uint64 `json:"tx"`
	Outcome string `json:"outcome"` // CommitOK, CommitFail or CommitUnknown
	Err     string `json:"err,omitempty"`
	Detail  string `json:"detail,omitempty"`
}

// Resolved is what the library's Resolve answered about an entry of a transaction whose COMMIT came out unknown.
type Resolved struct {
	At  int64  `json:"at"` // wall µs, of the answer
	Tx  uint64 `json:"tx"`
	Key string `json:"key"`
	ID  uint64 `json:"id,omitempty"`  // of the entry that is there
	Err string `json:"err,omitempty"` // an Err… class; ErrNotFound: it was rolled back
}

// How a COMMIT came out. Only what certainly did not happen is a failure.
const (
	CommitOK      = "ok"
	CommitFail    = "fail"
	CommitUnknown = "unknown"
)

// Rollback is written before a transaction is given up without a COMMIT.
type Rollback struct {
	At int64  `json:"at"` // wall µs
	Tx uint64 `json:"tx"`
}

// Classes of errors.
const (
	ErrDeadlock      = "deadlock"  // 1213, 1020
	ErrLockWait      = "lock wait" // 1205
	ErrNoTransaction = "no transaction"
	ErrTxAborted     = "tx aborted"   // the library's ErrTxAborted with no 1213 or 1205 in it
	ErrNotRecorded   = "not recorded" // the library's ErrNotRecorded
	ErrReadOnly      = "read only"    // 1290, 1792, 1836
	ErrConnection    = "connection"   // refused, cut, silent
	ErrContext       = "context"      // the caller's deadline or cancellation
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
