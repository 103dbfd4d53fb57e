package processlog

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Operations is the part of a store that serves people: cases, the audit log, settings. Only Config.Operations needs it.
// suite.TestStore of package compensatortest/suite tests it, too. The methods are called concurrently. All times are by
// the database's clock.
type Operations interface {
	// CheckOperations returns a *FieldError for each missing table.
	CheckOperations(ctx context.Context) error

	// ChangeAll makes the same change on each entry in seen whose version is still the one in seen. The change must not
	// be an erasure. The same transaction writes the audit records of the changes. It also closes the cases of entries
	// that are no longer dead. In all other respects ChangeAll works like RequeueAll.
	ChangeAll(ctx context.Context, seen []Version, change Change) ([]Changed, error)

	// ChangeBulk works like ChangeAll, for one batch of an action on many entries. The same transaction stores
	// batch.With(seen, …) as an audit record without an EntryID, even if no entry was changed. ChangeBulk returns the
	// number of this record. If batch.ID.Record is 0, the batch is the first batch of its action. The number of its
	// record is then the BulkID.Record of the action.
	//
	// ChangeBulk changes nothing and returns ErrChanged in two cases:
	//
	//   - batch.Follows is set, and is not the last batch of the action.
	//   - batch.Once is set, and there is an earlier action with the same BulkID.Secret. ChangeBulk looks for the first
	//     batch of such an action in the newest MaxBulkKeys audit records without an EntryID.
	ChangeBulk(ctx context.Context, seen []Version, change Change, batch BulkBatch) (record uint64, answers []Changed, err error)

	// Bulk returns the first batch of an action and its last MaxBulkBatches other batches, the oldest first. It returns
	// ErrNotFound if the action has no batch. Bulk searches the first MaxBulkRecords audit records without an EntryID,
	// beginning with the first batch of the action. Bulk does not find a batch after these records. If id.Record is 0,
	// Bulk finds the action by its BulkID.Secret, in the same records as ChangeBulk does for batch.Once.
	Bulk(ctx context.Context, id BulkID) ([]BulkBatch, error)

	// MatchingIDs returns the ids of all entries for which m.Admits is true, in ascending order. It may also return other
	// ids, because it reads one index, and no rows. An invalid filter is a *FieldError.
	MatchingIDs(ctx context.Context, m Match) ([]ID, error)

	// Outlines reads rows as Load does, but without content.
	Outlines(ctx context.Context, ids []ID) ([]Row, error)

	// DeadWithoutCase reads up to limit dead entries that have no open case, with their Faults. It leaves out entries that
	// became dead more than maxAge ago, if maxAge is not 0.
	//
	// DeadWithoutCase and the next three methods repair cases. If the database refuses to write some cases, they write the
	// others and return a *RefusedError.
	DeadWithoutCase(ctx context.Context, maxAge time.Duration, limit int) ([]Row, error)

	// OpenCases opens a case for each row that has not changed since it was read. The element cases[i] is the case of
	// rows[i]. OpenCases skips locked rows, and returns the number of opened cases.
	OpenCases(ctx context.Context, rows []Row, cases []CaseDraft) (int, error)

	// CloseCases closes up to limit cases whose entry is not dead any more or does not exist. It returns the number of
	// closed cases.
	CloseCases(ctx context.Context, limit int) (int, error)

	// ForgetCases deletes up to limit cases that have been closed for longer than the duration age. It returns the
	// number of deleted cases.
	ForgetCases(ctx context.Context, age time.Duration, limit int) (int, error)

	// Cases reads a page of open cases.
	Cases(ctx context.Context, filter CaseFilter) (CasePage, error)

	// CasesOf reads the cases of the given entries, including closed cases, in no order.
	CasesOf(ctx context.Context, ids []ID) ([]Case, error)

	// FaultsOf reads the Faults of the given entries. Entries without Faults are missing from the result.
	FaultsOf(ctx context.Context, ids []ID) (map[ID]Faults, error)

	// KeepAttempts prepares the store for Outcome.Attempt. It returns a *FieldError if the table of attempts is missing.
	KeepAttempts(ctx context.Context) error

	// AttemptsOf reads the failed attempts of an entry, the oldest first, at most MaxAttemptsKept. The store may keep
	// each attempt in the slot that AttemptSlot returns. Then a new attempt overwrites an older attempt of the entry
	// only if their Versions differ by at least 2*MaxAttemptsKept - 1.
	AttemptsOf(ctx context.Context, id ID) ([]FailedAttempt, error)

	// StatsClock returns the current time of the database's clock. If the table of statistics is missing, StatsClock
	// returns a *FieldError.
	StatsClock(ctx context.Context) (time.Time, error)

	// WriteStats stores the counts of one process for one minute. The argument minute is the time at which this minute
	// begins. The argument instance is the name of the process: 1 to 32 letters and digits. No other process may have
	// this name. The argument stats has one element for each business type. If the process has already written this
	// minute or a later minute, WriteStats changes nothing.
	WriteStats(ctx context.Context, instance string, minute time.Time, stats []Stat) error

	// FoldStats adds up rows of statistics, and stores the sums in fewer rows, called folded rows. It deletes the rows
	// that it has added up, at most limit rows, and returns their number. All these rows are older than the duration
	// age. The argument fold says which rows are added up. Either all changes of a call are stored or none. Several
	// processes may call FoldStats at the same time.
	FoldStats(ctx context.Context, fold StatFold, age time.Duration, limit int) (int, error)

	// ForgetStats deletes folded rows of statistics, which hold the sums of FoldStats. It deletes those that are older
	// than the duration age.
	ForgetStats(ctx context.Context, age time.Duration) error

	// Stats reads counts of statistics, sorted by period and then by type. The result lacks periods without counts. A
	// folded row belongs to the period in which its first minute lies.
	Stats(ctx context.Context, filter StatFilter) ([]Stat, error)

	// CountBacklog counts up to limit entries of each range, by one statement that reads only the due index. It returns
	// one BacklogSlice for each range. There may be at most MaxBacklogRanges ranges.
	CountBacklog(ctx context.Context, ranges []BacklogRange, limit int) ([]BacklogSlice, error)

	// WriteBacklog stores the backlog of all types that have entries. The parameter slot is the planned start of the
	// round that counted the backlog, a whole minute. If the backlog of this round or of a later round is stored,
	// WriteBacklog changes nothing. ReadBacklog returns the previous backlog until all parts of the new backlog are
	// stored.
	WriteBacklog(ctx context.Context, slot time.Time, backlog []Backlog) error

	// ReadBacklog reads the last stored backlog. CountBacklog, WriteBacklog and ReadBacklog need the table of statistics.
	ReadBacklog(ctx context.Context) (BacklogReading, error)

	// WriteInstance stores the record i that a process has written about itself. The database's current time becomes
	// the time at which the process was last seen. WriteInstance ignores the times in i. The duration age is the time
	// since the process started. The parameter ended says whether the process has ended. After a call in which ended is
	// true, EndedAt does not change any more. If the table of instances is missing, WriteInstance returns a
	// *FieldError.
	WriteInstance(ctx context.Context, i Instance, age time.Duration, ended bool) error

	// Instances reads all processes, sorted by name and then by ID.
	Instances(ctx context.Context) ([]Instance, error)

	// ForgetInstances deletes the records of processes whose last contact is longer ago than the duration age.
	ForgetInstances(ctx context.Context, age time.Duration) error

	// PeriodicMarks reads the database's clock and the marks of all periodic types, as Marks does. It leaves out the
	// marks of maintenance, whose names begin with a space. If the table of marks is missing, PeriodicMarks returns a
	// *FieldError.
	PeriodicMarks(ctx context.Context) (now time.Time, marks map[string]time.Time, err error)

	// OutlinesByKey reads rows by their idempotency keys, without content and in no order. Keys without a row are left out.
	OutlinesByKey(ctx context.Context, keys []string) ([]Row, error)

	// BlockedBy returns the entry that blocks the entry id, or the zero ID: see Ordering. The argument dead says
	// whether a dead entry blocks later entries. BlockedBy and Ordering.Blocked give the same answer.
	BlockedBy(ctx context.Context, businessType string, id ID, dead bool) (ID, error)

	// CaseGroups counts the open cases by type, fingerprint and currency, and returns the 1,000 groups with the most
	// cases. Nil businessTypes and a zero failure select all.
	CaseGroups(ctx context.Context, businessTypes []string, failure Fingerprint) ([]CaseGroup, error)

	// CountCases counts the open cases by type and kind, in no order.
	CountCases(ctx context.Context) ([]CaseCount, error)

	// Types returns the known business types, sorted: those in the log, in the newest 1,000 operations, and in settings
	// that pause or have paused a type. The cost does not grow with the log.
	Types(ctx context.Context) ([]string, error)

	// AssignCases assigns open cases to owner, in one transaction. If owner is empty, the cases belong to nobody
	// afterwards. AssignCases assigns a case only if its version is still the version in the parameter seen. For each
	// case that it assigns, AssignCases records the operation op, with the entry and the type of the case.
	//
	// AssignCases returns one error for each case, in the order of seen: nil, ErrChanged, or ErrNotFound if there is no
	// open case. No case may be named twice.
	AssignCases(ctx context.Context, seen []SeenCase, owner string, op Operation) ([]error, error)

	// Operate writes an operation to the audit log. It changes no entry.
	Operate(ctx context.Context, op Operation) error

	// AuditLog reads the audit log, newest first: both the changes of entries, and the operations.
	AuditLog(ctx context.Context, filter AuditLogFilter) (AuditLogPage, error)

	// Limits reads the limits under which entries were claimed, sorted by name. An empty name selects all. The cost does
	// not grow with the keys of a limit. A log without the table of limits has none.
	Limits(ctx context.Context, name string) ([]StoredLimit, error)

	// LimitedKey reads how far one key of a limit is used up. The parameter limit is a result of the method Limits. If
	// this limit has no keys, the parameter key is "".
	LimitedKey(ctx context.Context, limit StoredLimit, key string) (LimitedKey, error)

	// PutLimit writes the fields Person, Actor and Reason of a limit. The parameter limit is a result of the method
	// Limits, with new values in these fields. PutLimit records the operations ops in the same transaction. It returns
	// ErrChanged if the stored version is not limit.Version, or if the limit does not exist. After PutLimit every claim
	// obeys the new values.
	PutLimit(ctx context.Context, limit StoredLimit, ops ...Operation) error

	// Settings reads all settings.
	Settings(ctx context.Context) ([]Setting, error)

	// PutSetting writes a setting and records op in the same transaction. It returns ErrChanged if the stored version
	// differs from Setting.Version. Version 0 means that the setting does not exist yet.
	PutSetting(ctx context.Context, setting Setting, op Operation) error
}

