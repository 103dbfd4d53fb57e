package relay

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// Delivery is a message of a topic as an entry stores it. The payload is stored byte for byte. In the metadata, U+FFFD
// replaces invalid UTF-8.
type Delivery struct {
	Topic    string            `json:"topic"`              // topic of the message
	UUID     string            `json:"uuid,omitempty"`     // UUID of the message
	Metadata map[string]string `json:"metadata,omitempty"` // metadata of the message
	Payload  []byte            `json:"payload"`            // payload of the message

	// SetAside is the reason why the message was set aside without a call of work. It has at most 1,000 characters and
	// is empty for all other messages.
	SetAside string `json:"parked,omitempty"`
}

// DeliveryOf decodes the message from an entry that a Consumer has recorded. It wraps an error of
// compensator.Entry.Decode with the id of the entry.
func DeliveryOf(e *compensator.Entry) (*Delivery, error) {
	d := new(Delivery)
	if err := e.Decode(d); err != nil {
		return nil, fmt.Errorf("watermill: read the message of entry %s: %w", e.ID, err)
	}
	return d, nil
}

// newDelivery copies the message, because the function may change the original.
func newDelivery(topic string, msg *message.Message) *Delivery {
	d := &Delivery{Topic: topic, UUID: msg.UUID, Metadata: maps.Clone(msg.Metadata), Payload: bytes.Clone(msg.Payload)}
	delete(d.Metadata, redeliveredMetadata) // The flag belongs to one delivery, not to the message.
	return d
}

// Message returns a new copy of the message. Ack and Nack of the copy reach no broker.
func (d *Delivery) Message() *message.Message {
	m := message.NewMessage(d.UUID, bytes.Clone(d.Payload))
	maps.Copy(m.Metadata, d.Metadata)
	return m
}

type entryKey struct{}

// EntryFromCtx returns the entry that holds a message, from the message's context. It returns nil if the message comes
// directly from its topic.
func EntryFromCtx(ctx context.Context) *compensator.Entry {
	e, _ := ctx.Value(entryKey{}).(*compensator.Entry)
	return e
}

// idempotencyKey returns a hash if the log cannot store the key, or if a colon in the type or topic makes it ambiguous.
// A message without an id has an empty key.
func idempotencyKey(businessType, topic, messageID string) compensator.IdempotencyKey {
	if messageID == "" {
		return ""
	}
	id := businessType + ":" + topic + ":" + messageID
	if processlog.FitsIdempotencyKey(id) && !strings.Contains(businessType, ":") && !strings.Contains(topic, ":") {
		return compensator.IdempotencyKey(id)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", businessType, topic, messageID))
	return compensator.IdempotencyKey("watermill:sha256:" + hex.EncodeToString(sum[:]))
}
