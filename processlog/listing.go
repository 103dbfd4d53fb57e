package processlog

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Filter selects entries for List. Set at most one of BatchID, BusinessID and BusinessExtID. MySQL and MariaDB ignore
// spaces at the end of ids.
//
// List reads one index: that of the id, if an id is set. Without an id it reads the index of the creation times, if
// CreatedFrom or CreatedTo is set. Otherwise it reads the index of states and types. List compares up to MaxRead rows
// with the other fields, so a page may be short or empty although more pages follow.
type Filter struct {
	States       []State `json:"states,omitempty"`        // empty: any
	BusinessType string  `json:"business_type,omitempty"` // empty: any
	// BusinessTypes selects several types. nil selects all, and an empty list none. If the filter also sets an id or a
	// range of creation times, List may skip any number of rows of other types. So set a deadline on ctx.
	BusinessTypes []string  `json:"business_types,omitempty"`
	BatchID       string    `json:"batch_id,omitempty"`        // empty: any
	BusinessID    string    `json:"business_id,omitempty"`     // empty: any
	BusinessExtID string    `json:"business_ext_id,omitempty"` // empty: any
	Prefix        bool      `json:"prefix,omitempty"`          // match every id that begins with the given id, and sort the entries by this id
	CreatedFrom   time.Time `json:"created_from,omitzero"`     // inclusive, by the database's clock. Zero: no bound
	CreatedTo     time.Time `json:"created_to,omitzero"`       // exclusive, by the database's clock. Zero: no bound
	EndedFrom     time.Time `json:"ended_from,omitzero"`       // inclusive. Selects entries that have ended, dead ones included. Zero: no bound
	EndedTo       time.Time `json:"ended_to,omitzero"`         // exclusive. Selects entries that have ended, dead ones included. Zero: no bound
	DueFrom       time.Time `json:"due_from,omitzero"`         // inclusive. Selects entries that have not ended. Zero: no bound
	DueTo         time.Time `json:"due_to,omitzero"`           // exclusive. Selects entries that have not ended. Zero: no bound

	// The following fields need a type, an id, CreatedFrom or CreatedTo.
	LastError string  `json:"last_error,omitempty"` // the text of the last error must contain this text; case-sensitive. Empty: any
	EndedBy   EndedBy `json:"ended_by,omitempty"`   // empty: any
	UserID    string  `json:"user_id,omitempty"`    // empty: any

	// Leased keeps only entries that are due and that a process holds now. Without a type, an id and a created range,
	// List returns only one page, which begins with the entries that have been due longest. To fill this page, List
	// compares at most MaxRead rows with the filter, the same number of rows for each pair of state and type. List
	// compares at least one row of each pair. Page.Partial names the types of which the page may lack entries.
	Leased bool `json:"leased,omitempty"`

	// LeasedBy keeps only entries whose lease belongs to the process with this id, as Token.MarkedBy finds out. The
	// zero id means any process. If LeasedBy is set, the field Leased must be true.
	LeasedBy InstanceID `json:"leased_by,omitzero"`

	Outline bool   `json:"-"` // do not read contents
	Newest  bool   `json:"-"` // newest first instead of oldest first
	Limit   int    `json:"-"` // maximum number of entries. 0: 50; at most 1,000
	MaxRead int    `json:"-"` // maximum number of rows that a page may read. 0: 10,000; at most 100,000
	Cursor  string `json:"-"` // Page.Next of the previous page
}

// DefaultRead is the default of Filter.MaxRead.
const DefaultRead = 10_000

const maxMaxRead = 100_000

// Narrowed reports whether f has conditions that the index of List does not cover. List then reads each row that the
// index finds, and checks these conditions. Narrowed returns a *FieldError if f would read the whole table, or if no
// row can match.
func (f Filter) Narrowed() (bool, error) {
	hasID, hasCreatedRange := f.BatchID+f.BusinessID+f.BusinessExtID != "", !f.CreatedFrom.IsZero() || !f.CreatedTo.IsZero()
	hasGroup, hasOtherFields := len(f.States) > 0 || f.BusinessType != "" || f.selectsEnded() || f.selectsDue(), f.LastError != "" || f.EndedBy != "" || f.UserID != ""
	switch {
	case f.MaxRead < 0 || f.MaxRead > maxMaxRead:
		return false, &FieldError{Field: "MaxRead", Reason: fmt.Sprintf("%d: want 1 to %d, or 0 for %d", f.MaxRead, maxMaxRead, DefaultRead)}
	case !utf8.ValidString(f.LastError + string(f.EndedBy) + f.UserID + strings.Join(f.BusinessTypes, "")):
		return false, &FieldError{Field: "filter", Reason: "is not valid UTF-8"}
	case f.EndedBy.UnmarshalText([]byte(f.EndedBy)) != nil:
		return false, f.EndedBy.UnmarshalText([]byte(f.EndedBy))
	case hasOtherFields && !hasID && !hasCreatedRange && f.BusinessType == "":
		return false, &FieldError{Field: "filter", Reason: "LastError, EndedBy and UserID want a type, an id, or a created range"}
	case f.LeasedOfAllTypes() && f.Cursor != "":
		return false, &FieldError{Field: "cursor", Reason: "Leased without a type, an id and a created range has one page"}
	case f.LeasedBy != (InstanceID{}) && !f.Leased:
		return false, &FieldError{Field: "filter", Reason: "LeasedBy wants Leased"}
	case f.Prefix && !hasID:
		return false, &FieldError{Field: "filter", Reason: "Prefix wants an id"}
	case len(f.Reached()) == 0:
		return false, &FieldError{Field: "filter", Reason: "no state matches: EndedFrom and EndedTo want states that have ended, DueFrom, DueTo and Leased want other states"}
	}
	return hasOtherFields || f.Leased || hasID && (hasCreatedRange || hasGroup) || hasCreatedRange && hasGroup, nil
}

