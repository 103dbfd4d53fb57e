package history

// A trigger writes an Audit in the transaction of the change.
type Audit struct {
	Seq   uint64 `json:"seq"`
	Op    string `json:"op"`
	ID    uint64 `json:"id"`
	Key   string `json:"key"`
	Type  string `json:"type"`
	DBNow int64  `json:"db_now"` // the database's clock when the statement began
	Conn  uint64 `json:"conn"`
	Old   *Image `json:"old,omitempty"` // nil for an insert
	New   *Image `json:"new,omitempty"` // nil for a delete
}

const (
	OpInsert = "insert"
	OpUpdate = "update"
	OpDelete = "delete"
)

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

type Row struct {
	ID    uint64 `json:"id"`
	Key   string `json:"key"`
	Type  string `json:"type"`
	DBNow int64  `json:"db_now"` // the database's clock in µs when the row was read
	Image
}

type Member struct {
	Type  string  `json:"type"`
	ID    uint64  `json:"id"`
	Score float64 `json:"score"` // due time or end of the lease, in ms of Redis's clock
	Now   int64   `json:"now"`   // Redis's clock in µs when the member was read
}

func (*Audit) Kind() string { return "audit" }

func (*Row) Kind() string { return "row" }

func (*Member) Kind() string { return "member" }
