package processlog

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// Operations is the part of a store that people need: cases, the audit log, and settings. A service without
// Config.Operations needs none of it. suite.TestStore of package compensatortest/suite tests it if the Store has it.
// All times are the database's.
type Operations interface {
	// CheckOperations returns a *FieldError for each missing table.
	CheckOperations(ctx context.Context) error

	// ChangeAll makes one change of each entry that still has the version seen. The change may not be an erasure. In the
	// same transaction it writes the audit records, and closes the cases of entries that are not dead any more.
	// Otherwise it works as RequeueAll.
	ChangeAll(ctx context.Context, seen []Version, change Change) ([]Changed, error)

	// Outlines reads rows as Load does, but without content.
	Outlines(ctx context.Context, ids []ID) ([]Row, error)

	// The following four methods repair what a service, an older version or a restored backup has left behind.
	// DeadWithoutCase reads up to limit dead entries without an open case that died within the last since. With since 0
	// it reads all of them. OpenCases opens a case for each row that has not changed since it was read, in the given
	// order. It skips rows that other transactions have locked, and returns the number of opened cases. CloseCases
	// closes up to limit cases whose entry is not dead any more or does not exist. ForgetCases deletes up to limit cases
	// that were closed more than age ago.
	DeadWithoutCase(ctx context.Context, since time.Duration, limit int) ([]Row, error)
	OpenCases(ctx context.Context, rows []Row, cases []CaseDraft) (int, error)
	CloseCases(ctx context.Context, limit int) (int, error)
	ForgetCases(ctx context.Context, age time.Duration, limit int) (int, error)

	// Cases reads a page of cases. CasesOf reads the cases of the given entries, closed ones included, in no order.
	Cases(ctx context.Context, filter CaseFilter) (CasePage, error)
	CasesOf(ctx context.Context, ids []ID) ([]Case, error)

	// CaseGroups counts the open cases by type, fingerprint and currency. It returns the 1,000 groups with the most
	// cases. businessTypes selects the types, and nil selects all. failure selects one failure, and the zero value
	// selects all.
	CaseGroups(ctx context.Context, businessTypes []string, failure Fingerprint) ([]CaseGroup, error)

	// Types returns the known business types, sorted: those in the log, in the newest 1,000 operations, and in settings
	// that pause or have paused a type. Its cost does not grow with the log.
	Types(ctx context.Context) ([]string, error)

	// AssignCases gives an owner, or none, to each open case that still has the version seen. It records op for each
	// case with its entry and type, in one transaction. It returns one error for each case, in their order: nil,
	// ErrChanged, or ErrNotFound if there is no open case. No case may be named twice.
	AssignCases(ctx context.Context, seen []SeenCase, owner string, op Operation) ([]error, error)

	// Operate records an operation that changes no entry.
	Operate(ctx context.Context, op Operation) error

	// AuditLog reads the audit log, newest first. It merges changes of entries and operations.
	AuditLog(ctx context.Context, filter AuditLogFilter) (AuditLogPage, error)

	// Settings reads all settings. PutSetting writes a setting whose version is still the one seen, and records op in
	// the same transaction. Version 0 means that the setting does not exist yet. PutSetting returns ErrChanged if the
	// version differs.
	Settings(ctx context.Context) ([]Setting, error)
	PutSetting(ctx context.Context, setting Setting, op Operation) error
}

// Amount is what an entry is worth, in the smallest unit of its currency. The zero Amount, or one without a currency,
// is unknown. Unknown never counts as zero.
type Amount struct {
	Minor    int64  `json:"minor,string"`
	Currency string `json:"currency"` // three capital letters, ISO 4217
}

// MaxAmount bounds Amount.Minor in both directions, so that a million amounts can be added up.
const MaxAmount = 9_000_000_000_000

// Known reports whether the amount is known and valid.
func (a Amount) Known() bool {
	for i := range len(a.Currency) {
		if a.Currency[i] < 'A' || a.Currency[i] > 'Z' {
			return false
		}
	}
	return len(a.Currency) == 3 && a.Minor <= MaxAmount && a.Minor >= -MaxAmount
}

// Fingerprint is equal for failures that differ only in ids, numbers, times and quoted words.
type Fingerprint [8]byte

// String returns 16 hexadecimal digits.
func (f Fingerprint) String() string { return hex.EncodeToString(f[:]) }

// MarshalText and UnmarshalText use the form of String.
func (f Fingerprint) MarshalText() ([]byte, error) { return []byte(f.String()), nil }
func (f *Fingerprint) UnmarshalText(text []byte) error {
	if n, err := hex.Decode(f[:], text[:min(len(text), 2*len(f))]); err != nil || n != len(f) || len(text) != 2*len(f) {
		return &FieldError{Field: "fingerprint", Reason: fmt.Sprintf("%q: want 16 hexadecimal digits", text)}
	}
	return nil
}

// CaseKind is the reason why an entry waits for a person.
type CaseKind int8

// The kinds of cases.
const (
	CaseDead    CaseKind = 1 // dead, and each attempt is known to have failed, as far as the row tells
	CaseUnknown CaseKind = 2 // dead, and one of the last two attempts timed out or never ended, so its effect may have happened
)

// String returns "dead" or "outcome unknown".
func (k CaseKind) String() string {
	switch k {
	case CaseDead:
		return "dead"
	case CaseUnknown:
		return "outcome unknown"
	}
	return fmt.Sprintf("CaseKind(%d)", int8(k))
}

// GoString returns the name of the kind in Go, which %#v prints.
func (k CaseKind) GoString() string {
	switch k {
	case CaseDead:
		return "admin.CaseDead"
	case CaseUnknown:
		return "admin.CaseUnknown"
	}
	return "admin." + k.String()
}

