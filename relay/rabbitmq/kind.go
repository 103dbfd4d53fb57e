package rabbitmq

import (
	"errors"
	"fmt"
	"strings"

	"github.com/rabbitmq/amqp091-go"
)

// ErrStream says that the queue is a RabbitMQ stream. A stream does not redeliver unacknowledged messages, so a
// Consumer would lose messages.
var ErrStream = errors.New("rabbitmq: the queue is a stream, which does not redeliver messages: consume from a classic or quorum queue")

// offsetArgument is also the name of a header that a stream adds to each message.
const offsetArgument = "x-stream-offset"

// refuseStream returns ErrStream if the queue is a stream. First, refuseStream consumes with a valid x-stream-offset. A
// stream accepts this argument, and RabbitMQ rejects the argument for any other queue. But some brokers ignore the
// argument for every queue. So if the broker accepts, refuseStream consumes again with an invalid x-stream-offset,
// which only a stream rejects.
func (s *session) refuseStream() error {
	s.kindKnown = true
	accepted, err := s.takesOffset("next")
	if !accepted {
		return err // nil if the queue is no stream
	}
	accepted, err = s.takesOffset("of no stream")
	var amqpErr *amqp091.Error
	switch {
	case accepted:
		return nil
	case err == nil || errors.As(err, &amqpErr) && amqpErr.Server:
		return fmt.Errorf("%w: %s", ErrStream, s.cfg.Queue)
	}
	return err
}

// takesOffset reports whether the broker accepts a consumer with this x-stream-offset. It then closes the channel,
// which cancels the consumer.
func (s *session) takesOffset(offset string) (bool, error) {
	defer s.link.startGuard()()
	ch, err := s.link.Channel()
	if err != nil {
		return false, err
	}
	if err := ch.Qos(1, 0, false); err != nil {
		return false, err
	}
	_, err = ch.Consume(s.cfg.Queue, "", false, false, false, false, amqp091.Table{offsetArgument: offset})
	var amqpErr *amqp091.Error
	switch {
	case err == nil:
		return true, ch.Close()
	case errors.As(err, &amqpErr) && amqpErr.Code == amqp091.PreconditionFailed && strings.Contains(amqpErr.Reason, offsetArgument):
		return false, nil
	}
	return false, err
}