// MaxBulkBatches is the maximum number of an action's last batches that Bulk reads.
const MaxBulkBatches = 20

// MaxBulkRecords is the maximum number of audit records without an EntryID that Bulk reads.
const MaxBulkRecords = 10_000

// MaxBulkKeys limits the search for an action by its secret. Of the audit records without an EntryID, a store searches
// only the newest MaxBulkKeys records.
const MaxBulkKeys = 1000

// Amount is the value of an entry, in the smallest unit of its currency. An Amount without a currency is unknown, and
// never counts as zero.
type Amount struct {
	Minor    int64  `json:"minor,string"` // number of smallest units, for example cents
	Currency string `json:"currency"`     // three capital letters, ISO 4217
}

// MaxAmount is the largest absolute value of Amount.Minor. The sum of a million amounts fits into an int64.
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

// Fingerprint is a hash of a failure's text. Failures that differ only in ids, numbers, times and quoted words have the
// same Fingerprint.
type Fingerprint [8]byte

// String returns 16 hexadecimal digits.
func (f Fingerprint) String() string { return hex.EncodeToString(f[:]) }

// MarshalText returns the result of String.
func (f Fingerprint) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText parses the result of String, or returns a *FieldError.
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
	CaseDead    CaseKind = 1 // The entry is dead. Each attempt of its epoch is known to have failed.
	CaseUnknown CaseKind = 2 // The entry is dead. An attempt of its epoch has an unknown outcome, and may have had its effect.
)

