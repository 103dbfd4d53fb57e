package rabbitmq

import (
	"errors"
	"fmt"
	"strings"

	"github.com/rabbitmq/amqp091-go"
)

// ErrStream says that the queue is a RabbitMQ stream. A stream does not deliver again what was not acknowledged, so a Consumer would
// lose messages.
var ErrStream = errors.New("rabbitmq: the queue is a stream, which delivers nothing again; consume from a classic or quorum queue")

// offsetArgument is a consumer's argument for streams, and the header of each message that a stream delivers.
const offsetArgument = "x-stream-offset"

// refuseStream returns ErrStream if the queue is a stream. RabbitMQ refuses the argument x-stream-offset for queues of other kinds, and
// logs that as a channel error. A broker that ignores arguments takes a nonsensical one as well.
func (s *session) refuseStream() error {
	s.kindKnown = true
	if taken, err := s.takesOffset("next"); !taken {
		return err
	}
	taken, err := s.takesOffset("of no stream")
	var refused *amqp091.Error
	switch {
	case taken:
		return nil
	case err == nil || errors.As(err, &refused) && refused.Server:
		return fmt.Errorf("%w: %s", ErrStream, s.cfg.Queue)
	}
	return err
}

// takesOffset reports whether a consumer with that offset may begin. It ends the consumer at once.
func (s *session) takesOffset(offset string) (bool, error) {
	defer s.link.guard()()
	ch, err := s.link.Channel()
	if err != nil {
		return false, err
	}
	if err := ch.Qos(1, 0, false); err != nil {
		return false, err
	}
	_, err = ch.Consume(s.cfg.Queue, "", false, false, false, false, amqp091.Table{offsetArgument: offset})
	var refused *amqp091.Error
	switch {
	case err == nil:
		return true, ch.Close()
	case errors.As(err, &refused) && refused.Code == amqp091.PreconditionFailed && strings.Contains(refused.Reason, offsetArgument):
		return false, nil
	}
	return false, err
}
