package processlog

import "time"

// Filter selects entries for List. Give at most one of BatchID, BusinessID and BusinessExtID; the other
// fields narrow further. Every filter is served by an index.
type Filter struct {
	States        []State // any, when empty
	BusinessType  string
	BatchID       string
	BusinessID    string
	BusinessExtID string
	CreatedFrom   time.Time // inclusive
	CreatedTo     time.Time // exclusive
	Newest        bool      // newest first instead of oldest first
	Limit         int       // 0: 50; at most 1,000
	Cursor        string    // Page.Next of the page before
}

// Page is one page of a listing.
type Page struct {
	Rows []Row
	Next string // the cursor of the following page; empty at the end
}

// CountFilter selects what Count counts. The cost does not grow with the table: each group is counted only up to AtMost.
type CountFilter struct {
	BatchID      string // one batch; any when empty
	BusinessType string
	AtMost       int // stop counting a group there; 0: 10,000
}

// Count is the number of entries of one state and type.
type Count struct {
	BusinessType string
	State        State
	N            int
	More         bool // there are more than N; counting stopped at CountFilter.AtMost
}

// AuditRecord is one action of a person.
type AuditRecord struct {
	EntryID ID            `json:"entry_id"`
	At      time.Time     `json:"at"` // UTC, milliseconds
	Ago     time.Duration `json:"-"`  // At less the database's now
	Action  Action        `json:"action"`
	Actor   string        `json:"actor"`
	Reason  string        `json:"reason"`
	Before  AuditState    `json:"before"`
	After   AuditState    `json:"after"`
}

// AuditState is what an AuditRecord keeps of an entry.
type AuditState struct {
	State        State  `json:"state"`
	Version      uint64 `json:"version,string"`
	Epoch        uint32 `json:"epoch"`
	ProcessCount int    `json:"process_count"`
	LastError    string `json:"last_error,omitempty"`
}
