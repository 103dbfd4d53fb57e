package rabbitmq

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/rabbitmq/amqp091-go"

	"github.com/compensator-go/compensator"
)

const (
	maxShort   = 255      // maximum length of a name in AMQP, in bytes; amqp091 silently truncates longer names
	maxHeaders = 24 << 10 // maximum size of all headers as JSON, in bytes. One byte of JSON may take five in AMQP, and the headers must fit a frame of 128 KiB
	frameEnds  = 8        // bytes that a frame needs besides its payload
)

type message struct {
	exchange, key string
	mandatory     bool
	publishing    amqp091.Publishing
}

func newMessage(e *compensator.Entry, destination Destination) (*message, error) {
	setDefault(&destination.ContentType, "application/json")
	headers := make(amqp091.Table, len(e.Headers)+len(destination.Headers)+1)
	for name, value := range e.Headers {
		headers[name] = value
	}
	for name, value := range destination.Headers {
		headers[name] = value
	}
	headers[KeyHeader] = e.CallKey()
	m := &message{exchange: destination.Exchange, key: destination.Key, mandatory: !destination.NotMandatory, publishing: amqp091.Publishing{
		MessageId: messageID(e), Type: e.BusinessType, Timestamp: e.CreatedAt, DeliveryMode: amqp091.Persistent,
		Headers: headers, ContentType: destination.ContentType, Body: e.Content,
	}}
	if problem := m.problem(); problem != "" {
		return nil, m.newRefusedError(0, problem)
	}
	return m, nil
}

// messageID is limited to 255 bytes by AMQP.
func messageID(e *compensator.Entry) string {
	if len(e.IdempotencyKey) <= maxShort {
		return string(e.IdempotencyKey)
	}
	sum := sha256.Sum256([]byte(e.IdempotencyKey))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// problem returns "" if the message can be sent.
func (m *message) problem() string {
	for name, value := range map[string]string{
		"Exchange": m.exchange, "Key": m.key, "ContentType": m.publishing.ContentType, "business type": m.publishing.Type,
	} {
		if len(value) > maxShort {
			return fmt.Sprintf("%s: %d bytes, at most %d", name, len(value), maxShort)
		}
	}
	for name := range m.publishing.Headers {
		if len(name) > maxShort {
			return fmt.Sprintf("Headers: a name of %d bytes, at most %d", len(name), maxShort)
		}
	}
	if err := m.publishing.Headers.Validate(); err != nil {
		return "Headers: " + err.Error()
	}
	if text, err := json.Marshal(m.publishing.Headers); err != nil {
		return "Headers: " + err.Error()
	} else if len(text) > maxHeaders {
		return fmt.Sprintf("Headers: %d bytes as JSON, at most %d", len(text), maxHeaders)
	}
	return ""
}

// sizeProblem takes 0 for no limit. The headers must fit one frame. Otherwise the broker closes the connection of all
// senders.
func (m *message) sizeProblem(limit int) string {
	p := &m.publishing
	size := frameEnds + 2 + 2 + 8 + 2 + // class, weight, body size, property flags
		1 + len(p.ContentType) + tableSize(p.Headers) + 1 + 1 + len(p.MessageId) + 8 + 1 + len(p.Type)
	if limit == 0 || size <= limit {
		return ""
	}
	return fmt.Sprintf("Headers: a frame of %d bytes, this connection allows at most %d", size, limit)
}

// tableSize returns how many bytes a table takes in a frame. The encoding is the one of AMQP 0-9-1, section 4.2.5, in
// the variant that RabbitMQ reads.
func tableSize(t amqp091.Table) int {
	size := 4
	for name, value := range t {
		size += 1 + len(name) + valueSize(value)
	}
	return size
}

func valueSize(value any) int {
	switch v := value.(type) {
	case nil:
		return 1
	case string:
		return 5 + len(v)
	case []byte:
		return 5 + len(v)
	case amqp091.Table:
		return 1 + tableSize(v)
	case []any:
		size := 5
		for _, item := range v {
			size += valueSize(item)
		}
		return size
	}
	return 9 // numbers and times take at most 9 bytes
}

func (m *message) newRefusedError(code int, reason string) *RefusedError {
	return &RefusedError{Exchange: m.exchange, Key: m.key, Code: code, Reason: reason}
}
