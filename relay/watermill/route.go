package relay

import "github.com/compensator-go/compensator"

// These metadata are on each message. They replace metadata of the same name from headers and routes.
const (
	KeyMetadata     = "compensator-key"        // Entry.CallKey, which is the same for every attempt and changes when a person requeues the entry
	TypeMetadata    = "compensator-type"       // the business type
	CreatedMetadata = "compensator-created-at" // Entry.CreatedAt in RFC 3339 with fractions of a second
)

// Destination is the target of a message, with the message's metadata.
type Destination struct {
	Topic string // topic to publish to

	// Metadata is added to the headers of the entry, and overrides headers of the same name. Names must not be empty,
	// and names and values must be valid UTF-8.
	Metadata map[string]string
}

// Route returns the destination of an entry. It is called before each attempt, concurrently. An error is the outcome of
// the attempt, like a handler's error. Return compensator.Permanent if another attempt is pointless.
type Route func(e *compensator.Entry) (Destination, error)

// To returns a Route that sends all entries to one topic.
func To(topic string) Route {
	return func(*compensator.Entry) (Destination, error) { return Destination{Topic: topic}, nil }
}
