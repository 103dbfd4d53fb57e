package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rabbitmq/amqp091-go"
)

// window is the maximum number of messages in flight on one channel. The broker may return all of these messages. So the
// buffer for returned messages has the same size. A full buffer would block the goroutine in which amqp091 reads from
// the connection.
const window = 256

var (
	errGone    = errors.New("rabbitmq: connection lost")
	errBlocked = errors.New("rabbitmq: the broker blocks the connection because it is out of memory or disk space")
	errBusy    = errors.New("rabbitmq: all channels are waiting for confirms")
)

// channelPool gives a channel to one sender at a time. So if the broker closes a channel, a message of that sender is
// the reason.
type channelPool struct {
	link          *link
	slots         chan struct{} // holds one value for each active sender
	connectionEnd chan struct{} // closed when the connection has ended

	mu           sync.Mutex // guards the fields below
	idleChannels []*channel
	// The field unblocked holds a Go channel that is closed as long as the broker reads from the connection. A sender
	// receives from the channel, so a sender waits only while the channel is open. When the broker stops reading, the
	// method block puts an open channel into this field. When the broker reads again, block closes that channel.
	unblocked chan struct{}
}

func newChannelPool(l *link, channels int) *channelPool {
	channels = min(channels, int(l.Config.ChannelMax)) // The broker may allow fewer channels than Config.Channels.
	unblocked := make(chan struct{})
	close(unblocked)
	return &channelPool{link: l, slots: make(chan struct{}, channels), connectionEnd: make(chan struct{}), unblocked: unblocked}
}

// block is called by the supervisor only.
func (l *channelPool) block(blocked bool) {
	if blocked != l.isReadable() {
		return // The broker has repeated its notification.
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if blocked {
		l.unblocked = make(chan struct{})
	} else {
		close(l.unblocked)
	}
}

// endPool closes the connection, which unblocks its writers.
func (l *channelPool) endPool() {
	close(l.connectionEnd)
	l.link.drop()
}

func (l *channelPool) isReadable() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.unblocked:
		return true
	default:
		return false
	}
}

func (l *channelPool) awaitOpen(ctx context.Context) error {
	if l.isReadable() {
		return nil
	}
	l.mu.Lock()
	unblocked := l.unblocked
	l.mu.Unlock()
	select {
	case <-unblocked:
		return nil
	case <-l.connectionEnd:
		return errGone
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", context.Cause(ctx), errBlocked)
	}
}

// takeSlot takes a slot that the method deliver gives back.
func (l *channelPool) takeSlot(ctx context.Context) error {
	if err := l.awaitOpen(ctx); err != nil {
		return err
	}
	select {
	case l.slots <- struct{}{}:
		return nil
	case <-l.connectionEnd:
		return errGone
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", context.Cause(ctx), errBusy)
	}
}

func (l *channelPool) channel() (*channel, error) {
	if ch := l.takeIdle(); ch != nil {
		return ch, nil
	}
	return l.newChannel()
}

func (l *channelPool) takeIdle() *channel {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.idleChannels) > 0 {
		last := len(l.idleChannels) - 1
		ch := l.idleChannels[last]
		l.idleChannels = l.idleChannels[:last]
		if !ch.IsClosed() {
			return ch
		}
	}
	return nil
}

func (l *channelPool) keepIdle(ch *channel) {
	if !ch.IsClosed() {
		l.mu.Lock()
		l.idleChannels = append(l.idleChannels, ch)
		l.mu.Unlock()
	}
}

// startGuard drops the connection after setUpLimit, unless the function stop is called before. So no request waits
// forever for an answer of the broker. There is one exception: startGuard keeps a connection that the broker blocks. The
// broker answers after it has unblocked the connection.
func (l *channelPool) startGuard() (stop func() bool) {
	return time.AfterFunc(setUpLimit, func() {
		if l.isReadable() {
			l.link.drop()
		}
	}).Stop
}

type channel struct {
	*amqp091.Channel
	returns  chan amqp091.Return
	closeErr chan *amqp091.Error
}

func (l *channelPool) newChannel() (*channel, error) {
	defer l.startGuard()()
	opened, err := l.link.Channel()
	if err != nil {
		return nil, wrapError("open a channel", err)
	}
	ch := &channel{Channel: opened, returns: make(chan amqp091.Return, window), closeErr: make(chan *amqp091.Error, 1)}
	ch.NotifyReturn(ch.returns)
	ch.NotifyClose(ch.closeErr)
	if err := ch.Confirm(false); err != nil {
		return nil, wrapError("ask for confirms", err)
	}
	return ch, nil
}
