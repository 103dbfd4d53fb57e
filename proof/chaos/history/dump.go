package history

// Audit is one change of a row of the process log. A trigger writes it in the transaction of the change. The driver
// dumps the audit in the order of Seq.
type Audit struct {
	Seq   uint64 `json:"seq"`
	Op    string `json:"op"` // OpInsert, OpUpdate or OpDelete
	ID    uint64 `json:"id"`
	Key   string `json:"key"`           // idempotency key
	Type  string `json:"type"`          // business type
	DBNow int64  `json:"db_now"`        // the database's clock in µs when the statement began
	Conn  uint64 `json:"conn"`          // CONNECTION_ID() of the session
	Old   *Image `json:"old,omitempty"` // nil for an insert
	New   *Image `json:"new,omitempty"` // nil for a delete
}

// These are the operations.
const (
	OpInsert = "insert"
	OpUpdate = "update"
	OpDelete = "delete"
)

// Image holds the columns of a row that the library changes.
type Image struct {
	State           int8   `json:"s"`
	Version         uint64 `json:"v"`
	Epoch           uint32 `json:"e,omitempty"`
	Token           string `json:"t,omitempty"` // hexadecimal
	ProcessCount    int    `json:"pc,omitempty"`
	CompensateCount int    `json:"cc,omitempty"`
	DeliveryCount   int    `json:"dc,omitempty"`
	NextAt          int64  `json:"na"`           // in ms of the database's clock
	LeaseUntil      int64  `json:"lu,omitempty"` // in ms of the database's clock
	EndedBy         string `json:"by,omitempty"`
}

// Row is a row of the process log at the end of the run.
type Row struct {
	ID    uint64 `json:"id"`
	Key   string `json:"key"`
	Type  string `json:"type"`
	DBNow int64  `json:"db_now"` // the database's clock in µs when the row was read
	Image
}

// Member is a member of the queue at the end of the run.
type Member struct {
	Type  string  `json:"type"` // business type
	ID    uint64  `json:"id"`
	Score float64 `json:"score"` // due time or end of the lease, in ms of Redis's clock
	Now   int64   `json:"now"`   // Redis's clock in µs when the member was read
}

// Kind implements Record.
func (*Audit) Kind() string { return "audit" }

// Kind implements Record.
func (*Row) Kind() string { return "row" }

// Kind implements Record.
func (*Member) Kind() string { return "member" }
