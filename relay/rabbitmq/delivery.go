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

// Delivery is a message of a queue, as its function is given it, and as it is kept in an entry: the body byte for
// byte. It looks the same from either.
type Delivery struct {
	Queue           string    `json:"queue"`
	Exchange        string    `json:"exchange,omitempty"`
	Key             string    `json:"key,omitempty"` // the routing key
	MessageID       string    `json:"message_id,omitempty"`
	Type            string    `json:"type,omitempty"`
	ContentType     string    `json:"content_type,omitempty"`
	ContentEncoding string    `json:"content_encoding,omitempty"`
	CorrelationID   string    `json:"correlation_id,omitempty"`
	ReplyTo         string    `json:"reply_to,omitempty"`
	AppID           string    `json:"app_id,omitempty"`
	Timestamp       time.Time `json:"timestamp,omitzero"` // seconds; zero when it lies beyond the year 9999, which JSON lacks

	// Headers in JSON's terms: integers are int64, other numbers float64; bytes and times, as RFC 3339, are strings. Tables and
	// lists within 100 others are nil.
	Headers map[string]any `json:"headers,omitempty"`
	Body    []byte         `json:"body"`

	// SetAside is why the message was put aside: nobody has worked on it since. Empty when it was not; at most 1,000 characters. See
	// Consumer.Park.
	SetAside string `json:"parked,omitempty"`

	// Entry is nil when the message comes from its queue, and otherwise what it has become.
	Entry *compensator.Entry `json:"-"`
}

// DeliveryOf reads the message back from an entry that a Consumer has recorded.
func DeliveryOf(e *compensator.Entry) (*Delivery, error) {
	d := new(Delivery)
	if err := e.Decode(d); err != nil {
		return nil, failure("read the message of entry "+e.ID.String(), err)
	}
	d.Entry = e
	return d, nil
}

// UnmarshalJSON keeps integers of headers whole.
func (d *Delivery) UnmarshalJSON(text []byte) error {
	type plain Delivery
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode((*plain)(d)); err != nil {
		return err
	}
	if d.Headers != nil {
		d.Headers = inJSON(d.Headers, 0).(map[string]any)
	}
	return nil
}

func newDelivery(queue string, from *amqp091.Delivery) *Delivery {
	d := &Delivery{
		Queue: queue, Exchange: from.Exchange, Key: from.RoutingKey, MessageID: from.MessageId, Type: from.Type,
		ContentType: from.ContentType, ContentEncoding: from.ContentEncoding, CorrelationID: from.CorrelationId,
		ReplyTo: from.ReplyTo, AppID: from.AppId, Timestamp: from.Timestamp.UTC(), Body: from.Body,
	}
	if year := d.Timestamp.Year(); from.Timestamp.IsZero() || year < 0 || year > 9999 {
		d.Timestamp = time.Time{}
	}
	if len(from.Headers) > 0 {
		d.Headers = inJSON(map[string]any(from.Headers), 0).(map[string]any)
	}
	return d
}

// maxDepth is how many tables and lists within each other are kept. JSON of 10,000 is written, and never read again.
const maxDepth = 100

// unescaped is compensator.JSON, but that <, > and & are one byte each and not six: headers have no other way to be short.
type unescaped struct{}

func (unescaped) Marshal(v any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), err
}

func (unescaped) Unmarshal(text []byte, v any) error { return json.Unmarshal(text, v) }

// inJSON is a header's value as it is after a way through JSON.
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
	return value // bool, int64, nil
}

// float is a number that JSON has: it knows no infinity, and does not tell 2.0 from 2.
func float(f float64) any {
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0):
		return nil
	case f == math.Trunc(f) && math.Abs(f) < 1<<53:
		return int64(f)
	}
	return f
}

// idempotencyKey is what a message is recorded under: type, queue and message id, hashed when the log has no room for
// them or could not tell them apart. A message without an id has none.
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
