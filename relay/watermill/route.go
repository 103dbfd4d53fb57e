package relay

import "github.com/compensator-go/compensator"

// Metadata that each message carries. Whatever else puts something there is replaced.
const (
	KeyMetadata     = "compensator-key"        // Entry.Key: the same for every attempt, another once a person has requeued the entry
	TypeMetadata    = "compensator-type"       // the business type
	CreatedMetadata = "compensator-created-at" // Entry.CreatedAt, as RFC 3339 with fractions
)

// Destination is where an entry goes, and what its message carries beside the content.
type Destination struct {
	Topic string

	// Metadata is added to the headers that travelled with the entry, and wins over them. In valid UTF-8, with names.
	Metadata map[string]string
}

// Route says where an entry goes. It is called before each attempt, concurrently. An error of it is the attempt's
// outcome, as a handler's is: Permanent where trying again is pointless.
type Route func(e *compensator.Entry) (Destination, error)

// To is the Route of a type whose entries all go to one topic.
func To(topic string) Route {
	return func(*compensator.Entry) (Destination, error) { return Destination{Topic: topic}, nil }
}
