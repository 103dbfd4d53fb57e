package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

const (
	consumerTag = "compensator"

	// probeEvery is how long a queue may be quiet before the Consumer asks the broker whether it still knows this
	// consumer.
	probeEvery = 10 * time.Second
)

// Run consumes the queue until ctx ends. It uses a separate connection. It reconnects when the connection, the channel
// or the consumer is lost, with pauses of up to 3 s and jitter.
//
// When ctx ends, Run takes no more messages, waits for its functions, acknowledges the finished messages, and returns
// nil. Unacknowledged messages are delivered again. An error says that functions did not return, that Run is running
// already, or that the queue is a stream (ErrStream).
//
// Before each connection Run waits until the log takes entries. So messages stay in their queue while the database is
// unavailable, and the broker does not count deliveries.
func (k *Consumer) Run(ctx context.Context) error {
	if k.running.Swap(true) {
		return compensator.ErrRunning
	}
	defer k.running.Store(false)
	known := false // whether an earlier session has checked the queue's kind
	for failures := 0; ctx.Err() == nil; {
		s, err := k.session(ctx, known)
		if err == nil {
			failures, known = 0, true
			if err = s.pump(ctx); err == nil {
				return s.finish()
			}
			s.lose(ErrDeliveryLost)
			s.link.drop() // after any failure do not trust this connection any more
		}
		if ctx.Err() != nil {
			break
		}
		if errors.Is(err, ErrStream) {
			k.set(err)
			return errors.Join(err, k.drain())
		}
		failures++
		k.set(failure("not consuming "+k.cfg.Queue, err))
		if failures == 1 {
			k.cfg.Logger.Warn("rabbitmq: consumer is not consuming", "queue", k.cfg.Queue, "err", err)
		}
		pause(ctx, failures)
	}
	k.set(compensator.ErrStopping)
	return k.drain()
}

// drain waits for functions whose contexts have ended, for at most StopTimeout.
func (k *Consumer) drain() error {
	timer := time.NewTimer(k.cfg.StopTimeout)
	defer timer.Stop()
	taken := 0
	defer func() {
		for range taken {
			<-k.slots
		}
	}()
	for ; taken < cap(k.slots); taken++ {
		select {
		case k.slots <- struct{}{}:
		case <-timer.C:
			return fmt.Errorf("rabbitmq: %d functions of queue %s did not return, or wait to acknowledge", cap(k.slots)-taken, k.cfg.Queue)
		}
	}
	return nil
}

// session is one connection of a Consumer.
type session struct {
	*Consumer
	link       *link
	channel    *amqp091.Channel
	deliveries <-chan amqp091.Delivery
	closed     chan *amqp091.Error // close reason of the channel
	ending     chan struct{}       // closed when Run takes no more messages
	kindKnown  bool                // the queue is known to be no stream

	works   context.Context // context of the functions
	lose    context.CancelCauseFunc
	working sync.WaitGroup
}

// session waits until the log takes entries, connects, and starts to consume. If known is false, it checks that the
// queue is no stream. RabbitMQ logs an error for that check, so only the first session does it.
func (k *Consumer) session(ctx context.Context, known bool) (*session, error) {
	if err := k.prove(ctx); err != nil {
		return nil, fmt.Errorf("the log takes no entries: %w", err)
	}
	l, err := connect(ctx, k.cfg.URL, k.cfg.AMQP, "compensator consumer of "+k.cfg.Queue)
	if err != nil {
		return nil, err
	}
	s := &session{Consumer: k, link: l, ending: make(chan struct{})}
	if err := s.subscribe(!known); err != nil {
		l.close()
		return nil, err
	}
	s.works, s.lose = context.WithCancelCause(context.WithoutCancel(ctx))
	k.set(nil)
	k.cfg.Logger.Info("rabbitmq: consuming", "queue", k.cfg.Queue)
	return s, nil
}

