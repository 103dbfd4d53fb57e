package processlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// BulkID identifies an action on several entries. It is part of a URL, so nobody must be able to guess it.
type BulkID struct {
	Record uint64 // number of the action's first record in the audit table
	Secret string // random text, 16 to 32 lowercase letters and digits
}

// String returns the record and the secret, joined by a hyphen. ParseBulkID parses this text.
func (id BulkID) String() string { return strconv.FormatUint(id.Record, 10) + "-" + id.Secret }

// MarshalText returns the result of String.
func (id BulkID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText parses the result of String. For any other text it returns a *FieldError.
func (id *BulkID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseBulkID(string(text))
	return err
}

// ParseBulkID parses the result of BulkID.String. For any other text it returns a *FieldError.
func ParseBulkID(text string) (BulkID, error) {
	number, secret, _ := strings.Cut(text, "-")
	record, err := strconv.ParseUint(number, 10, 63)
	isForeign := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }
	if err != nil || record == 0 || len(secret) < 16 || len(secret) > 32 || strings.ContainsFunc(secret, isForeign) {
		return BulkID{}, &FieldError{Field: "bulk action", Reason: fmt.Sprintf("%q is no id of one", text)}
	}
	return BulkID{record, secret}, nil
}

// BulkBatch is one batch of an action on several entries. The audit table has one row for each batch.
type BulkBatch struct {
	// ID is the id of the action. Its number ID.Record is that of the action's first row in the audit table. So
	// ID.Record is 0 until ChangeBulk has stored the first batch.
	ID     BulkID
	Record uint64 // number of this batch's row in the audit table. ChangeBulk ignores it
	// Follows is the Record of the batch before this one. ChangeBulk changes nothing if another batch already follows
	// that batch. 0 means that ChangeBulk does not check.
	Follows uint64
	Once    bool            // for ChangeBulk of a first batch: do nothing if an earlier action has the same Secret
	At      time.Time       // when the batch was stored. UTC, milliseconds
	Action  Action          // what was done
	Actor   string          // person who acted
	Reason  string          // reason that Actor gave
	Entries []BulkEntry     // entries that the batch changed
	Skipped []BulkSkip      // entries that the batch left as they were
	Plan    json.RawMessage // what the caller needs to continue the action, as JSON. A store does not read it
}

// Match selects entries for MatchingIDs.
type Match struct {
	Filter Filter // States must not be empty. Limit, Newest, MaxRead, Outline and Cursor do not matter
	// Fingerprint is the fingerprint of the failure in the entry's open case. Zero selects any entry, also without a
	// case.
	Fingerprint Fingerprint
	After, UpTo ID  // only ids higher than After, and not higher than UpTo. Zero: no bound
	Limit       int // maximum number of ids
}

// Validate returns a *FieldError if the filter is invalid or names no state.
func (m Match) Validate() error {
	if len(m.Filter.States) == 0 {
		return &FieldError{Field: "states", Reason: "name a state"}
	}
	// List may leave out entries if the filter has Leased but no type. The action would then miss these entries.
	if m.Filter.LeasedOfAllTypes() {
		return &FieldError{Field: "filter", Reason: "Leased wants a type, an id, or a created range"}
	}
	_, err := m.Filter.Narrowed()
	return err
}

// Admits reports whether an entry matches. c is the case of the entry, or nil if it has none.
func (m Match) Admits(row *Row, c *Case) bool {
	return m.Filter.Admits(row) && (m.Fingerprint == (Fingerprint{}) || c != nil && c.ClosedAt.IsZero() && c.Fingerprint == m.Fingerprint)
}

// BulkEntry is an entry as an action has left it.
type BulkEntry struct {
	ID      ID     `json:"id"`      // Row.ID
	Version uint64 `json:"version"` // Row.Version after the action
	Epoch   uint32 `json:"epoch"`   // Row.Epoch after the action
}

// BulkSkip is an entry that an action did not change.
type BulkSkip struct {
	ID  ID     `json:"id"`  // Row.ID
	Why string `json:"why"` // one word, for example changed
}

// Reasons of BulkSkip for the errors of a store.
const (
	BulkChanged  = "changed"   // ErrChanged
	BulkBusy     = "busy"      // ErrBusy
	BulkNotFound = "not_found" // ErrNotFound
	BulkState    = "state"     // a *StateError or another error of Change.After
)

// With returns the batch with the results of its change: answers[i] is the answer for seen[i].
func (b BulkBatch) With(seen []Version, answers []Changed, change Change) BulkBatch {
	entries, skipped := make([]BulkEntry, 0, len(b.Entries)+len(seen)), make([]BulkSkip, 0, len(b.Skipped)+len(seen))
	entries, skipped = append(entries, b.Entries...), append(skipped, b.Skipped...)
	for i, answer := range answers {
		after, err := change.After(answer.Before)
		switch {
		case answer.Err != nil:
			skipped = append(skipped, BulkSkip{seen[i].ID, skipReason(answer.Err)})
		case err == nil:
			entries = append(entries, BulkEntry{seen[i].ID, after.Version, after.Epoch})
		}
	}
	b.Entries, b.Skipped = entries, skipped
	return b
}

func skipReason(err error) string {
	switch {
	case errors.Is(err, ErrChanged):
		return BulkChanged
	case errors.Is(err, ErrBusy):
		return BulkBusy
	case errors.Is(err, ErrNotFound):
		return BulkNotFound
	}
	return BulkState
}

// EntryCount returns a number of entries in words, such as "1 entry".
func EntryCount(n int) string {
	if n == 1 {
		return "1 entry"
	}
	return fmt.Sprintf("%d entries", n)
}
