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

// Delivery is a message of a topic as it is kept in an entry: as it came, the payload byte for byte. Metadata that is
// not valid UTF-8 is kept with U+FFFD in its place.
type Delivery struct {
	Topic    string            `json:"topic"`
	UUID     string            `json:"uuid,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Payload  []byte            `json:"payload"`

	// SetAside is why the message was put aside: nobody has worked on it since. Empty when it was not; at most 1,000 characters.
	SetAside string `json:"parked,omitempty"`
}

// DeliveryOf reads the message back from an entry that a Consumer has recorded.
func DeliveryOf(e *compensator.Entry) (*Delivery, error) {
	d := new(Delivery)
	if err := e.Decode(d); err != nil {
		return nil, fmt.Errorf("watermill: read the message of entry %s: %w", e.ID, err)
	}
	return d, nil
}

// newDelivery is a copy: the function may change what it is given.
func newDelivery(topic string, msg *message.Message) *Delivery {
	d := &Delivery{Topic: topic, UUID: msg.UUID, Metadata: maps.Clone(msg.Metadata), Payload: bytes.Clone(msg.Payload)}
	delete(d.Metadata, redeliveredMetadata) // it is the delivery's, not the message's
	return d
}

// Message is the message anew, with nobody who waits for its acknowledgement.
func (d *Delivery) Message() *message.Message {
	m := message.NewMessage(d.UUID, bytes.Clone(d.Payload))
	maps.Copy(m.Metadata, d.Metadata)
	return m
}

type entryKey struct{}

// EntryFromCtx is the entry that a message comes from, by the message's context: nil when it comes from its topic.
func EntryFromCtx(ctx context.Context) *compensator.Entry {
	e, _ := ctx.Value(entryKey{}).(*compensator.Entry)
	return e
}

// idempotencyKey is what a message is recorded under: type, topic and message id, hashed when the log has no room for
// them or could not tell them apart. A message without an id has none.
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