// MarshalText and UnmarshalText use the form of String.
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

// MaxCaseError is the maximum length of the error that a case keeps, in characters.
const MaxCaseError = 200

// CaseDraft is a case to open. The row of its entry supplies the rest.
type CaseDraft struct {
	Kind        CaseKind
	Fingerprint Fingerprint
	Amount      Amount
	Due         time.Duration // time from now until the case is due
	Error       string        // the case keeps its beginning, in place of the entry's error. Empty: use the entry's error
}

// Case says that an entry waits for a person, or waited for one.
type Case struct {
	EntryID      ID          `json:"entry_id"`
	Epoch        uint32      `json:"epoch"`
	Version      uint64      `json:"version,string"` // version of the case, not of the entry
	Kind         CaseKind    `json:"kind"`
	BusinessType string      `json:"business_type"`
	BusinessID   string      `json:"business_id,omitempty"`
	Fingerprint  Fingerprint `json:"fingerprint"`
	EndedBy      EndedBy     `json:"ended_by"`
	Error        string      `json:"error,omitempty"` // first 200 characters of the error
	Amount       Amount      `json:"amount"`
	Owner        string      `json:"owner,omitempty"`
	OpenedAt     time.Time   `json:"opened_at"`
	DueAt        time.Time   `json:"due_at"`
	ClosedAt     time.Time   `json:"closed_at,omitzero"` // zero: the case is open
}

// SeenCase identifies a case as it was read, by Case.EntryID and Case.Version.
type SeenCase struct {
	EntryID ID
	Version uint64
}

// Assigned returns the error for a case to be assigned. c is the case as it is now, or nil if its entry has none.
func (seen SeenCase) Assigned(c *Case) error {
	switch {
	case c == nil || !c.ClosedAt.IsZero():
		return fmt.Errorf("assign the case of entry %s: %w", seen.EntryID, ErrNotFound)
	case c.Version != seen.Version:
		return fmt.Errorf("assign the case of entry %s: %w", seen.EntryID, ErrChanged)
	}
	return nil
}

// CaseFilter selects open cases for Cases. The case that is due first comes first.
type CaseFilter struct {
	BusinessType  string
	BusinessTypes []string    // nil: any; empty: none
	Fingerprint   Fingerprint // zero: any
	Owner         string
	Unowned       bool
	Kind          CaseKind // 0: any
	Limit         int      // maximum number of cases. 0: 50; at most 1,000
	Cursor        string
}

// CasePage is one page of cases. A short or empty page is not the end: the end is an empty Next.
type CasePage struct {
	Cases []Case `json:"cases"`
	Next  string `json:"next,omitempty"`
}

// CaseGroup counts the open cases of one type, fingerprint and currency.
type CaseGroup struct {
	BusinessType string
	Fingerprint  Fingerprint
	Currency     string // empty: the cases of unknown amount
	N            int
	Sum          int64     // sum in minor units
	First, Last  time.Time // when the first and the last of them were opened
	Example      ID        // entry of the newest case
	Error        string    // error of the example
	Kind         CaseKind  // kind of the example
}

// Operation is an action of a person that changes no entry, or an action that was refused.
type Operation struct {
	Actor        string
	Action       string // at most 32 characters
	Refused      bool
	EntryID      ID     // zero: no entry
	BusinessType string // empty: no type
	Subject      string // at most 191 characters, for example the name of a setting or the number of entries
	Reason       string
}

// AuditLogFilter selects records for AuditLog. A page reads up to 2,000 changes and 2,000 operations. For one entry it
// reads all of them. With BusinessTypes it reads as many as it needs to fill the page, so bound ctx.
type AuditLogFilter struct {
	EntryID       ID       // zero: any
	BusinessTypes []string // nil: any. Empty: none. "" selects records without a type
	Actor         string
	Action        string
	From, To      time.Time // from inclusive, to exclusive. Zero: no bound
	Limit         int       // maximum number of records. 0: 50; at most 1,000
	Cursor        string
}

// AuditLogRecord is one record of the audit log: a change of an entry, which has Before and After, or an operation.
type AuditLogRecord struct {
	At           time.Time   `json:"at"`
	Actor        string      `json:"actor"`
	Action       string      `json:"action"`
	Refused      bool        `json:"refused,omitempty"`
	EntryID      ID          `json:"entry_id"`
	BusinessType string      `json:"business_type,omitempty"` // empty: no type, or the entry was purged
	Subject      string      `json:"subject,omitempty"`
	Reason       string      `json:"reason,omitempty"`
	Before       *AuditState `json:"before,omitempty"`
	After        *AuditState `json:"after,omitempty"`
}

// AuditLogPage is one page of the audit log. A short or empty page is not the end: the end is an empty Next.
type AuditLogPage struct {
	Records []AuditLogRecord `json:"records"`
	Next    string           `json:"next,omitempty"`
}

// Setting is a named value that all processes read.
type Setting struct {
	Name    string // at most 191 characters
	Value   string // at most 4,000 characters
	Version uint64 // for PutSetting: the version seen. 0: the setting does not exist yet
	Actor   string
	Reason  string
	At      time.Time
}

// pausePrefix starts the names of settings that pause a type.
const pausePrefix = "pause "

// Pause returns the setting that pauses a type. With any other value the type is not paused.
func Pause(businessType string) Setting {
	return Setting{Name: pausePrefix + businessType, Value: "paused"}
}

// PausedType returns the type that a setting pauses, if it pauses one.
func PausedType(s Setting) (businessType string, paused bool) {
	businessType, is := strings.CutPrefix(s.Name, pausePrefix)
	return businessType, is && s.Value == "paused"
}