// String returns "dead" or "outcome unknown", or a text with the number.
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

// MarshalText returns the result of String, even for a number that is no kind.
func (k CaseKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText parses the result of String for a known kind, or returns a *FieldError.
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

// CaseDraft is a case to open. The other fields of the case come from the row of its entry.
type CaseDraft struct {
	Kind        CaseKind      // why the entry waits for a person
	Fingerprint Fingerprint   // fingerprint of the failure
	Amount      Amount        // what the entry is worth; zero: unknown
	Due         time.Duration // time from now until the case is due
	Error       string        // error to store, cut to MaxCaseError characters; empty: the entry's error
}

// Case says that an entry waits for a person, or waited for one.
type Case struct {
	EntryID      ID          `json:"entry_id"`              // entry that the case is about
	Epoch        uint32      `json:"epoch"`                 // epoch of the entry when it died
	Version      uint64      `json:"version,string"`        // version of the case, which differs from the version of the entry
	Kind         CaseKind    `json:"kind"`                  // why the entry waits for a person
	BusinessType string      `json:"business_type"`         // business type of the entry
	BusinessID   string      `json:"business_id,omitempty"` // business id of the entry
	Fingerprint  Fingerprint `json:"fingerprint"`           // fingerprint of the failure
	EndedBy      EndedBy     `json:"ended_by"`              // cause that made the entry dead
	Error        string      `json:"error,omitempty"`       // first MaxCaseError characters of the error
	Amount       Amount      `json:"amount"`                // what the entry is worth; zero: unknown
	Owner        string      `json:"owner,omitempty"`       // person who has taken the case; empty: nobody
	OpenedAt     time.Time   `json:"opened_at"`             // when the entry's case was opened
	DueAt        time.Time   `json:"due_at"`                // time by which a person should look at the case
	ClosedAt     time.Time   `json:"closed_at,omitzero"`    // zero while the case is open
}

// SeenCase identifies a case as it was read, by Case.EntryID and Case.Version.
type SeenCase struct {
	EntryID ID     // Case.EntryID
	Version uint64 // Case.Version
}

// Assigned returns the error that AssignCases reports for the case. nil means that the case may be assigned. The
// parameter c is the present case of the entry, or nil if the entry has no case.
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
	BusinessType  string      // empty: any
	BusinessTypes []string    // nil: any; empty: none
	Fingerprint   Fingerprint // zero: any
	Owner         string      // empty: any
	Unowned       bool        // only cases without an owner
	Kind          CaseKind    // 0: any
	Limit         int         // maximum number of cases. 0: 50; at most 1,000
	Cursor        string      // CasePage.Next of the previous page
}

