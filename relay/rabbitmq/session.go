package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/intake"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

const (
	consumerTag = "compensator"

	// probeEvery is how long the Consumer waits for a message before it checks that the broker still knows this consumer.
	probeEvery = 10 * time.Second
)

// Run consumes the queue until ctx ends. It uses a separate connection. When the connection, the channel or the
// consumer is lost, Run reconnects. It pauses for a random time of up to 3 s before each connect.
//
// When ctx ends, Run takes no more messages, waits for running calls of Work, acknowledges the finished messages, and
// returns nil. The broker delivers unacknowledged messages again. Run returns an error in these cases:
//
//   - Calls of Work did not return in time; see ConsumerConfig.StopTimeout.
//   - Run is running already (compensator.ErrRunning).
//   - The queue is a stream (ErrStream).
//
// Before each connect Run waits until the log accepts entries. Meanwhile messages stay in their queue, and the broker
// does not count deliveries.
func (k *Consumer) Run(ctx context.Context) error {
	if k.running.Swap(true) {
		return compensator.ErrRunning
	}
	defer k.running.Store(false)
	isKnown := false // whether an earlier session has checked the queue's kind
	for failures := 0; ctx.Err() == nil; {
		s, err := k.session(ctx, isKnown)
		if err == nil {
			failures, isKnown = 0, true
			if err = s.pump(ctx); err == nil {
				return s.finish()
			}
			s.lose(ErrDeliveryLost)
			s.link.drop() // Drop the connection after any failure, because its state is unknown.
		}
		if ctx.Err() != nil {
			break
		}
		if errors.Is(err, ErrStream) {
			k.setState(err)
			return errors.Join(err, k.drainQueue())
		}
		failures++
		k.setState(wrapError("not consuming "+k.cfg.Queue, err))
		if failures == 1 {
			k.cfg.Logger.Warn("rabbitmq: consumer is not consuming", "queue", k.cfg.Queue, "err", err)
		}
		pause(ctx, failures)
	}
	k.setState(compensator.ErrStopping)
	return k.drainQueue()
}

func (k *Consumer) drainQueue() error {
	timer := time.NewTimer(k.cfg.StopTimeout)
	defer timer.Stop()
	count := 0
	defer func() {
		for range count {
			<-k.slots
		}
	}()
	for ; count < cap(k.slots); count++ {
		select {
		case k.slots <- struct{}{}:
		case <-timer.C:
			return fmt.Errorf("rabbitmq: %d functions of queue %s did not return, or wait to acknowledge", cap(k.slots)-count, k.cfg.Queue)
		}
	}
	return nil
}

type session struct {
	*Consumer
	link       *link
	channel    *amqp091.Channel
	deliveries <-chan amqp091.Delivery
	closeErr   chan *amqp091.Error // receives the reason when the channel closes
	ending     chan struct{}       // closed when Run takes no more messages
	kindKnown  bool                // whether an earlier check has shown that the queue is no stream

	workCtx context.Context // context of the calls of Work
	lose    context.CancelCauseFunc
	working sync.WaitGroup
}

// session connects to the broker and subscribes to the queue. If isKnown is false, session also checks that the queue
// is no stream. RabbitMQ logs an error for each check, so after the first success Run sets isKnown.
func (k *Consumer) session(ctx context.Context, isKnown bool) (*session, error) {
	if err := k.recorder.Trial(ctx); err != nil {
		return nil, fmt.Errorf("the log takes no entries: %w", err)
	}
	l, err := connect(ctx, k.cfg.URL, k.cfg.AMQP, "compensator consumer of "+k.cfg.Queue)
	if err != nil {
		return nil, err
	}
	s := &session{Consumer: k, link: l, ending: make(chan struct{})}
	if err := s.subscribe(!isKnown); err != nil {
		l.close()
		return nil, err
	}
	s.workCtx, s.lose = context.WithCancelCause(context.WithoutCancel(ctx))
	k.setState(nil)
	k.cfg.Logger.Info("rabbitmq: consuming", "queue", k.cfg.Queue)
	return s, nil
}

func (s *session) subscribe(isFirst bool) error {
	if err := s.declare(); err != nil {
		return wrapError("declare", err)
	}
	if isFirst {
		if err := s.refuseStream(); err != nil {
			return err
		}
	}
	defer s.link.startGuard()()
	var err error
	if s.channel, err = s.link.Channel(); err != nil {
		return err
	}
	s.closeErr = s.channel.NotifyClose(make(chan *amqp091.Error, 1))
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
	defer s.link.startGuard()()
	ch, err := s.link.Channel()
	if err != nil {
		return err
	}
	defer ch.Close()
	return s.cfg.Declare(ch)
}

// pump returns nil when ctx ends, and an error when the connection fails. The channel of deliveries closes when the
// consumer, the AMQP channel or the connection ends. If the consumer ended without a notification, probe finds out.
func (s *session) pump(ctx context.Context) error {
	probe := time.NewTicker(probeEvery)
	defer probe.Stop()
	isQuiet := true
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case d, ok := <-s.deliveries:
			if !ok {
				return s.loss()
			}
			isQuiet = false
			if err := s.admit(ctx, d); err != nil {
				return err
			}
		case <-probe.C:
			if isQuiet {
				if err := s.probe(); err != nil {
					return wrapError("probe", err)
				}
			}
			isQuiet = true
		case err := <-s.link.closeErr: // Check the connection too. While an acknowledgement waits to be written, amqp091 does not close the deliveries.
			return orConnectionLost(err)
		}
	}
	return nil
}

