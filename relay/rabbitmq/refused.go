package rabbitmq

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/compensator-go/compensator/processlog"
)

// These headers are added by the Consumer to a message in ConsumerConfig.RefusedQueue.
const (
	RefusedHeader         = "compensator-refused"          // reason why the log refuses the message; at most 1,000 characters
	RefusedQueueHeader    = "compensator-refused-queue"    // the queue that the message comes from
	RefusedExchangeHeader = "compensator-refused-exchange" // the exchange that the message was published to
	RefusedKeyHeader      = "compensator-refused-key"      // the routing key of the message
)

// refusedPause is shorter in tests.
var refusedPause = 30 * time.Second

// setAside moves a message to ConsumerConfig.RefusedQueue, because the log has refused the message. It reports whether
// that queue has the message. Until the move succeeds, the message stays unacknowledged. setAside does not give the
// message back to its queue, because a broker with a delivery limit drops messages that are given back too often.
func (s *session) setAside(ctx context.Context, raw *amqp091.Delivery, d *Delivery, reason error) bool {
	for {
		err := s.moveRefused(ctx, raw, reason)
		if err == nil {
			s.cfg.Logger.Error("rabbitmq: message cannot be recorded, and is set aside for a person",
				"queue", d.Queue, "refused_queue", s.cfg.RefusedQueue, "message_id", d.MessageID, "err", reason)
			return true
		}
		if ctx.Err() == nil {
			s.cfg.Logger.Error("rabbitmq: message cannot be recorded, and is held until it can be set aside",
				"queue", d.Queue, "refused_queue", s.cfg.RefusedQueue, "message_id", d.MessageID, "err", reason, "set_aside", err)
		}
		if !s.awaitNextTry(ctx, raw) {
			return false
		}
	}
}

// awaitNextTry gives the message back to the broker and returns false if Run ends during the wait.
func (s *session) awaitNextTry(ctx context.Context, raw *amqp091.Delivery) bool {
	timer := time.NewTimer(refusedPause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.ending:
		_ = raw.Nack(false, true) // Ignore the error. If the nack fails, the connection is lost, and the broker requeues the message.
	case <-ctx.Done():
	}
	return false
}

// moveRefused publishes on a separate connection. A broker that is out of memory or disk space stops reading from each
// connection that publishes. If the Consumer published on the connection on which it consumes, the broker would no
// longer read the acknowledgements there.
func (k *Consumer) moveRefused(ctx context.Context, raw *amqp091.Delivery, reason error) error {
	select {
	case k.moving <- struct{}{}:
		defer func() { <-k.moving }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	l, err := connect(ctx, k.cfg.URL, k.cfg.AMQP, "compensator consumer of "+k.cfg.Queue+": refused messages")
	if err != nil {
		return wrapError("connect", err)
	}
	defer l.close()
	defer context.AfterFunc(ctx, l.drop)()
	defer l.startGuard()() // startGuard also drops a connection that the broker blocks.
	copied := k.refusedCopy(raw, reason, l.Config.FrameSize)
	routed, err := l.publishTo(k.cfg.RefusedQueue, copied)
	if err != nil || routed {
		return err
	}
	if err := l.declare(k.cfg.RefusedQueue); err != nil {
		return wrapError("declare "+k.cfg.RefusedQueue, err)
	}
	if routed, err = l.publishTo(k.cfg.RefusedQueue, copied); err == nil && !routed {
		err = fmt.Errorf("rabbitmq: queue %s was deleted", k.cfg.RefusedQueue)
	}
	return err
}

// publishTo returns false if the queue does not exist.
func (l *link) publishTo(queue string, p amqp091.Publishing) (routed bool, err error) {
	ch, err := l.Channel()
	if err != nil {
		return false, wrapError("open a channel", err)
	}
	defer ch.Close()
	returns := ch.NotifyReturn(make(chan amqp091.Return, 1))
	closeErr := ch.NotifyClose(make(chan *amqp091.Error, 1))
	if err := ch.Confirm(false); err != nil {
		return false, wrapError("ask for confirms", err)
	}
	confirm, err := ch.PublishWithDeferredConfirm("", queue, true, false, p)
	if err != nil {
		return false, wrapError("publish to "+queue, err)
	}
	if !confirm.Wait() {
		select {
		case reason := <-closeErr:
			return false, wrapError("publish to "+queue, orConnectionLost(reason))
		default:
			return false, errNack
		}
	}
	select {
	case <-returns: // RabbitMQ returns an unroutable message before it confirms the message.
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

// refusedCopy adds headers that say why the message was refused, if they fit a frame of limit bytes. A limit of 0 means
// no limit.
//
// refusedCopy removes the properties that would keep the message from waiting for a person:
//
//   - the expiration
//   - the user id, which this connection may not be allowed to use
//   - CC and BCC, which make RabbitMQ send the message to other queues as well
//   - the counts of earlier deliveries
func (k *Consumer) refusedCopy(raw *amqp091.Delivery, reason error, limit int) amqp091.Publishing {
	copyHeaders := maps.Clone(raw.Headers)
	for _, name := range []string{"CC", "BCC", "x-delivery-count", "x-acquired-count"} {
		delete(copyHeaders, name)
	}
	headers := amqp091.Table{
		RefusedHeader: processlog.FitError(reason.Error()), RefusedQueueHeader: k.cfg.Queue,
		RefusedExchangeHeader: raw.Exchange, RefusedKeyHeader: raw.RoutingKey,
	}
	maps.Copy(headers, copyHeaders)
	if limit > 0 && tableSize(headers)+otherProperties > limit {
		headers = copyHeaders
	}
	return amqp091.Publishing{
		Headers: headers, ContentType: raw.ContentType, ContentEncoding: raw.ContentEncoding, DeliveryMode: amqp091.Persistent,
		Priority: raw.Priority, CorrelationId: raw.CorrelationId, ReplyTo: raw.ReplyTo, MessageId: raw.MessageId, Timestamp: raw.Timestamp,
		Type: raw.Type, AppId: raw.AppId, Body: raw.Body,
	}
}

// otherProperties is the largest size of all properties except the headers.
const otherProperties = 64 + 7*(1+maxShort)
