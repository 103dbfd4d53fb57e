package processlog

import (
	"cmp"
	"fmt"
	"strconv"
)

// ID names one row of the process log. It is opaque: compare it, store its String, hand it back. A
// service that shards its log later keeps the same type, so code that does arithmetic on ids would break.
// The zero ID names no entry.
type ID struct{ row uint64 }

// RowID is the ID of a row number.
func RowID(row uint64) ID { return ID{row} }

// ParseID reads what String wrote, and no other spelling of it.
func ParseID(s string) (ID, error) {
	row, err := strconv.ParseUint(s, 10, 64)
	if err != nil || s[0] == '0' {
		return ID{}, &FieldError{Field: "entry id", Reason: fmt.Sprintf("%q is not an entry id", s)}
	}
	return ID{row}, nil
}

// Row is the number RowID was given.
func (id ID) Row() uint64 { return id.row }

// Compare orders ids as the table does.
func (id ID) Compare(other ID) int { return cmp.Compare(id.row, other.row) }

// IsZero reports whether id names no entry.
func (id ID) IsZero() bool { return id.row == 0 }

// String is stable across versions; ParseID reads it back.
func (id ID) String() string { return strconv.FormatUint(id.row, 10) }

// MarshalText writes the id as text, so that JSON carries it as a string: a number beyond 2^53 would be
// rounded by most readers.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (id *ID) UnmarshalText(text []byte) error {
	parsed, err := ParseID(string(text))
	if err == nil {
		*id = parsed
	}
	return err
}

// Ref names an entry in the calls a service or a person makes: an ID, or an IdempotentID when the
// caller knows only the key it recorded under.
type Ref interface{ isRef() }

// IdempotentID refers to an entry by the key it was recorded with.
type IdempotentID string

func (ID) isRef()           {}
func (IdempotentID) isRef() {}
