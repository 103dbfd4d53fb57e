package rabbitmq

import (
	"errors"
	"fmt"
)

var (
	// ErrClosed: the Publisher was closed.
	ErrClosed = errors.New("rabbitmq: publisher is closed")

	// ErrDeliveryLost is the cause of a function's context that ends because the connection broke: its message is no
	// longer this consumer's to acknowledge, and will be delivered again.
	ErrDeliveryLost = errors.New("rabbitmq: connection lost while the message was being worked on")
)

// RefusedError says that the broker does not take a message and will not: handlers wrap it in compensator.Permanent.
type RefusedError struct {
	Exchange string
	Key      string
	Code     int    // as in AMQP: 312 unroutable, 403 access refused, 404 no such exchange, 406 too large; 0: refused before it was sent
	Reason   string // the broker's words
}

func (e *RefusedError) Error() string {
	exchange := fmt.Sprintf("exchange %q", e.Exchange)
	if e.Exchange == "" {
		exchange = "the default exchange"
	}
	return fmt.Sprintf("rabbitmq: message for %s with key %q refused: %s", exchange, e.Key, e.Reason)
}
