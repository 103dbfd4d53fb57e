package rabbitmq

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// Delivery is a message of a queue. Work gets it from the broker or from an entry, which stores the body byte for byte.
// The fields are equal in both cases.
type Delivery struct {
	Queue           string    `json:"queue"`                      // queue that held the message
	Exchange        string    `json:"exchange,omitempty"`         // exchange to which the message was published; empty: the default exchange
	Key             string    `json:"key,omitempty"`              // the routing key
	MessageID       string    `json:"message_id,omitempty"`       // AMQP property message-id
	Type            string    `json:"type,omitempty"`             // AMQP property type
	ContentType     string    `json:"content_type,omitempty"`     // AMQP property content-type
	ContentEncoding string    `json:"content_encoding,omitempty"` // AMQP property content-encoding
	CorrelationID   string    `json:"correlation_id,omitempty"`   // AMQP property correlation-id
	ReplyTo         string    `json:"reply_to,omitempty"`         // AMQP property reply-to
	AppID           string    `json:"app_id,omitempty"`           // AMQP property app-id
	Timestamp       time.Time `json:"timestamp,omitzero"`         // precision of seconds; zero for a year after 9999, which JSON cannot hold

	// Headers holds the headers as they are after encoding to JSON and decoding. Integers are int64, and other numbers
	// are float64. Bytes are strings, and times are strings in RFC 3339. Tables and lists nested more than 100 levels
	// deep are nil.
	Headers map[string]any `json:"headers,omitempty"`
	Body    []byte         `json:"body"` // the body, unchanged. In JSON it is in base64

	// SetAside is the reason why the message was set aside without a call of Work. It has at most 1,000 characters and
	// is empty for all other messages. See Consumer.SetAside.
	SetAside string `json:"parked,omitempty"`

	// Entry is the entry that holds the message. It is nil when the message comes from its queue.
	Entry *compensator.Entry `json:"-"`
}

// DeliveryOf decodes the message from an entry that a Consumer has recorded. It wraps an error of
// compensator.Entry.Decode with the id of the entry.
func DeliveryOf(e *compensator.Entry) (*Delivery, error) {
	d := new(Delivery)
	if err := e.Decode(d); err != nil {
		return nil, wrapError("read the message of entry "+e.ID.String(), err)
	}
	d.Entry = e
	return d, nil
}

// UnmarshalJSON decodes integers in headers without loss.
func (d *Delivery) UnmarshalJSON(text []byte) error {
	type plainDelivery Delivery
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode((*plainDelivery)(d)); err != nil {
		return err
	}
	if d.Headers != nil {
		d.Headers = inJSON(d.Headers, 0).(map[string]any)
	}
	return nil
}

func newDelivery(queue string, source *amqp091.Delivery) *Delivery {
	d := &Delivery{
		Queue: queue, Exchange: source.Exchange, Key: source.RoutingKey, MessageID: source.MessageId, Type: source.Type,
		ContentType: source.ContentType, ContentEncoding: source.ContentEncoding, CorrelationID: source.CorrelationId,
		ReplyTo: source.ReplyTo, AppID: source.AppId, Timestamp: source.Timestamp.UTC(), Body: source.Body,
	}
	if year := d.Timestamp.Year(); source.Timestamp.IsZero() || year < 0 || year > 9999 {
		d.Timestamp = time.Time{}
	}
	if len(source.Headers) > 0 {
		d.Headers = inJSON(map[string]any(source.Headers), 0).(map[string]any)
	}
	return d
}

// maxDepth limits the nesting of headers in an entry. encoding/json can write deeper values, but it cannot read values
// with more than 10,000 levels.
const maxDepth = 100

// unescaped leaves out HTML escaping, by which <, > and & would take six bytes instead of one.
type unescaped struct{}

func (unescaped) Marshal(v any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), err
}

func (unescaped) Unmarshal(text []byte, v any) error { return json.Unmarshal(text, v) }

// inJSON returns the value after encoding to JSON and decoding.
func inJSON(value any, depth int) any {
	switch v := value.(type) {
	case amqp091.Table:
		return inJSON(map[string]any(v), depth)
	case map[string]any:
		if depth == maxDepth {
			return nil
		}
		table := make(map[string]any, len(v))
		for name, inner := range v {
			table[validText(name)] = inJSON(inner, depth+1)
		}
		return table
	case []any:
		if depth == maxDepth {
			return nil
		}
		list := make([]any, len(v))
		for i, inner := range v {
			list[i] = inJSON(inner, depth+1)
		}
		return list
	case string:
		return validText(v)
	case []byte:
		return validText(string(v))
	case time.Time:
		return v.UTC().Format(time.RFC3339)
	case amqp091.Decimal:
		return float(float64(v.Value) / math.Pow10(int(v.Scale)))
	}
	return number(value)
}

func validText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func number(value any) any {
	switch v := value.(type) {
	case byte:
		return int64(v)
	case int8:
		return int64(v)
	case int16:
		return int64(v)
	case int32:
		return int64(v)
	case uint16:
		return int64(v)
	case uint32:
		return int64(v)
	case int:
		return int64(v)
	case float32:
		return float(float64(v))
	case float64:
		return float(v)
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64()
		return float(f)
	}
	return value // The value is a bool, an int64 or nil.
}

// float returns nil for infinity, which JSON lacks, and 2 for 2.0.
func float(f float64) any {
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0):
		return nil
	case f == math.Trunc(f) && math.Abs(f) < 1<<53:
		return int64(f)
	}
	return f
}

// idempotencyKey returns a hash if the log cannot store the key, or if a colon in the type or queue makes it ambiguous.
// A message without an id has an empty key.
func idempotencyKey(businessType string, d *Delivery) compensator.IdempotencyKey {
	if d.MessageID == "" {
		return ""
	}
	id := businessType + ":" + d.Queue + ":" + d.MessageID
	if processlog.FitsIdempotencyKey(id) && !strings.Contains(businessType, ":") && !strings.Contains(d.Queue, ":") {
		return compensator.IdempotencyKey(id)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", businessType, d.Queue, d.MessageID))
	return compensator.IdempotencyKey("rabbitmq:sha256:" + hex.EncodeToString(sum[:]))
}
