package processlog

import (
	"cmp"
	"fmt"
	"strconv"
)

// ID identifies one row of the process log. It is opaque: do not compute with ids, because a later version may give them
// another form. The zero ID identifies no entry.
type ID struct{ row uint64 }

// RowID returns the ID of a row number.
func RowID(row uint64) ID { return ID{row} }

// ParseID parses the result of String, and nothing else. It refuses the zero ID. Its error is a *FieldError.
func ParseID(s string) (ID, error) {
	row, err := strconv.ParseUint(s, 10, 64)
	if err != nil || s[0] == '0' {
		return ID{}, &FieldError{Field: "entry id", Reason: fmt.Sprintf("%q is not an entry id", s)}
	}
	return ID{row}, nil
}

// Row returns the number that RowID was given.
func (id ID) Row() uint64 { return id.row }

// Compare orders ids as the table does, and returns -1, 0 or +1.
func (id ID) Compare(other ID) int { return cmp.Compare(id.row, other.row) }

// IsZero reports whether id names no entry.
func (id ID) IsZero() bool { return id.row == 0 }

// String returns a text that is stable across versions. ParseID parses it.
func (id ID) String() string { return strconv.FormatUint(id.row, 10) }

// MarshalText returns the id as text, because many JSON decoders would round a number above 2^53.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText parses the text of MarshalText. Unlike ParseID it accepts the zero ID.
func (id *ID) UnmarshalText(text []byte) error {
	if string(text) == "0" {
		*id = ID{}
		return nil
	}
	parsed, err := ParseID(string(text))
	if err == nil {
		*id = parsed
	}
	return err
}

// Ref identifies an entry in a call of a service or a person. It is an ID or an IdempotencyKey.
type Ref interface{ isRef() }

// IdempotencyKey is the idempotency key with which an entry was recorded. The empty key identifies no entry.
type IdempotencyKey string

func (ID) isRef()             {}
func (IdempotencyKey) isRef() {}
