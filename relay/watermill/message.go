package relay

import (
	"context"
	"maps"
	"time"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/compensator-go/compensator"
)

// newMessage gives the message the context of the attempt.
func newMessage(ctx context.Context, e *compensator.Entry, destination Destination) (*message.Message, error) {
	if err := destination.problem(); err != nil {
		return nil, err
	}
	m := message.NewMessage(string(e.IdempotencyKey), e.Content)
	maps.Copy(m.Metadata, e.Headers)
	maps.Copy(m.Metadata, destination.Metadata)
	m.Metadata.Set(KeyMetadata, e.CallKey())
	m.Metadata.Set(TypeMetadata, e.BusinessType)
	m.Metadata.Set(CreatedMetadata, e.CreatedAt.Format(time.RFC3339Nano))
	m.SetContext(ctx)
	return m, nil
}

func (destination Destination) problem() error {
	if destination.Topic == "" {
		return &compensator.FieldError{Field: "Topic", Reason: "is empty"}
	}
	for name, value := range destination.Metadata {
		if name == "" || !utf8.ValidString(name) || !utf8.ValidString(value) {
			return &compensator.FieldError{Field: "Metadata", Reason: "names must not be empty, and names and values must be valid UTF-8"}
		}
	}
	return nil
}
