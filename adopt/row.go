package adopt

import (
	"bytes"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// Row is an old row during a call of Config.Map.
type Row struct {
	Key  string // the row's key as text; bytes are in hexadecimal
	rows *sql.Rows
}

// Scan reads Config.Columns, as sql.Rows.Scan does.
func (r *Row) Scan(dest ...any) error { return r.rows.Scan(append([]any{new(any)}, dest...)...) }

// Skip returns an error. Config.Map returns this error to leave a row to the old system. The report counts the row
// under reason, so use only a few different reasons.
func Skip(reason string) error { return &skippedRow{reason} }

type skippedRow struct{ reason string }

func (s *skippedRow) Error() string { return "skipped: " + s.reason }

type key struct {
	value any
	text  string
}

// keyOf returns a string for a text column. With a []byte MySQL would compare bytes, and their order differs from the
// order of the text index.
func keyOf(value any, column *sql.ColumnType) (key, error) {
	kind := strings.ToUpper(column.DatabaseTypeName())
	switch v := value.(type) {
	case int64, uint64:
		return key{v, fmt.Sprint(v)}, nil
	case string:
		return key{v, v}, nil
	case []byte:
		switch text := string(v); {
		case strings.Contains(kind, "INT"):
			if n, err := strconv.ParseInt(text, 10, 64); err == nil {
				return key{n, text}, nil
			}
			n, err := strconv.ParseUint(text, 10, 64)
			return key{n, text}, err
		case strings.Contains(kind, "CHAR"), strings.Contains(kind, "TEXT"):
			return key{text, text}, nil
		case strings.Contains(kind, "BINARY"), strings.Contains(kind, "BLOB"):
			return key{bytes.Clone(v), hex.EncodeToString(v)}, nil
		}
	}
	return key{}, &compensator.FieldError{Field: "Key", Reason: fmt.Sprintf("holds a %T (%s): want whole numbers, text or bytes, and no NULL", value, kind)}
}

// idempotencyKey must never change for a row.
func (im *Import) idempotencyKey(row string) compensator.IdempotencyKey {
	id := im.cfg.Name + ":" + row
	if processlog.FitsIdempotencyKey(id) {
		return compensator.IdempotencyKey(id)
	}
	sum := sha256.Sum256([]byte(row))
	return compensator.IdempotencyKey(im.cfg.Name + "#" + hex.EncodeToString(sum[:])) // A Name contains neither # nor a colon, so a hashed key cannot equal an unhashed key.
}
