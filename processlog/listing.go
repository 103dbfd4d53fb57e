package processlog

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Filter selects entries for List. Give at most one of BatchID, BusinessID and BusinessExtID; the other fields narrow
// further. What a listing reads first is served by an index: an id, else a created range, else states and types. Each row
// found so is looked at for the rest, MaxRead of them a page at most: such a page may be short, or empty, and not the last.
// MySQL and MariaDB ignore spaces at the end of ids.
type Filter struct {
	States        []State // any, when empty
	BusinessType  string
	BusinessTypes []string // nil: any; empty: none. By an id or a created range, rows of others are passed over, however many: bound ctx
	BatchID       string
	BusinessID    string
	BusinessExtID string
	CreatedFrom   time.Time // inclusive
	CreatedTo     time.Time // exclusive

	// These need one state of one type, or an id, or a created range.
	LastError string // a part of the last error, letter by letter
	EndedBy   EndedBy
	UserID    string

	Outline bool   // without contents, which are not read then
	Newest  bool   // newest first instead of oldest first
	Limit   int    // 0: 50; at most 1,000
	MaxRead int    // how many rows a page may look at. 0: 10,000; at most 100,000
	Cursor  string // Page.Next of the page before
}

// DefaultRead is Filter.MaxRead where none is given.
const DefaultRead = 10_000

const mostRead = 100_000

// Narrowed reports whether rows that an index gives are looked at one by one, for what it does not know. What would
// look at the whole table is refused, and what no row can hold, with a *FieldError.
func (f Filter) Narrowed() (bool, error) {
	id, created := f.BatchID+f.BusinessID+f.BusinessExtID != "", !f.CreatedFrom.IsZero() || !f.CreatedTo.IsZero()
	group, narrows := len(f.States) > 0 || f.BusinessType != "", f.LastError != "" || f.EndedBy != "" || f.UserID != ""
	one := f.BusinessType != "" && len(f.States) > 0 && !slices.ContainsFunc(f.States, func(s State) bool { return s != f.States[0] })
	switch {
	case f.MaxRead < 0 || f.MaxRead > mostRead:
		return false, &FieldError{Field: "MaxRead", Reason: fmt.Sprintf("%d: want 1 to %d, or 0 for %d", f.MaxRead, mostRead, DefaultRead)}
	case !utf8.ValidString(f.LastError + string(f.EndedBy) + f.UserID + strings.Join(f.BusinessTypes, "")):
		return false, &FieldError{Field: "filter", Reason: "is not valid UTF-8"}
	case f.EndedBy.UnmarshalText([]byte(f.EndedBy)) != nil:
		return false, f.EndedBy.UnmarshalText([]byte(f.EndedBy))
	case narrows && !id && !created && !one:
		return false, &FieldError{Field: "filter", Reason: "LastError, EndedBy and UserID want one state and one type, an id, or a created range"}
	}
	return narrows || id && (created || group) || created && group, nil
}

// Admits reports whether a row is what f asks for.
func (f Filter) Admits(r *Row) bool {
	return (len(f.States) == 0 || slices.Contains(f.States, r.State)) &&
		(f.BusinessTypes == nil || slices.Contains(f.BusinessTypes, r.BusinessType)) &&
		anyOr(f.BusinessType, r.BusinessType) && anyOr(f.BatchID, r.BatchID) &&
		anyOr(f.BusinessID, r.BusinessID) && anyOr(f.BusinessExtID, r.BusinessExtID) &&
		(f.CreatedFrom.IsZero() || !r.CreatedAt.Before(f.CreatedFrom)) &&
		(f.CreatedTo.IsZero() || r.CreatedAt.Before(f.CreatedTo)) &&
		strings.Contains(r.LastError, f.LastError) && anyOr(f.EndedBy, r.EndedBy) && anyOr(f.UserID, r.UserID)
}

// anyOr reports whether want, when it is given, is got.
func anyOr[T ~string](want, got T) bool { return want == "" || want == got }

// Page is one page of a listing.
type Page struct {
	Rows []Row
	Next string // the cursor of the following page; empty at the end
	Read int    // how many rows were looked at; at least those of the page
}

// CountFilter selects what Count counts. The cost does not grow with the table: each group is counted only up to AtMost.
type CountFilter struct {
	BatchID      string // one batch; any when empty
	BusinessType string
	States       []State // any, when empty
	AtMost       int     // stop counting a group there; 0: 10,000
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
