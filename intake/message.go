package intake

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// Message is one message of a source. When it is set aside, an entry stores it byte for byte. There is one exception:
// see Fields.
type Message struct {
	// ID identifies the message within its source and group, and never changes. For a stream it is the entry id. For
	// Kafka it may be topic, partition and offset.
	ID string

	// Fields holds the fields of a stream's message, or the headers of a message from another source. If a field name
	// repeats, Fields holds its last value only. The other values are lost: Entry, Work and the log never see them. So
	// producers should use numbered names, or put a list into one value.
	Fields map[string]string

	Body []byte // body of the message, if the source's messages have a body

	// Deliveries counts the deliveries of the message, including this one. It is 0 if the source does not count them.
	// The source keeps the count even if the message crashes its process.
	Deliveries int

	// Lost says that the source deleted the message before it was recorded. Only the ID is known.
	Lost bool

	// SetAside is the reason why the message was set aside without a call of Work. It has at most 1,000 characters and
	// is empty for all other messages.
	SetAside string

	// Value lets Config.Entry pass a decoded value to Config.Work. It is not stored.
	Value any

	// Entry is the entry that holds the message. It is nil when the message comes from its source.
	Entry *compensator.Entry

	dense bool // whether to encode the message in as few bytes as possible, even if people cannot read it
}

// MessageOf decodes the message from an entry of Config.Type, for example from an entry that Log.List of package admin
// returned. It wraps an error of Entry.Decode with the id of the entry.
func MessageOf(e *compensator.Entry) (*Message, error) {
	m := new(Message)
	if err := e.Decode(m); err != nil {
		return nil, failure("read the message of entry "+e.ID.String(), err)
	}
	m.Entry = e
	return m, nil
}

// storedMessage is the JSON form of a Message. The field Fields has the fields of the Message as text. The field Binary
// has the exceptions as base64. An exception is a field of the Message in one of these cases:
//
//   - The name or the value of the field is no valid UTF-8.
//   - Message.dense is true, which asks for as few bytes as possible, and the field is shorter in base64.
type storedMessage struct {
	ID         string            `json:"id,omitempty"`
	RawID      []byte            `json:"raw_id,omitempty"`
	Fields     map[string]string `json:"fields,omitempty"`
	Binary     [][2][]byte       `json:"binary,omitempty"`
	Body       []byte            `json:"body,omitempty"`
	Deliveries int               `json:"deliveries,omitempty"`
	Lost       bool              `json:"lost,omitempty"`
	SetAside   string            `json:"parked,omitempty"`
}

// MarshalJSON encodes all fields except Value and Entry.
func (m Message) MarshalJSON() ([]byte, error) {
	s := storedMessage{Body: m.Body, Deliveries: m.Deliveries, Lost: m.Lost, SetAside: m.SetAside}
	if s.ID = m.ID; !utf8.ValidString(m.ID) {
		s.ID, s.RawID = "", []byte(m.ID)
	}
	for name, value := range m.Fields {
		if !utf8.ValidString(name) || !utf8.ValidString(value) || m.dense && swells(name, value) {
			s.Binary = append(s.Binary, [2][]byte{[]byte(name), []byte(value)})
			continue
		}
		if s.Fields == nil {
			s.Fields = make(map[string]string, len(m.Fields))
		}
		s.Fields[name] = value
	}
	return json.Marshal(s)
}

// swells reports whether texts are longer in JSON than in base64. JSON takes six bytes for a control character and for
// each <, > and &.
func swells(texts ...string) bool {
	inJSON, inBase64 := 0, 0
	for _, text := range texts {
		quoted, _ := json.Marshal(text)
		inJSON += len(quoted) - len(`""`)
		inBase64 += base64.StdEncoding.EncodedLen(len(text))
	}
	return inJSON > inBase64
}

// UnmarshalJSON decodes the result of MarshalJSON.
func (m *Message) UnmarshalJSON(text []byte) error {
	var s storedMessage
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	*m = Message{ID: s.ID, Fields: s.Fields, Body: s.Body, Deliveries: s.Deliveries, Lost: s.Lost, SetAside: s.SetAside}
	if s.RawID != nil {
		m.ID = string(s.RawID)
	}
	for _, pair := range s.Binary {
		if m.Fields == nil {
			m.Fields = make(map[string]string, len(s.Binary))
		}
		m.Fields[string(pair[0])] = string(pair[1])
	}
	return nil
}

// separated escapes the separator, so that "a:b" and "c" differ from "a" and "b:c".
var separated = strings.NewReplacer("%", "%25", ":", "%3A")

// idempotencyKey returns a hash if the log cannot store the key.
func idempotencyKey(parts ...string) compensator.IdempotencyKey {
	var id strings.Builder
	id.WriteString("intake")
	for _, part := range parts {
		id.WriteByte(':')
		_, _ = separated.WriteString(&id, part)
	}
	text := id.String()
	if processlog.FitsIdempotencyKey(text) {
		return compensator.IdempotencyKey(text)
	}
	return compensator.IdempotencyKey("intake#sha256:" + digest([]byte(text)))
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
