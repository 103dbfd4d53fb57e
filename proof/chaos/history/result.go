package history

type Result struct {
	ID      uint64 `json:"id"`
	Version uint64 `json:"version,omitempty"`
}

type ResultRow struct {
	ID     uint64 `json:"id"`
	Epoch  uint32 `json:"epoch,omitempty"`
	Result Result `json:"result"`
}

// Waited is the answer to a call that waited for the result of an entry. An answer without an entry is not written.
type Waited struct {
	At      int64   `json:"at"`
	Asked   string  `json:"asked"` // idempotency key that the caller waited for
	ID      uint64  `json:"id"`
	Key     string  `json:"key"`
	Version uint64  `json:"version"`
	Epoch   uint32  `json:"epoch,omitempty"`
	State   int8    `json:"state"`
	Result  *Result `json:"result,omitempty"` // nil: the answer has no result
	Err     string  `json:"err,omitempty"`
	Detail  string  `json:"detail,omitempty"`
}

func (*ResultRow) Kind() string { return "result_row" }

func (*Waited) Kind() string { return "waited" }
