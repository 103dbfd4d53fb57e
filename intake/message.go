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

// Message is one message of a source. Set aside, it is kept in an entry byte for byte, as far as it is given here: see Fields.
type Message struct {
	// ID names the message within its source and group, for ever: a stream's entry id; topic, partition and offset.
	ID string

	// Fields are of a stream's entry; of other sources what they have of headers. A stream's entry may repeat a name: of its values
	// the last is here, and the others are nowhere, neither for Entry and Work nor in the log. Producers number such names, or put
	// a list into one value.
	Fields map[string]string

	Body []byte // of sources whose messages have one

	// Deliveries counts them, this one included, where the source knows. It survives the processes that die of the message.
	Deliveries int

	// Lost: the source has deleted the message before it was recorded, and knows the id alone.
	Lost bool

	// SetAside is why the message was put aside unworked, at most 1,000 characters. Empty when it was not.
	SetAside string

	// Value is for Config.Entry to leave to Config.Work what it has decoded. It is not stored.
	Value any

	// Entry is nil when the message comes from its source, and otherwise what it has become.
	Entry *compensator.Entry

	dense bool // to be stored in as few bytes as JSON allows, rather than to be read
}

// MessageOf reads the message back from an entry of Config.Type.
func MessageOf(e *compensator.Entry) (*Message, error) {
	m := new(Message)
	if err := e.Decode(m); err != nil {
		return nil, failure("read the message of entry "+e.ID.String(), err)
	}
	m.Entry = e
	return m, nil
}

// stored is a message in an entry. JSON has no room for bytes that are no text: fields with such stand apart, and of a dense
// message those of which it makes more than base64 does.
type stored struct {
	ID         string            `json:"id,omitempty"`
	RawID      []byte            `json:"raw_id,omitempty"`
	Fields     map[string]string `json:"fields,omitempty"`
	Binary     [][2][]byte       `json:"binary,omitempty"`
	Body       []byte            `json:"body,omitempty"`
	Deliveries int               `json:"deliveries,omitempty"`
	Lost       bool              `json:"lost,omitempty"`
	SetAside   string            `json:"parked,omitempty"`
}

// MarshalJSON keeps all but Value and Entry.
func (m Message) MarshalJSON() ([]byte, error) {
	s := stored{Body: m.Body, Deliveries: m.Deliveries, Lost: m.Lost, SetAside: m.SetAside}
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

// swells reports whether texts are longer in JSON, which has six bytes for a control character, <, > and &, than in base64.
func swells(texts ...string) bool {
	inJSON, inBase64 := 0, 0
	for _, text := range texts {
		quoted, _ := json.Marshal(text) // of a string: no error
		inJSON += len(quoted) - len(`""`)
		inBase64 += base64.StdEncoding.EncodedLen(len(text))
	}
	return inJSON > inBase64
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (m *Message) UnmarshalJSON(text []byte) error {
	var s stored
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

// separated keeps the parts of an id apart: "a:b" and "c" are not "a" and "b:c".
var separated = strings.NewReplacer("%", "%25", ":", "%3A")

// idempotencyKey is what a message is recorded under, hashed when the log has no room for it or could not tell it apart.
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
