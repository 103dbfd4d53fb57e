package rabbitmq

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/compensator-go/compensator/processlog"
)

// Headers that a message in ConsumerConfig.RefusedQueue has beside its own.
const (
	RefusedHeader         = "compensator-refused"          // why the log refuses it; at most 1,000 characters
	RefusedQueueHeader    = "compensator-refused-queue"    // the queue that it comes from
	RefusedExchangeHeader = "compensator-refused-exchange" // the exchange that it was published to
	RefusedKeyHeader      = "compensator-refused-key"      // its routing key
)

// refusedPause is how long a message that cannot be set aside is held before the next try. Tests have less.
var refusedPause = 30 * time.Second

// setAside moves a message that the log refuses into ConsumerConfig.RefusedQueue, and reports whether it is there. While that fails
// setAside holds the message: a broker with a delivery limit drops what is given back too often.
func (s *session) setAside(ctx context.Context, raw *amqp091.Delivery, d *Delivery, why error) bool {
	for {
		err := s.moveRefused(ctx, raw, why)
		if err == nil {
			s.cfg.Logger.Error("rabbitmq: message cannot be recorded, and is set aside for a person",
				"queue", d.Queue, "refused_queue", s.cfg.RefusedQueue, "message_id", d.MessageID, "err", why)
			return true
		}
		if ctx.Err() == nil {
			s.cfg.Logger.Error("rabbitmq: message cannot be recorded, and is held until it can be set aside",
				"queue", d.Queue, "refused_queue", s.cfg.RefusedQueue, "message_id", d.MessageID, "err", why, "set_aside", err)
		}
		if !s.awaitNextTry(ctx, raw) {
			return false
		}
	}
}

// awaitNextTry waits for refusedPause. When Run ends it gives the message back and reports false.
func (s *session) awaitNextTry(ctx context.Context, raw *amqp091.Delivery) bool {
	timer := time.NewTimer(refusedPause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.ending:
		_ = raw.Nack(false, true) // an error says that the broker takes the message back by itself
	case <-ctx.Done():
	}
	return false
}

// moveRefused publishes a copy of a message to the refused queue and awaits the confirm. It declares the queue if there is none. It uses
// a connection of its own, because a broker that is out of memory or disk space reads nothing more from a connection that publishes:
// the acknowledgements of other messages would wait, too.
func (k *Consumer) moveRefused(ctx context.Context, raw *amqp091.Delivery, why error) error {
	select {
	case k.moving <- struct{}{}:
		defer func() { <-k.moving }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	l, err := connect(ctx, k.cfg.URL, k.cfg.AMQP, "compensator consumer of "+k.cfg.Queue+": refused messages")
	if err != nil {
		return failure("connect", err)
	}
	defer l.close()
	defer context.AfterFunc(ctx, l.drop)()
	defer l.guard()() // a broker that blocks the connection, too
	copied := k.refusedCopy(raw, why, l.Config.FrameSize)
	routed, err := l.publishTo(k.cfg.RefusedQueue, copied)
	if err != nil || routed {
		return err
	}
	if err := l.declare(k.cfg.RefusedQueue); err != nil {
		return failure("declare "+k.cfg.RefusedQueue, err)
	}
	if routed, err = l.publishTo(k.cfg.RefusedQueue, copied); err == nil && !routed {
		err = fmt.Errorf("rabbitmq: queue %s was deleted", k.cfg.RefusedQueue)
	}
	return err
}

// publishTo sends a message to a queue and awaits the confirm. It reports false if the queue does not exist.
func (l *link) publishTo(queue string, p amqp091.Publishing) (routed bool, err error) {
	ch, err := l.Channel()
	if err != nil {
		return false, failure("open a channel", err)
	}
	defer ch.Close()
	returned := ch.NotifyReturn(make(chan amqp091.Return, 1))
	closed := ch.NotifyClose(make(chan *amqp091.Error, 1))
	if err := ch.Confirm(false); err != nil {
		return false, failure("ask for confirms", err)
	}
	confirm, err := ch.PublishWithDeferredConfirm("", queue, true, false, p)
	if err != nil {
		return false, failure("publish to "+queue, err)
	}
	if !confirm.Wait() {
		select {
		case reason := <-closed:
			return false, failure("publish to "+queue, orClosed(reason))
		default:
			return false, errNack
		}
	}
	select {
	case <-returned: // RabbitMQ sends a message back before it confirms it
		return false, nil
	default:
		return true, nil
	}
}

func (l *link) declare(queue string) error {
	ch, err := l.Channel()
	if err != nil {
		return err
	}
	defer ch.Close()
	_, err = ch.QueueDeclare(queue, true, false, false, false, nil)
	return err
}

// refusedCopy is a message as it came, with headers that say why it was refused and where it comes from. These are left out where a
// frame of limit bytes has no room for them; 0: any number. refusedCopy leaves out what would keep the message from waiting for a person: its expiration; the id of a user that this connection may not have; CC,
// by which RabbitMQ would send it to other queues as well; and counts of earlier deliveries.
func (k *Consumer) refusedCopy(raw *amqp091.Delivery, why error, limit int) amqp091.Publishing {
	own := maps.Clone(raw.Headers)
	for _, name := range []string{"CC", "BCC", "x-delivery-count", "x-acquired-count"} {
		delete(own, name)
	}
	headers := amqp091.Table{
		RefusedHeader: processlog.FitError(why.Error()), RefusedQueueHeader: k.cfg.Queue,
		RefusedExchangeHeader: raw.Exchange, RefusedKeyHeader: raw.RoutingKey,
	}
	maps.Copy(headers, own)
	if limit > 0 && tableSize(headers)+otherProperties > limit {
		headers = own
	}
	return amqp091.Publishing{
		Headers: headers, ContentType: raw.ContentType, ContentEncoding: raw.ContentEncoding, DeliveryMode: amqp091.Persistent,
		Priority: raw.Priority, CorrelationId: raw.CorrelationId, ReplyTo: raw.ReplyTo, MessageId: raw.MessageId, Timestamp: raw.Timestamp,
		Type: raw.Type, AppId: raw.AppId, Body: raw.Body,
	}
}

// otherProperties is how many bytes of a frame all properties but the headers take at most.
const otherProperties = 64 + 7*(1+maxShort)