// subscribe starts to consume. Each request is guarded, so a silent broker ends the connection.
func (s *session) subscribe(first bool) error {
	if err := s.declare(); err != nil {
		return failure("declare", err)
	}
	if first {
		if err := s.refuseStream(); err != nil {
			return err
		}
	}
	defer s.link.guard()()
	var err error
	if s.channel, err = s.link.Channel(); err != nil {
		return err
	}
	s.closed = s.channel.NotifyClose(make(chan *amqp091.Error, 1))
	if err := s.channel.Qos(s.cfg.Prefetch, 0, false); err != nil {
		return err
	}
	s.deliveries, err = s.channel.Consume(s.cfg.Queue, consumerTag, false, false, false, false, nil)
	return err
}

func (s *session) declare() error {
	if s.cfg.Declare == nil {
		return nil
	}
	defer s.link.guard()()
	ch, err := s.link.Channel()
	if err != nil {
		return err
	}
	defer ch.Close()
	return s.cfg.Declare(ch)
}

// pump hands out messages until ctx ends, when it returns nil, or until the connection fails. amqp091 closes the
// deliveries together with the consumer, the channel or the connection. probe finds a consumer that ended without a
// notification.
func (s *session) pump(ctx context.Context) error {
	probe := time.NewTicker(probeEvery)
	defer probe.Stop()
	quiet := true
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case d, ok := <-s.deliveries:
			if !ok {
				return s.loss()
			}
			quiet = false
			if err := s.admit(ctx, d); err != nil {
				return err
			}
		case <-probe.C:
			if quiet {
				if err := s.probe(); err != nil {
					return failure("probe", err)
				}
			}
			quiet = true
		case err := <-s.link.closed: // the deliveries stay open while an acknowledgement waits to be written
			return orClosed(err)
		}
	}
	return nil
}

var errCancelled = errors.New("the broker has ended the consumer: the queue was deleted, or is unavailable")

func orClosed(err *amqp091.Error) error {
	if err == nil {
		return amqp091.ErrClosed
	}
	return err
}

// loss returns why the deliveries ended. amqp091 reports the end of the channel or connection before it closes the
// deliveries.
func (s *session) loss() error {
	select {
	case err := <-s.closed:
		return orClosed(err)
	default:
		return errCancelled
	}
}

// probe checks on a separate channel that the queue exists and has a consumer. If the queue has another consumer, probe
// may miss that this one is gone. The other consumer processes the queue then.
func (s *session) probe() error {
	defer s.link.guard()()
	ch, err := s.link.Channel()
	switch {
	case errors.Is(err, amqp091.ErrChannelMax):
		return nil // a limit of the user or the broker leaves no channel for the check
	case err != nil:
		return err
	}
	queue, err := ch.QueueDeclarePassive(s.cfg.Queue, false, false, false, false, nil)
	var refused *amqp091.Error
	switch {
	case errors.As(err, &refused) && refused.Code == amqp091.AccessRefused:
		return nil // the user may not make the check
	case err != nil:
		return err
	case queue.Consumers == 0:
		return errors.New("the broker knows no consumer of the queue")
	}
	return ch.Close()
}

// admit hands out a message unless it comes from a stream. The queue may have been replaced by a stream since the first
// session checked it. A message that was moved from a stream into a queue also has the header, so admit checks the
// queue.
func (s *session) admit(ctx context.Context, d amqp091.Delivery) error {
	if _, marked := d.Headers[offsetArgument]; marked && !s.kindKnown {
		if err := s.refuseStream(); err != nil {
			return err
		}
	}
	return s.hand(ctx, d)
}

// hand starts a function for a message. It waits for a free slot, which only functions of earlier connections can
// occupy. It returns an error if this connection is lost meanwhile.
func (s *session) hand(ctx context.Context, d amqp091.Delivery) error {
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return nil
	case err := <-s.link.closed:
		return orClosed(err)
	}
	s.working.Add(1)
	go func() {
		defer s.working.Done()
		defer func() { <-s.slots }()
		s.handle(&d)
	}()
	return nil
}

// handle processes a message and acknowledges it after the message is done or recorded.
func (s *session) handle(raw *amqp091.Delivery) {
	ctx, d := s.works, newDelivery(s.cfg.Queue, raw)
	if s.cfg.Propagator != nil {
		ctx = s.extract(ctx, d)
	}
	if s.settled(ctx, raw, d) {
		_ = raw.Ack(false) // an error means that the deliveries end
	}
}

