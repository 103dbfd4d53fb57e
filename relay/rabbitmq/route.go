package rabbitmq

import (
	"github.com/rabbitmq/amqp091-go"

	"github.com/compensator-go/compensator"
)

// KeyHeader is the header that carries Entry.Key: the same for every attempt, another once a person has requeued the
// entry. Whatever a route puts there is replaced.
const KeyHeader = "compensator-key"

// Destination is where an entry goes, and what its message carries beside the content.
type Destination struct {
	Exchange string // "" is the default exchange; at most 255 bytes
	Key      string // the routing key; at most 255 bytes

	// Headers are added to those that travelled with the entry, and win over them: together 24 KiB as JSON at most.
	Headers amqp091.Table

	// NotMandatory has the message published without AMQP's flag mandatory. Set it for an exchange that routes a message after it has
	// confirmed it, for example one of the type x-delayed-message: RabbitMQ returns a mandatory message to the Publisher first, so
	// that its entry fails although the message is delivered. Without the flag nobody notices a message that no queue is bound for:
	// the broker confirms it and drops it. Give such an exchange an alternate exchange.
	NotMandatory bool

	// ContentType of the content. Default "application/json", what compensator.JSON writes.
	ContentType string
}

// Route says where an entry goes. It is called before each attempt, concurrently. An error of it is the attempt's
// outcome, as a handler's is: Permanent where trying again is pointless.
type Route func(e *compensator.Entry) (Destination, error)

// To is the Route of a type whose entries all go to one place.
func To(exchange, key string) Route {
	return func(*compensator.Entry) (Destination, error) {
		return Destination{Exchange: exchange, Key: key}, nil
	}
}
