package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/compensator-go/compensator"
)

var errNack = errors.New("rabbitmq: the broker rejected the message (nack): a queue is full, or the broker failed")

type undecidedError struct{ reason *amqp091.Error }

func (e *undecidedError) Error() string { return "rabbitmq: no confirm: " + e.reason.Error() }

// send returns nil for a message that a queue holds.
func (p *Publisher) send(ctx context.Context, messages []*message) []error {
	ctx, cancel := p.withTimeout(ctx)
	defer cancel()
	outcomes := make([]error, 0, len(messages))
	for start := 0; start < len(messages); start += window {
		part := messages[start:min(start+window, len(messages))]
		verdicts := p.sendPart(ctx, part)
		for i, m := range part {
			verdict := verdicts[i]
			if _, undecided := verdict.(*undecidedError); undecided && len(messages) > 1 {
				// The broker does not say which of several messages closed the channel.
				verdict = p.sendPart(ctx, part[i:i+1])[0]
			}
			outcomes = append(outcomes, p.outcome(m, verdict))
		}
	}
	return outcomes
}

func (p *Publisher) outcome(m *message, verdict error) error {
	var undecided *undecidedError
	var refusedErr *RefusedError
	switch {
	case verdict == nil:
		return nil
	case errors.As(verdict, &refusedErr):
		return compensator.Permanent(verdict)
	case errors.As(verdict, &undecided) && refuses(undecided.reason.Code):
		return compensator.Permanent(m.newRefusedError(undecided.reason.Code, undecided.reason.Reason))
	case p.cfg.CountUnavailable:
		return verdict
	}
	return compensator.Unavailable(verdict)
}

func refuses(code int) bool {
	return code == amqp091.AccessRefused || code == amqp091.NotFound || code == amqp091.PreconditionFailed
}

// sendPart sends messages on one channel of a pool, and returns when the broker has answered or ctx has ended. After
// ctx has ended, the channel stays in use until the broker has answered. The pool has few channels, so a slow broker
// does not get more and more messages.
func (p *Publisher) sendPart(ctx context.Context, messages []*message) []error {
	pool, err := p.takePool(ctx)
	if err != nil {
		return repeatError(messages, err)
	}
	results := make(chan []error, 1)
	go func() { results <- pool.deliver(ctx, messages) }()
	select {
	case verdicts := <-results:
		return verdicts
	case <-ctx.Done():
		return repeatError(messages, fmt.Errorf("rabbitmq: no confirm: %w", context.Cause(ctx)))
	}
}

func (p *Publisher) takePool(ctx context.Context) (*channelPool, error) {
	for {
		pool, err := p.awaitPool(ctx)
		if err != nil {
			return nil, err
		}
		if err = pool.takeSlot(ctx); err != errGone {
			return pool, err
		}
	}
}

func repeatError(messages []*message, err error) []error {
	verdicts := make([]error, len(messages))
	for i := range verdicts {
		verdicts[i] = err
	}
	return verdicts
}

// deliver publishes messages on a channel and waits for the answers of the broker. Then it frees the slot that takeSlot
// has taken.
func (l *channelPool) deliver(ctx context.Context, messages []*message) []error {
	defer func() { <-l.slots }()
	ch, err := l.channel()
	if err != nil {
		return repeatError(messages, err)
	}
	defer l.keepIdle(ch)
	if ctx.Err() != nil { // The sender does not wait any more, so publish nothing.
		return repeatError(messages, context.Cause(ctx))
	}
	return l.publish(ctx, ch, messages)
}

func (l *channelPool) publish(ctx context.Context, ch *channel, messages []*message) []error {
	confirms := make([]*amqp091.DeferredConfirmation, len(messages))
	verdicts := make([]error, len(messages))
	for i, m := range messages {
		if problem := m.sizeProblem(l.link.Config.FrameSize); problem != "" {
			verdicts[i] = m.newRefusedError(0, problem)
			continue
		}
		confirm, err := ch.PublishWithDeferredConfirm(m.exchange, m.key, m.mandatory, false, m.publishing)
		if err != nil {
			if !ch.IsClosed() { // Drop the connection, because amqp091 would keep a connection that accepts no writes.
				l.link.drop()
				<-l.connectionEnd
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
	returns, unconfirmed := ch.takeReturned(), l.unconfirmed(ch)
	for i, m := range messages {
		if verdicts[i] != nil {
			continue
		}
		if returned, unroutable := returns[m.publishing.MessageId]; unroutable {
			verdicts[i] = m.newRefusedError(int(returned.ReplyCode), "unroutable: no queue is bound for it ("+returned.ReplyText+")")
		} else if confirms[i] == nil || !confirms[i].Acked() {
			verdicts[i] = unconfirmed
		}
	}
	return verdicts
}

// confirmTimeout is how long deliver waits for a confirm after the sender has stopped waiting. Some confirms never
// come: a queue that has lost its majority does not confirm. Tests shorten the timeout.
var confirmTimeout = 30 * time.Second

func (l *channelPool) awaitConfirm(ctx context.Context, ch *channel, confirm *amqp091.DeferredConfirmation) {
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
	if l.awaitOpen(context.Background()) == nil { // Wait until the broker reads again, because a broker that blocks the connection does not read a close.
		stop := l.startGuard()
		_ = ch.Close()
		stop()
	}
	<-confirm.Done()
}

// takeReturned returns the messages that the broker could not route. The result is complete after the confirms, because
// the broker returns an unroutable message before it confirms the message.
func (ch *channel) takeReturned() map[string]amqp091.Return {
	returns := make(map[string]amqp091.Return)
	for {
		select {
		case r, ok := <-ch.returns:
			if !ok {
				return returns
			}
			returns[r.MessageId] = r
		default:
			return returns
		}
	}
}

func (l *channelPool) unconfirmed(ch *channel) error {
	switch {
	case l.link.IsClosed():
		return errGone
	case !ch.IsClosed():
		return errNack
	}
	if reason := <-ch.closeErr; reason != nil {
		return &undecidedError{reason}
	}
	return errGone // This process has closed the channel.
}
