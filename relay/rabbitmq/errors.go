package rabbitmq

import (
	"errors"
	"fmt"
)

var (
	// ErrClosed says that the Publisher was closed.
	ErrClosed = errors.New("rabbitmq: publisher is closed")

	// ErrDeliveryLost is the cause with which Work's context ends when the connection breaks. The message can no longer
	// be acknowledged, and the broker will deliver it again.
	ErrDeliveryLost = errors.New("rabbitmq: connection lost while the message was being processed")
)

// RefusedError says that the broker will never accept a message. Handlers wrap it in compensator.Permanent.
type RefusedError struct {
	Exchange string // exchange of the message; empty: the default exchange
	Key      string // routing key of the message
	// Code is the AMQP reply code: 312 unroutable, 403 access refused, 404 no such exchange, 406 too large. If Code is
	// 0, the message was refused before it was sent.
	Code   int
	Reason string // text that the broker sent
}

func (e *RefusedError) Error() string {
	exchange := fmt.Sprintf("exchange %q", e.Exchange)
	if e.Exchange == "" {
		exchange = "the default exchange"
	}
	return fmt.Sprintf("rabbitmq: message for %s with key %q refused: %s", exchange, e.Key, e.Reason)
}
