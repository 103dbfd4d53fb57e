package rabbitmq

import (
	"github.com/rabbitmq/amqp091-go"

	"github.com/compensator-go/compensator"
)

// KeyHeader is the header that holds Entry.CallKey. The value is the same for every attempt, and it changes when a
// person requeues the entry. It overrides a header of the same name from a route.
const KeyHeader = "compensator-key"

// Destination is the target of a message, with the message's headers and content type.
type Destination struct {
	Exchange string // "" means the default exchange; at most 255 bytes
	Key      string // the routing key; at most 255 bytes

	// Headers are added to the headers of the entry, and override headers of the same name. All headers together may
	// take at most 24 KiB as JSON.
	Headers amqp091.Table

	// NotMandatory publishes the message without AMQP's mandatory flag. Set it for an exchange that routes a message
	// only after it has confirmed the message, for example an exchange of type x-delayed-message. With the flag,
	// RabbitMQ returns such a message at once, so the entry would fail although the message is delivered later.
	//
	// Without the flag, the broker confirms a message and drops it if no queue is bound. So give such an exchange an
	// alternate exchange.
	NotMandatory bool

	// ContentType is the content type of the body. Default "application/json", as compensator.JSON writes it.
	ContentType string
}

// Route returns the destination of an entry. It is called before each attempt, concurrently. An error is the outcome of
// the attempt, like a handler's error. Return compensator.Permanent if another attempt is pointless.
type Route func(e *compensator.Entry) (Destination, error)

// To returns a Route that sends all entries to one exchange and key.
func To(exchange, key string) Route {
	return func(*compensator.Entry) (Destination, error) {
		return Destination{Exchange: exchange, Key: key}, nil
	}
}