// CasePage is one page of cases. It may be short or empty. Only on the last page Next is empty.
type CasePage struct {
	Cases []Case `json:"cases"`          // cases of this page
	Next  string `json:"next,omitempty"` // cursor of the following page
}

// CaseGroup counts the open cases of one type, fingerprint and currency.
type CaseGroup struct {
	BusinessType string      // business type of the cases
	Fingerprint  Fingerprint // fingerprint of the failure
	Currency     string      // empty for the cases whose amount is unknown
	N            int         // number of cases
	Sum          int64       // sum in minor units
	First, Last  time.Time   // when the oldest and the newest case of the group were opened
	Example      ID          // entry of the newest case
	Error        string      // error of the entry in the field Example
	Kind         CaseKind    // kind of the case of the entry in the field Example
}

// CaseCount counts the open cases of one type and kind.
type CaseCount struct {
	BusinessType string   // business type of the cases
	Kind         CaseKind // kind of the cases
	N            int      // number of cases, at least 1
}

// Operation is an action of a person that changes no entry, or an action that was refused.
type Operation struct {
	Actor        string // the person who acts
	Action       string // at most 32 characters
	Refused      bool   // whether the action was refused
	EntryID      ID     // zero: no entry
	BusinessType string // empty: no type
	Subject      string // at most 191 characters, for example the name of a setting or the number of entries
	Reason       string // reason that Actor gives
}

