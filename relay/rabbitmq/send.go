package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/compensator-go/compensator"
)

var errNack = errors.New("rabbitmq: the broker did not take the message (nack): a queue is full, or the broker failed")

// undecidedError: the channel ended before the broker had said anything about the message.
type undecidedError struct{ reason *amqp091.Error }

func (e *undecidedError) Error() string { return "rabbitmq: no confirm: " + e.reason.Error() }

// send publishes messages, awaits their confirms, and returns each one's outcome as a handler's; nil: a queue has it.
func (p *Publisher) send(ctx context.Context, messages []*message) []error {
	ctx, cancel := p.timed(ctx)
	defer cancel()
	outcomes := make([]error, 0, len(messages))
	for first := 0; first < len(messages); first += window {
		part := messages[first:min(first+window, len(messages))]
		verdicts := p.sendPart(ctx, part)
		for i, m := range part {
			verdict := verdicts[i]
			if _, undecided := verdict.(*undecidedError); undecided && len(messages) > 1 {
				// Which of several messages closed the channel the broker does not say. Alone, each is told.
				verdict = p.sendPart(ctx, part[i:i+1])[0]
			}
			outcomes = append(outcomes, p.outcome(m, verdict))
		}
	}
	return outcomes
}

// outcome makes a handler's error of what became of a message.
func (p *Publisher) outcome(m *message, verdict error) error {
	var undecided *undecidedError
	var refused *RefusedError
	switch {
	case verdict == nil:
		return nil
	case errors.As(verdict, &refused):
		return compensator.Permanent(verdict)
	case errors.As(verdict, &undecided) && refuses(undecided.reason.Code):
		return compensator.Permanent(m.refused(undecided.reason.Code, undecided.reason.Reason))
	case p.cfg.CountUnavailable:
		return verdict
	}
	return compensator.Unavailable(verdict)
}

// refuses: what the broker answers to a message that it will never take.
func refuses(code int) bool {
	return code == amqp091.AccessRefused || code == amqp091.NotFound || code == amqp091.PreconditionFailed
}

// sendPart sends what fits a window. When ctx ends first, the channel stays taken until the broker has answered: a
// broker that is slow is not given more and more. Nothing here waits for the broker longer than ctx.
func (p *Publisher) sendPart(ctx context.Context, messages []*message) []error {
	line, err := p.take(ctx)
	if err != nil {
		return all(messages, err)
	}
	answers := make(chan []error, 1)
	go func() { answers <- line.deliver(ctx, messages) }()
	select {
	case verdicts := <-answers:
		return verdicts
	case <-ctx.Done():
		return all(messages, fmt.Errorf("rabbitmq: no confirm: %w", context.Cause(ctx)))
	}
}

// take returns a connection that takes messages, with a slot of it; it waits for one.
func (p *Publisher) take(ctx context.Context) (*line, error) {
	for {
		line, err := p.await(ctx)
		if err != nil {
			return nil, err
		}
		if err = line.take(ctx); err != errGone {
			return line, err
		}
	}
}

func all(messages []*message, err error) []error {
	verdicts := make([]error, len(messages))
	for i := range verdicts {
		verdicts[i] = err
	}
	return verdicts
}

// deliver opens a channel if none is idle, publishes everything and then waits for all confirms. It gives its slot back.
func (l *line) deliver(ctx context.Context, messages []*message) []error {
	defer func() { <-l.slots }()
	ch, err := l.channel()
	if err != nil {
		return all(messages, err)
	}
	defer l.rest(ch)
	if ctx.Err() != nil { // its sender has given up
		return all(messages, context.Cause(ctx))
	}
	return l.publish(ctx, ch, messages)
}

func (l *line) publish(ctx context.Context, ch *channel, messages []*message) []error {
	confirms := make([]*amqp091.DeferredConfirmation, len(messages))
	verdicts := make([]error, len(messages))
	for i, m := range messages {
		if problem := m.beyond(l.link.Config.FrameSize); problem != "" {
			verdicts[i] = m.refused(0, problem)
			continue
		}
		confirm, err := ch.PublishWithDeferredConfirm(m.exchange, m.key, m.mandatory, false, m.publishing)
		if err != nil {
			if !ch.IsClosed() { // amqp091 would keep a connection that takes nothing
				l.link.drop()
				<-l.dead
			}
			break
		}
		confirms[i] = confirm
	}
	for _, confirm := range confirms {
		if confirm != nil {
			l.awaitConfirm(ctx, ch, confirm)
		}
	}
	returned, unconfirmed := ch.takeReturned(), l.unconfirmed(ch)
	for i, m := range messages {
		if verdicts[i] != nil {
			continue
		}
		if why, unroutable := returned[m.publishing.MessageId]; unroutable {
			verdicts[i] = m.refused(int(why.ReplyCode), "unroutable: no queue is bound for it ("+why.ReplyText+")")
		} else if confirms[i] == nil || !confirms[i].Acked() {
			verdicts[i] = unconfirmed
		}
	}
	return verdicts
}

// confirmTimeout is how long a confirm may come after its sender has given up, before the channel is closed. A queue
// without its majority never confirms. Tests have less.
var confirmTimeout = 30 * time.Second

// awaitConfirm waits until the broker has answered, or the channel has ended.
func (l *line) awaitConfirm(ctx context.Context, ch *channel, confirm *amqp091.DeferredConfirmation) {
	select {
	case <-confirm.Done():
		return
	case <-ctx.Done():
	}
	timer := time.NewTimer(confirmTimeout)
	defer timer.Stop()
	select {
	case <-confirm.Done():
		return
	case <-timer.C:
	}
	if l.awaitOpen(context.Background()) == nil { // a blocked broker reads no Close
		stop := l.guard()
		_ = ch.Close()
		stop()
	}
	<-confirm.Done()
}

// takeReturned is what the broker has sent back of the messages under way. It sends a message back before it
// confirms it.
func (ch *channel) takeReturned() map[string]amqp091.Return {
	returned := make(map[string]amqp091.Return)
	for {
		select {
		case r, ok := <-ch.returned:
			if !ok {
				return returned
			}
			returned[r.MessageId] = r
		default:
			return returned
		}
	}
}

// unconfirmed is why messages have no confirm, if some have none: a nack, the end of the connection, or that of the
// channel alone.
func (l *line) unconfirmed(ch *channel) error {
	switch {
	case l.link.IsClosed():
		return errGone
	case !ch.IsClosed():
		return errNack
	}
	if reason := <-ch.closed; reason != nil {
		return &undecidedError{reason}
	}
	return errGone // we closed it ourselves
}
