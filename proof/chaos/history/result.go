package history

// Result is a handler's result. Its fields identify the attempt that returned it.
type Result struct {
	ID      uint64 `json:"id"` // id of the entry
	Version uint64 `json:"version,omitempty"`
}

// ResultRow is a row of the table of results at the end of the run.
type ResultRow struct {
	ID     uint64 `json:"id"` // id of the entry
	Epoch  uint32 `json:"epoch,omitempty"`
	Result Result `json:"result"`
}

// Waited is an answer of the library's Wait. It is written only if the answer names an entry.
type Waited struct {
	At      int64   `json:"at"`    // wall clock, µs
	Asked   string  `json:"asked"` // idempotency key that the caller waited for
	ID      uint64  `json:"id"`    // id of the entry in the answer
	Key     string  `json:"key"`
	Version uint64  `json:"version"`
	Epoch   uint32  `json:"epoch,omitempty"`
	State   int8    `json:"state"`
	Result  *Result `json:"result,omitempty"` // nil: the answer has no result
	Err     string  `json:"err,omitempty"`    // one of the constants Err… (empty: the entry has succeeded)
	Detail  string  `json:"detail,omitempty"` // text of the error, for human readers
}

// Kind implements Record.
func (*ResultRow) Kind() string { return "result_row" }

// Kind implements Record.
func (*Waited) Kind() string { return "waited" }
