package sqlstore

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/compensator-go/compensator/processlog"
)

// listOrder says by what a listing sorts its entries. Entries that are equal in that respect are sorted by their ids.
type listOrder string

const (
	orderID      listOrder = "id"
	orderCreated listOrder = "created"
	orderDue     listOrder = "due" // by next_at
	orderKey     listOrder = "key" // by the id that the filter names
)

type listPosition struct {
	at  int64 // value of the column that the listing sorts by, in ms since 1970; unused by orderID and orderKey
	id  processlog.ID
	key string // value of the column that the listing sorts by; used by orderKey alone
}

const cursorVersion = "1"

// cursor encodes a position. Later versions of the library must read it too.
func (l *listing) cursor(p listPosition) string {
	text := fmt.Sprintf("%s.%s%s.%d.%s", cursorVersion, l.order, l.direction(), p.at, p.id)
	if l.order == orderKey {
		text += "." + p.key
	}
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

// parseCursor returns nil for an empty text. It refuses a cursor of another order, with which the page would skip entries.
func parseCursor(text string, order listOrder, newest bool) (*listPosition, error) {
	if text == "" {
		return nil, nil
	}
	refused := &processlog.FieldError{Field: "cursor", Reason: "is not one that List returned"}
	decoded, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil, refused
	}
	parts := strings.SplitN(string(decoded), ".", 5)
	if len(parts) < 4 {
		return nil, refused
	}
	if parts[0] != cursorVersion {
		return nil, &processlog.FieldError{Field: "cursor", Reason: "was written by another version of this library"}
	}
	at, atErr := strconv.ParseInt(parts[2], 10, 64)
	id, idErr := processlog.ParseID(parts[3])
	if atErr != nil || idErr != nil {
		return nil, refused
	}
	l := listing{order: order, f: processlog.Filter{Newest: newest}}
	if parts[1] != string(order)+l.direction() {
		return nil, &processlog.FieldError{Field: "cursor", Reason: "belongs to another listing: the filter or its direction changed"}
	}
	p := &listPosition{at: at, id: id}
	switch {
	case order == orderKey && len(parts) == 5 && utf8.ValidString(parts[4]):
		p.key = parts[4]
	case order == orderKey || len(parts) == 5:
		return nil, refused
	}
	return p, nil
}