// AuditLogFilter selects records for AuditLog. The audit log has two tables: changes of entries, and operations, which
// change no entry. To fill a page, AuditLog reads up to 10,000 records of each table. There are two exceptions:
//
//   - If EntryID is set, AuditLog reads all records of that entry.
//   - If BusinessTypes is set, AuditLog reads until the page is full. So set a deadline on ctx.
type AuditLogFilter struct {
	EntryID       ID        // zero: any
	BusinessTypes []string  // nil: any. Empty: none. "" selects records without a type
	Actor         string    // empty: any
	Action        string    // empty: any
	From, To      time.Time // from inclusive, to exclusive. Zero: no bound
	// EachEntry adds the records of the single entries that ChangeBulk has changed. If EntryID is set, AuditLog always
	// reads these records.
	EachEntry bool
	Limit     int    // maximum number of records. 0: 50; at most 1,000
	Cursor    string // AuditLogPage.Next of the previous page
}

// AuditLogRecord is either a change of an entry, which has Before and After, or an operation.
type AuditLogRecord struct {
	At           time.Time   `json:"at"`                      // time of the action
	Actor        string      `json:"actor"`                   // the person or program that acted
	Action       string      `json:"action"`                  // what was done, or was refused
	Refused      bool        `json:"refused,omitempty"`       // whether the action was refused
	EntryID      ID          `json:"entry_id"`                // entry that the action names; zero: no entry
	BusinessType string      `json:"business_type,omitempty"` // empty: no type, or the entry was purged
	Subject      string      `json:"subject,omitempty"`       // Operation.Subject
	Reason       string      `json:"reason,omitempty"`        // reason that Actor gave
	Bulk         *BulkID     `json:"bulk,omitempty"`          // action on several entries, if this is the record of one of its batches
	N            int         `json:"n,omitempty"`             // number of entries that the batch has changed; only with Bulk
	Before       *AuditState `json:"before,omitempty"`        // the entry before the change; nil for an operation
	After        *AuditState `json:"after,omitempty"`         // the entry after the change; nil for an operation
}

// AuditLogPage is one page of the audit log. It may be short or empty. Only on the last page Next is empty.
type AuditLogPage struct {
	Records []AuditLogRecord `json:"records"`        // newest first
	Next    string           `json:"next,omitempty"` // cursor of the following page
}

// Setting is a named value that all processes read.
type Setting struct {
	Name    string    // at most 191 characters
	Value   string    // at most 4,000 characters
	Version uint64    // the version that the caller has read. PutSetting compares it. 0: the setting does not exist yet
	Actor   string    // the person who wrote the setting
	Reason  string    // reason that Actor gave
	At      time.Time // time of the last write, by the database's clock
	ReadAt  time.Time // time at which Settings read it, by the database's clock. PutSetting ignores it
}

const pausePrefix = "pause "

// Pause returns the setting that pauses a type until a person changes it.
func Pause(businessType string) Setting {
	return Setting{Name: pausePrefix + businessType, Value: "paused"}
}

// PauseFor returns the setting that pauses a type for the duration length, from the time at which the setting is
// written. PauseFor cuts the duration to whole milliseconds. The duration must be at least one millisecond.
func PauseFor(businessType string, length time.Duration) Setting {
	return Setting{Name: pausePrefix + businessType, Value: strconv.FormatInt(length.Milliseconds(), 10)}
}

// PausedType reports whether a setting pauses a type, and returns the type. A pause that has ended before Setting.ReadAt
// pauses nothing.
func PausedType(s Setting) (businessType string, paused bool) {
	businessType, is := strings.CutPrefix(s.Name, pausePrefix)
	end := s.PauseEnd()
	return businessType, is && (s.Value == "paused" || !end.IsZero() && s.ReadAt.Before(end))
}

// PauseEnd returns the time at which a pause of PauseFor ends, by the database's clock. For a pause that only a person
// ends, PauseEnd returns the zero time.
func (s Setting) PauseEnd() time.Time {
	millis, err := strconv.ParseInt(s.Value, 10, 64)
	if err != nil || millis <= 0 || millis > MaxDelay.Milliseconds() {
		return time.Time{}
	}
	return s.At.Add(time.Duration(millis) * time.Millisecond)
}
