package history

// Insert says that one entry is about to be recorded. The Inserted lines follow in the order of the Insert lines.
type Insert struct {
	At      int64  `json:"at"`
	Tx      uint64 `json:"tx"` // number of the caller's transaction in this process, from 1
	Key     string `json:"key"`
	Type    string `json:"type"`
	Hash    uint64 `json:"hash"`
	DelayMS int64  `json:"delay_ms,omitempty"`
	Max     int    `json:"max,omitempty"` // largest number of attempts of this entry (0: the one of its type)
	Mode    string `json:"mode,omitempty"`
}

type Inserted struct {
	At        int64  `json:"at"`
	Tx        uint64 `json:"tx"`
	Key       string `json:"key"`
	ID        uint64 `json:"id,omitempty"` // id of the entry (0: unknown, or an error)
	Duplicate bool   `json:"duplicate,omitempty"`
	Err       string `json:"err,omitempty"`
	Detail    string `json:"detail,omitempty"`
}

type Savepoint struct {
	At   int64  `json:"at"`
	Tx   uint64 `json:"tx"`
	Name string `json:"name"`
}

// SavepointRollback says that a ROLLBACK TO SAVEPOINT succeeded. If it fails, the process must roll back the whole
// transaction.
type SavepointRollback struct {
	At   int64  `json:"at"`
	Tx   uint64 `json:"tx"`
	Name string `json:"name"`
}

// Commit is written before a COMMIT. If the caller uses InTx, the function passed to InTx writes the Commit as its last
// step, before it returns nil.
type Commit struct {
	At int64  `json:"at"`
	Tx uint64 `json:"tx"`
}

type Committed struct {
	At      int64  `json:"at"`
	Tx      uint64 `json:"tx"`
	Outcome string `json:"outcome"` // CommitOK, CommitFail or CommitUnknown
	Err     string `json:"err,omitempty"`
	Detail  string `json:"detail,omitempty"`
}

type Resolved struct {
	At  int64  `json:"at"`
	Tx  uint64 `json:"tx"`
	Key string `json:"key"`
	ID  uint64 `json:"id,omitempty"`
	Err string `json:"err,omitempty"` // one of the constants Err…; ErrNotFound means that the entry was rolled back
}

// CommitFail means that the COMMIT certainly had no effect.
const (
	CommitOK      = "ok"
	CommitFail    = "fail"
	CommitUnknown = "unknown"
)

type Rollback struct {
	At int64  `json:"at"`
	Tx uint64 `json:"tx"`
}

const (
	ErrDeadlock      = "deadlock"  // server errors 1213 and 1020
	ErrLockWait      = "lock wait" // server error 1205
	ErrNoTransaction = "no transaction"
	ErrTxAborted     = "tx aborted" // the library's ErrTxAborted that wraps neither 1213 nor 1205
	ErrNotRecorded   = "not recorded"
	ErrReadOnly      = "read only"  // server errors 1290, 1792 and 1836
	ErrConnection    = "connection" // the connection was refused, cut, or silent
	ErrContext       = "context"
	ErrState         = "state"
	ErrNotFound      = "not found"
	ErrBusy          = "busy"
	ErrOther         = "other"
)

func (*Insert) Kind() string { return "insert" }

func (*Inserted) Kind() string { return "inserted" }

func (*Savepoint) Kind() string { return "savepoint" }

func (*SavepointRollback) Kind() string { return "savepoint_rollback" }

func (*Commit) Kind() string { return "commit" }

func (*Committed) Kind() string { return "committed" }

func (*Resolved) Kind() string { return "resolved" }

func (*Rollback) Kind() string { return "rollback" }
