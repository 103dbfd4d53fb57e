package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rabbitmq/amqp091-go"
)

// window is the maximum number of messages in flight on one channel. The buffer for returned messages has the same
// size, because the reader of amqp091 must never block on this package.
const window = 256

var (
	errGone    = errors.New("rabbitmq: connection lost")
	errBlocked = errors.New("rabbitmq: the broker blocks the connection because it is out of memory or disk space")
	errBusy    = errors.New("rabbitmq: all channels are waiting for confirms")
)

// channelPool is a connection with its channels. Only one sender uses a channel at a time. So if the broker closes a
// channel, a message of that sender is the reason.
type channelPool struct {
	link  *link
	slots chan struct{} // holds one value for each active sender
	dead  chan struct{} // closed when the connection has ended

	mu   sync.Mutex // guards the fields below
	idle []*channel
	open chan struct{} // senders wait until this channel is closed. It is closed as long as the broker reads from this connection
}

func newChannelPool(l *link, channels int) *channelPool {
	channels = min(channels, int(l.Config.ChannelMax)) // The broker may allow fewer channels than Config.Channels.
	open := make(chan struct{})
	close(open)
	return &channelPool{link: l, slots: make(chan struct{}, channels), dead: make(chan struct{}), open: open}
}

// block records whether the broker has stopped reading from this connection. Only the supervisor calls it.
func (l *channelPool) block(blocked bool) {
	if blocked != l.reads() {
		return // The broker has repeated its notification.
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if blocked {
		l.open = make(chan struct{})
	} else {
		close(l.open)
	}
}

// The method end wakes all waiting senders and closes the connection, which unblocks its writers.
func (l *channelPool) end() {
	close(l.dead)
	l.link.drop()
}

// reads reports whether the broker reads from this connection.
func (l *channelPool) reads() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.open:
		return true
	default:
		return false
	}
}

// awaitOpen waits until the broker reads from this connection.
func (l *channelPool) awaitOpen(ctx context.Context) error {
	if l.reads() {
		return nil
	}
	l.mu.Lock()
	open := l.open
	l.mu.Unlock()
	select {
	case <-open:
		return nil
	case <-l.dead:
		return errGone
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", context.Cause(ctx), errBlocked)
	}
}

// The method take takes a slot. The method deliver gives the slot back.
func (l *channelPool) take(ctx context.Context) error {
	if err := l.awaitOpen(ctx); err != nil {
		return err
	}
	select {
	case l.slots <- struct{}{}:
		return nil
	case <-l.dead:
		return errGone
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", context.Cause(ctx), errBusy)
	}
}

// channel returns an idle channel, or a new one.
func (l *channelPool) channel() (*channel, error) {
	if ch := l.takeIdle(); ch != nil {
		return ch, nil
	}
	return l.newChannel()
}

// takeIdle takes an idle channel that is still open. It returns nil if there is none.
func (l *channelPool) takeIdle() *channel {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.idle) > 0 {
		last := len(l.idle) - 1
		ch := l.idle[last]
		l.idle = l.idle[:last]
		if !ch.IsClosed() {
			return ch
		}
	}
	return nil
}

// keepIdle keeps a channel for the next sender.
func (l *channelPool) keepIdle(ch *channel) {
	if !ch.IsClosed() {
		l.mu.Lock()
		l.idle = append(l.idle, ch)
		l.mu.Unlock()
	}
}

// guard does the same as link.guard, but it does not drop a connection that the broker blocks. The broker answers after
// it has unblocked the connection.
func (l *channelPool) guard() (stop func() bool) {
	return time.AfterFunc(setUpLimit, func() {
		if l.reads() {
			l.link.drop()
		}
	}).Stop
}

// channel is an AMQP channel in confirm mode.
type channel struct {
	*amqp091.Channel
	returned chan amqp091.Return
	closed   chan *amqp091.Error
}

func (l *channelPool) newChannel() (*channel, error) {
	defer l.guard()()
	opened, err := l.link.Channel()
	if err != nil {
		return nil, failure("open a channel", err)
	}
	ch := &channel{Channel: opened, returned: make(chan amqp091.Return, window), closed: make(chan *amqp091.Error, 1)}
	ch.NotifyReturn(ch.returned)
	ch.NotifyClose(ch.closed)
	if err := ch.Confirm(false); err != nil {
		return nil, failure("ask for confirms", err)
	}
	return ch, nil
}
