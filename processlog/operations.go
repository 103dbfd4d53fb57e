package processlog

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// Operations is what the operator's side asks of a store, beside Store: its cases, its record of what people do, and its
// settings. Only who turns that side on needs it; suite.TestStore of package compensatortest/suite tries it where the Store has
// it. Instants are the database's.
type Operations interface {
	// CheckOperations names, as a *FieldError, each table that is missing.
	CheckOperations(ctx context.Context) error

	// ChangeAll makes one change, but no erasure, of each entry that still stands as it was seen, and closes the cases of
	// those that are not dead any more, in one transaction with the records; otherwise as RequeueAll.
	ChangeAll(ctx context.Context, seen []Version, change Change) ([]Changed, error)

	// Outlines reads rows as Load does, without their content.
	Outlines(ctx context.Context, ids []ID) ([]Row, error)

	// DeadWithoutCase reads up to limit dead entries that have no open case, of those that died since so long ago; 0: of
	// all. OpenCases opens cases for those that are still as they were read, in their order, passes by rows that others
	// hold, and returns how many it has opened. CloseCases closes up to limit cases whose entry is not dead any more, or is
	// gone. ForgetCases deletes up to limit that were closed more than age ago. They repair what a service, an older version
	// or a restored copy has left.
	DeadWithoutCase(ctx context.Context, since time.Duration, limit int) ([]Row, error)
	OpenCases(ctx context.Context, rows []Row, cases []CaseDraft) (int, error)
	CloseCases(ctx context.Context, limit int) (int, error)
	ForgetCases(ctx context.Context, age time.Duration, limit int) (int, error)

	// Cases reads a page of cases; CasesOf those of entries, closed ones too, in no order.
	Cases(ctx context.Context, filter CaseFilter) (CasePage, error)
	CasesOf(ctx context.Context, ids []ID) ([]Case, error)

	// CaseGroups sums up the open cases by type, fingerprint and currency: the 1,000 groups with most cases, of these types;
	// nil: of any; and of one failure; zero: of any.
	CaseGroups(ctx context.Context, businessTypes []string, failure Fingerprint) ([]CaseGroup, error)

	// Types are the business types that occur in the log, in the newest 1,000 operations, and in the settings that pause or have
	// paused one, sorted. What it costs does not grow with the log.
	Types(ctx context.Context) ([]string, error)

	// AssignCases gives each open case that still has the version seen an owner, or none, and records op of each, with its
	// entry and type, in one transaction. It answers for each in their order: nil, ErrChanged or, where there is no open
	// case, ErrNotFound. No case is named twice.
	AssignCases(ctx context.Context, seen []SeenCase, owner string, op Operation) ([]error, error)

	// Operate records what is no change of an entry.
	Operate(ctx context.Context, op Operation) error

	// Trail reads what people did, newest first: changes of entries and operations, merged.
	Trail(ctx context.Context, filter TrailFilter) (TrailPage, error)

	// Settings reads all settings. PutSetting writes one whose version is the one seen, 0: there is none yet, and records
	// op, in one transaction. ErrChanged.
	Settings(ctx context.Context) ([]Setting, error)
	PutSetting(ctx context.Context, setting Setting, op Operation) error
}

// Amount is what an entry is worth, in the currency's smallest unit. The zero Amount, or one without a currency, is not
// known, which is never taken for nothing.
type Amount struct {
	Minor    int64  `json:"minor,string"`
	Currency string `json:"currency"` // three capital letters, ISO 4217
}

// MaxAmount bounds Amount.Minor, both ways, so that a million of them can be summed up.
const MaxAmount = 9_000_000_000_000

// Known reports whether it can be counted with.
func (a Amount) Known() bool {
	for i := range len(a.Currency) {
		if a.Currency[i] < 'A' || a.Currency[i] > 'Z' {
			return false
		}
	}
	return len(a.Currency) == 3 && a.Minor <= MaxAmount && a.Minor >= -MaxAmount
}

// Fingerprint is the same for failures that differ only in ids, numbers, times and quoted words.
type Fingerprint [8]byte

// String is 16 hexadecimal digits.
func (f Fingerprint) String() string { return hex.EncodeToString(f[:]) }

// MarshalText and UnmarshalText write and read what String does.
func (f Fingerprint) MarshalText() ([]byte, error) { return []byte(f.String()), nil }
func (f *Fingerprint) UnmarshalText(text []byte) error {
	if n, err := hex.Decode(f[:], text[:min(len(text), 2*len(f))]); err != nil || n != len(f) || len(text) != 2*len(f) {
		return &FieldError{Field: "fingerprint", Reason: fmt.Sprintf("%q: want 16 hexadecimal digits", text)}
	}
	return nil
}

// CaseKind is why an entry waits for a person.
type CaseKind int8

// The kinds of cases.
const (
	CaseDead    CaseKind = 1 // dead, and each attempt is known to have failed, as far as the row tells
	CaseUnknown CaseKind = 2 // dead, and an attempt timed out or never ended: its effect may have happened
)

// String is "dead" or "outcome unknown".
func (k CaseKind) String() string {
	switch k {
	case CaseDead:
		return "dead"
	case CaseUnknown:
		return "outcome unknown"
	}
	return fmt.Sprintf("CaseKind(%d)", int8(k))
}

// GoString is the kind's name in Go, which %#v writes.
func (k CaseKind) GoString() string {
	switch k {
	case CaseDead:
		return "desk.CaseDead"
	case CaseUnknown:
		return "desk.CaseUnknown"
	}
	return "desk." + k.String()
}