// LeasedOfAllTypes reports whether f selects the entries that processes hold, whatever their type. List then returns one
// page.
func (f Filter) LeasedOfAllTypes() bool {
	return f.Leased && f.BusinessType+f.BatchID+f.BusinessID+f.BusinessExtID == "" && f.CreatedFrom.IsZero() && f.CreatedTo.IsZero()
}

func (f Filter) selectsEnded() bool { return !f.EndedFrom.IsZero() || !f.EndedTo.IsZero() }
func (f Filter) selectsDue() bool   { return !f.DueFrom.IsZero() || !f.DueTo.IsZero() }

// Reached returns the states of the rows that can match f.
func (f Filter) Reached() []State {
	states := f.States
	if len(states) == 0 {
		states = States[:]
	}
	if !f.selectsEnded() && !f.selectsDue() && !f.Leased {
		return states
	}
	return slices.DeleteFunc(slices.Clone(states), func(s State) bool {
		return f.selectsEnded() && !s.Terminal() || (f.selectsDue() || f.Leased) && s.Terminal()
	})
}

// NextRange returns the bounds of Row.NextAt. A zero time is no bound.
func (f Filter) NextRange() (from, to time.Time) {
	if f.selectsEnded() {
		return f.EndedFrom, f.EndedTo
	}
	return f.DueFrom, f.DueTo
}

// Admits reports whether a row matches f.
func (f Filter) Admits(r *Row) bool {
	from, to := f.NextRange()
	return (len(f.States) == 0 && from.IsZero() && to.IsZero() && !f.Leased || slices.Contains(f.Reached(), r.State)) &&
		(from.IsZero() || !r.NextAt.Before(from)) && (to.IsZero() || r.NextAt.Before(to)) &&
		(f.BusinessTypes == nil || slices.Contains(f.BusinessTypes, r.BusinessType)) &&
		matchesFilter(f.BusinessType, r.BusinessType) && f.matchesID(f.BatchID, r.BatchID) &&
		f.matchesID(f.BusinessID, r.BusinessID) && f.matchesID(f.BusinessExtID, r.BusinessExtID) &&
		(f.CreatedFrom.IsZero() || !r.CreatedAt.Before(f.CreatedFrom)) &&
		(f.CreatedTo.IsZero() || r.CreatedAt.Before(f.CreatedTo)) &&
		strings.Contains(r.LastError, f.LastError) && matchesFilter(f.EndedBy, r.EndedBy) && matchesFilter(f.UserID, r.UserID) &&
		(!f.Leased || r.LeaseLeft > 0) && (f.LeasedBy == (InstanceID{}) || r.Token.MarkedBy(f.LeasedBy))
}

func matchesFilter[T ~string](wanted, value T) bool { return wanted == "" || wanted == value }

func (f Filter) matchesID(wanted, id string) bool {
	return matchesFilter(wanted, id) || f.Prefix && strings.HasPrefix(id, wanted)
}

// Page is one page of a listing.
type Page struct {
	Rows []Row  // rows that match the filter
	Next string // cursor of the following page; empty at the end
	Read int    // number of rows that List read for this page; at least len(Rows)

	// Partial names the types of which the page may lack entries, sorted. Call List for each of these types to see all
	// entries. Partial is always empty if Filter.Leased is false. It is also empty if the filter has a type, an id or a
	// created range.
	Partial []string
}

// CountFilter selects entries for Count, which counts each state of a type up to AtMost.
type CountFilter struct {
	BatchID      string  // one batch; empty: any
	BusinessType string  // empty: any
	States       []State // empty: any
	AtMost       int     // stop counting a group at this number. 0: 10,000
}

// Count is the number of entries of one state and type.
type Count struct {
	BusinessType string // business type of the counted entries
	State        State  // state of the counted entries
	N            int    // number of entries, at most CountFilter.AtMost
	More         bool   // whether there are more than N entries, because Count stopped at CountFilter.AtMost
}

// AuditRecord is one action of a person.
type AuditRecord struct {
	EntryID ID            `json:"entry_id"` // entry that was changed; zero: the log as a whole
	At      time.Time     `json:"at"`       // time of the action. UTC, milliseconds
	Ago     time.Duration `json:"-"`        // time since At, by the database's clock
	Action  Action        `json:"action"`   // what was done
	Actor   string        `json:"actor"`    // the person or program that acted
	Reason  string        `json:"reason"`   // reason that Actor gave; empty after an erasure
	Before  AuditState    `json:"before"`   // the entry before the action
	After   AuditState    `json:"after"`    // the entry after the action
}

// AuditState is the part of an entry that an AuditRecord stores.
type AuditState struct {
	State        State  `json:"state"`                // Row.State
	Version      uint64 `json:"version,string"`       // Row.Version
	Epoch        uint32 `json:"epoch"`                // Row.Epoch
	ProcessCount int    `json:"process_count"`        // Row.ProcessCount
	LastError    string `json:"last_error,omitempty"` // Row.LastError; empty after an erasure
}
