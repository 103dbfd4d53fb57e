package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rabbitmq/amqp091-go"
)

// window is how many messages one channel has under way at most. Returned ones wait in a buffer of that size, since
// amqp091's reader must never wait for us.
const window = 256

var (
	errGone    = errors.New("rabbitmq: connection lost")
	errBlocked = errors.New("rabbitmq: the broker blocks the connection, out of memory or disk space")
	errBusy    = errors.New("rabbitmq: every channel waits for confirms")
)

// line is a connection with its channels. Whoever has a channel has it alone, so that what a closed channel says is
// about what was sent on it.
type line struct {
	link  *link
	slots chan struct{} // one is taken for each sender under way
	dead  chan struct{} // closed when the connection has ended

	mu   sync.Mutex // guards the fields below
	idle []*channel
	open chan struct{} // closed while the broker reads from us
}

func newLine(l *link, channels int) *line {
	open := make(chan struct{})
	close(open)
	return &line{link: l, slots: make(chan struct{}, channels), dead: make(chan struct{}), open: open}
}

// block notes whether the broker has stopped to read from us. Only the supervisor calls it.
func (l *line) block(blocked bool) {
	if blocked != l.reads() {
		return // told before
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if blocked {
		l.open = make(chan struct{})
	} else {
		close(l.open)
	}
}

// end tells everybody who waits that the connection is gone, and frees those who write to it.
func (l *line) end() {
	close(l.dead)
	l.link.drop()
}

// reads reports whether the broker reads from us.
func (l *line) reads() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.open:
		return true
	default:
		return false
	}
}

// awaitOpen returns while the broker reads from us.
func (l *line) awaitOpen(ctx context.Context) error {
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

// take takes a slot; deliver gives it back.
func (l *line) take(ctx context.Context) error {
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

// channel is an idle one, or a new one.
func (l *line) channel() (*channel, error) {
	if ch := l.idler(); ch != nil {
		return ch, nil
	}
	ch, err := l.newChannel()
	if err != nil && l.link.IsClosed() {
		err = errNotSent
	}
	return ch, err
}

// idler is a channel that waits for work and is still there, or nil.
func (l *line) idler() *channel {
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

// rest keeps a channel for the next sender.
func (l *line) rest(ch *channel) {
	if !ch.IsClosed() {
		l.mu.Lock()
		l.idle = append(l.idle, ch)
		l.mu.Unlock()
	}
}

// guard is the link's, but for a blocked broker: that answers once it reads again.
func (l *line) guard() (stop func() bool) {
	return time.AfterFunc(setUpLimit, func() {
		if l.reads() {
			l.link.drop()
		}
	}).Stop
}

// channel is one of confirms.
type channel struct {
	*amqp091.Channel
	returned chan amqp091.Return
	closed   chan *amqp091.Error
}

func (l *line) newChannel() (*channel, error) {
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