// MarshalText and UnmarshalText write and read what String does.
func (k CaseKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }
func (k *CaseKind) UnmarshalText(text []byte) error {
	for _, kind := range []CaseKind{CaseDead, CaseUnknown} {
		if kind.String() == string(text) {
			*k = kind
			return nil
		}
	}
	return &FieldError{Field: "case kind", Reason: fmt.Sprintf("%q: want %q or %q", text, CaseDead, CaseUnknown)}
}

// MaxCaseError is how much of an error a case keeps, in characters.
const MaxCaseError = 200

// CaseDraft is what a case opens with, beside what its entry's row tells.
type CaseDraft struct {
	Kind        CaseKind
	Fingerprint Fingerprint
	Amount      Amount
	Due         time.Duration // from now
	Error       string        // of which the case keeps the beginning, in the place of the entry's; empty: of that
}

// Case is an entry that waits for a person, or did.
type Case struct {
	EntryID      ID          `json:"entry_id"`
	Epoch        uint32      `json:"epoch"`
	Version      uint64      `json:"version,string"` // of the case, not of the entry
	Kind         CaseKind    `json:"kind"`
	BusinessType string      `json:"business_type"`
	BusinessID   string      `json:"business_id,omitempty"`
	Fingerprint  Fingerprint `json:"fingerprint"`
	EndedBy      EndedBy     `json:"ended_by"`
	Error        string      `json:"error,omitempty"` // its first 200 characters
	Amount       Amount      `json:"amount"`
	Owner        string      `json:"owner,omitempty"`
	OpenedAt     time.Time   `json:"opened_at"`
	DueAt        time.Time   `json:"due_at"`
	ClosedAt     time.Time   `json:"closed_at,omitzero"` // zero: it is open
}

// SeenCase names a case as it was seen: Case.EntryID and Case.Version.
type SeenCase struct {
	EntryID ID
	Version uint64
}

// Assigned answers for a case that is to be assigned, as it is now; nil: its entry has none.
func (seen SeenCase) Assigned(c *Case) error {
	switch {
	case c == nil || !c.ClosedAt.IsZero():
		return fmt.Errorf("assign the case of entry %s: %w", seen.EntryID, ErrNotFound)
	case c.Version != seen.Version:
		return fmt.Errorf("assign the case of entry %s: %w", seen.EntryID, ErrChanged)
	}
	return nil
}

// CaseFilter selects open cases for Cases, the one due earliest first.
type CaseFilter struct {
	BusinessType  string
	BusinessTypes []string    // nil: any; empty: none
	Fingerprint   Fingerprint // zero: any
	Owner         string
	Unowned       bool
	Kind          CaseKind // 0: any
	Limit         int      // 0: 50; at most 1,000
	Cursor        string
}

// CasePage is one page of cases. It may be short, or empty, and not the last: Next tells.
type CasePage struct {
	Cases []Case `json:"cases"`
	Next  string `json:"next,omitempty"`
}

// CaseGroup is the open cases of one type, fingerprint and currency.
type CaseGroup struct {
	BusinessType string
	Fingerprint  Fingerprint
	Currency     string // empty: those whose amount is not known
	N            int
	Sum          int64     // minor units
	First, Last  time.Time // opened
	Example      ID        // the newest of them
	Error        string    // the example's
	Kind         CaseKind  // the example's
}

// Operation is what a person did, or was refused, that is no change of an entry.
type Operation struct {
	Actor        string
	Action       string // at most 32 characters
	Refused      bool
	EntryID      ID     // zero: of none
	BusinessType string // empty: of none
	Subject      string // at most 191 characters: a setting, or how many entries were meant
	Reason       string
}

// TrailFilter selects what Trail reads. A page looks at 2,000 changes and operations each at most, or at all of one entry;
// with BusinessTypes at as many as it takes to fill it: bound ctx.
type TrailFilter struct {
	EntryID       ID       // zero: any
	BusinessTypes []string // nil: any; empty: none; "" is one of them
	Actor         string
	Action        string
	From, To      time.Time // inclusive, exclusive; zero: open
	Limit         int       // 0: 50; at most 1,000
	Cursor        string
}

// TrailRecord is one action of a person: a change of an entry, which has Before and After, or an operation.
type TrailRecord struct {
	At           time.Time   `json:"at"`
	Actor        string      `json:"actor"`
	Action       string      `json:"action"`
	Refused      bool        `json:"refused,omitempty"`
	EntryID      ID          `json:"entry_id"`
	BusinessType string      `json:"business_type,omitempty"` // empty: of none, or of an entry that was purged
	Subject      string      `json:"subject,omitempty"`
	Reason       string      `json:"reason,omitempty"`
	Before       *AuditState `json:"before,omitempty"`
	After        *AuditState `json:"after,omitempty"`
}

// TrailPage is one page of a trail. It may be short, or empty, and not the last: Next tells.
type TrailPage struct {
	Records []TrailRecord `json:"records"`
	Next    string        `json:"next,omitempty"`
}

// Setting is a word that all processes read.
type Setting struct {
	Name    string // at most 191 characters
	Value   string // at most 4,000 characters
	Version uint64 // of PutSetting: the one seen; 0: none
	Actor   string
	Reason  string
	At      time.Time
}

// pausePrefix begins the names of settings that pause a type.
const pausePrefix = "pause "

// Pause is the setting by which a type is paused. With another value it is not.
func Pause(businessType string) Setting {
	return Setting{Name: pausePrefix + businessType, Value: "paused"}
}

// PausedType is the type that a setting pauses, if it does.
func PausedType(s Setting) (businessType string, paused bool) {
	businessType, is := strings.CutPrefix(s.Name, pausePrefix)
	return businessType, is && s.Value == "paused"
}