// extract returns the context with the values that the Propagator finds in the headers.
func (s *session) extract(ctx context.Context, d *Delivery) (extracted context.Context) {
	headers := make(map[string]string, len(d.Headers))
	for name, value := range d.Headers {
		if text, ok := value.(string); ok {
			headers[name] = text
		}
	}
	defer func() {
		if p := recover(); p != nil || extracted == nil {
			extracted = ctx
		}
	}()
	return s.cfg.Propagator.Extract(ctx, headers)
}

// settled processes a message and reports whether it can be acknowledged. A redelivered message may have killed a
// process, so it goes into the log without a call of the function. The log recognises a message that it already has. If
// the log refuses the message, settled calls the function.
func (s *session) settled(ctx context.Context, raw *amqp091.Delivery, d *Delivery) bool {
	if raw.Redelivered {
		if err := s.keep(ctx, d, 0); !isRefusal(err) {
			return err == nil
		}
	}
	err := s.call(ctx, d)
	switch {
	case err == nil:
		return true
	case s.works.Err() != nil:
		return false // the function was asked to stop, which is no failure
	}
	err = s.keep(ctx, d, s.failed(d, err))
	if isRefusal(err) {
		return s.setAside(ctx, raw, d, err)
	}
	return err == nil
}

// failed returns the delay of a failed message's entry. For a permanent error it also stores why the message is set aside.
// The error and the schedule are user code and may panic.
func (s *session) failed(d *Delivery, err error) (delay time.Duration) {
	defer func() {
		if recover() != nil {
			delay = longestPause
		}
	}()
	if compensator.VerdictOf(err) == compensator.VerdictPermanent {
		d.SetAside = setAsideFor(err)
		return 0
	}
	return min(max(0, s.cfg.Type.Retry(1)), processlog.MaxDelay)
}

// keep records a message and retries until the log answers. Meanwhile the message is held. A *refusal error says that
// the log refuses the message. Any other error says that ctx has ended.
func (s *session) keep(ctx context.Context, d *Delivery, delay time.Duration) error {
	for failures := 1; ; failures++ {
		err := s.record(ctx, d, delay)
		if err == nil {
			return nil
		}
		if s.refusedByTheLog(d, err) {
			return &refusal{err}
		}
		if failures == 1 && ctx.Err() == nil {
			s.cfg.Logger.Warn("rabbitmq: message is held until it can be recorded", "queue", d.Queue, "message_id", d.MessageID, "err", err)
		}
		if !pause(ctx, failures) {
			return err
		}
	}
}

// refusal wraps the reason why the log will never take a message.
type refusal struct{ reason error }

func (r *refusal) Error() string { return r.reason.Error() }
func (r *refusal) Unwrap() error { return r.reason }

func isRefusal(err error) bool {
	var r *refusal
	return errors.As(err, &r)
}

// refusedByTheLog reports whether the log will never take a message. A codec that fails may have lost its keys for a
// while, so its message is held, as during a database outage.
func (k *Consumer) refusedByTheLog(d *Delivery, err error) bool {
	var field *compensator.FieldError
	var other *compensator.OtherTypeError
	return (errors.As(err, &field) || errors.As(err, &other)) && k.encodes(d)
}

func (k *Consumer) encodes(d *Delivery) (ok bool) {
	defer func() { ok = recover() == nil && ok }()
	_, err := k.cfg.Type.Codec.Marshal(*d)
	return err == nil
}

// finish stops the consumer in order and waits for all functions. Their acknowledgements are still sent, also those of
// functions that end after they were asked to stop.
func (s *session) finish() error {
	close(s.ending)
	stop := s.link.guard()
	_ = s.channel.Cancel(consumerTag, false)
	stop()
	idle := make(chan struct{})
	go func() {
		s.working.Wait()
		close(idle)
	}()
	timer := time.NewTimer(s.cfg.StopTimeout)
	defer timer.Stop()
	select {
	case <-idle:
	case <-s.link.closed:
		s.lose(ErrDeliveryLost)
	case <-timer.C:
	}
	s.lose(compensator.ErrStopping)
	s.set(compensator.ErrStopping)
	err := s.drain()
	s.link.close()
	return err
}