var errCancelled = errors.New("the broker has ended the consumer: the queue was deleted, or is unavailable")

func orConnectionLost(err *amqp091.Error) error {
	if err == nil {
		return amqp091.ErrClosed
	}
	return err
}

// loss returns the reason why the channel of deliveries was closed. If the AMQP channel or the connection has ended,
// amqp091 reports this end before amqp091 closes the deliveries. Without a report, the broker has ended the consumer.
func (s *session) loss() error {
	select {
	case err := <-s.closeErr:
		return orConnectionLost(err)
	default:
		return errCancelled
	}
}

// probe may not notice that this consumer is gone if the queue has another consumer, which then processes the queue.
func (s *session) probe() error {
	defer s.link.startGuard()()
	ch, err := s.link.Channel()
	switch {
	case errors.Is(err, amqp091.ErrChannelMax):
		return nil // A limit of the user or of the broker allows no further channel.
	case err != nil:
		return err
	}
	queue, err := ch.QueueDeclarePassive(s.cfg.Queue, false, false, false, false, nil)
	var amqpErr *amqp091.Error
	switch {
	case errors.As(err, &amqpErr) && amqpErr.Code == amqp091.AccessRefused:
		return nil // The user lacks the right for this check.
	case err != nil:
		return err
	case queue.Consumers == 0:
		return errors.New("the broker knows no consumer of the queue")
	}
	return ch.Close()
}

// admit finds a stream that has replaced the queue after the first session checked it. The stream header alone proves
// nothing, because a message that was moved from a stream into a queue has it too.
func (s *session) admit(ctx context.Context, d amqp091.Delivery) error {
	if _, marked := d.Headers[offsetArgument]; marked && !s.kindKnown {
		if err := s.refuseStream(); err != nil {
			return err
		}
	}
	return s.handDelivery(ctx, d)
}

// handDelivery waits if functions of earlier connections hold all slots. It returns an error if this connection is lost
// during the wait.
func (s *session) handDelivery(ctx context.Context, d amqp091.Delivery) error {
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return nil
	case err := <-s.link.closeErr:
		return orConnectionLost(err)
	}
	s.working.Add(1)
	go func() {
		defer s.working.Done()
		defer func() { <-s.slots }()
		s.handle(&d)
	}()
	return nil
}

func (s *session) handle(raw *amqp091.Delivery) {
	ctx, d := s.workCtx, newDelivery(s.cfg.Queue, raw)
	if s.cfg.Propagator != nil {
		ctx = s.extract(ctx, d)
	}
	if s.settleDelivery(ctx, raw, d) {
		_ = raw.Ack(false) // Ignore the error, because after it the deliveries end and pump returns.
	}
}

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

// settleDelivery calls the function of the consumer, and records the message if the function fails. A redelivered
// message may have crashed a process at its first delivery. So a redelivered message is recorded at once, and the
// function is called only if the log refuses the message.
func (s *session) settleDelivery(ctx context.Context, raw *amqp091.Delivery, d *Delivery) bool {
	if raw.Redelivered {
		if err := s.keep(ctx, d, 0); !errors.Is(err, intake.ErrRefused) {
			return err == nil
		}
	}
	err := s.call(ctx, d)
	switch {
	case err == nil:
		return true
	case s.workCtx.Err() != nil:
		return false // The function stopped because it was asked to, so this is no failure of the message.
	}
	err = s.keep(ctx, d, s.noteFailure(d, err))
	if errors.Is(err, intake.ErrRefused) {
		return s.setAside(ctx, raw, d, err)
	}
	return err == nil
}

// noteFailure recovers from a panic of err or of the schedule, which are user code.
func (s *session) noteFailure(d *Delivery, err error) (delay time.Duration) {
	defer func() {
		if recover() != nil {
			delay = longestPause
		}
	}()
	if compensator.VerdictOf(err) == observe.Permanent {
		d.SetAside = setAsideFor(err)
		return 0
	}
	return min(max(0, s.cfg.Type.Retry(1)), processlog.MaxDelay)
}

// keep retries until the log answers. It returns intake.ErrRefused if the log refuses the message, and any other error
// only after ctx has ended.
func (s *session) keep(ctx context.Context, d *Delivery, delay time.Duration) error {
	defer s.release(d)
	attempts := s.recorder.Attempts(*d)
	for failures := 1; ; failures++ {
		err := attempts.Record(ctx, s.options(d, delay))
		if err == nil || errors.Is(err, intake.ErrRefused) {
			return err
		}
		s.hold(d, err)
		if failures == 1 && ctx.Err() == nil {
			s.cfg.Logger.Warn("rabbitmq: message is held until it can be recorded", "queue", d.Queue, "message_id", d.MessageID, "err", err)
		}
		if !pause(ctx, failures) {
			return err
		}
	}
}

// finish still sends the acknowledgement of a function that ends after its context has ended.
func (s *session) finish() error {
	close(s.ending)
	stop := s.link.startGuard()
	_ = s.channel.Cancel(consumerTag, false)
	stop()
	handlersDone := make(chan struct{})
	go func() {
		s.working.Wait()
		close(handlersDone)
	}()
	timer := time.NewTimer(s.cfg.StopTimeout)
	defer timer.Stop()
	select {
	case <-handlersDone:
	case <-s.link.closeErr:
		s.lose(ErrDeliveryLost)
	case <-timer.C:
	}
	s.lose(compensator.ErrStopping)
	s.setState(compensator.ErrStopping)
	err := s.drainQueue()
	s.link.close()
	return err
}
