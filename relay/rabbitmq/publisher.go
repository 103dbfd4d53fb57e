package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rabbitmq/amqp091-go"
)

// Publisher sends messages over one connection. While the Publisher is open it reconnects, with pauses of up to 3 s and
// jitter. Its methods may be called concurrently.
type Publisher struct {
	cfg          Config
	stop         context.CancelFunc
	superviseEnd chan struct{} // closed when supervise has returned

	mu       sync.Mutex    // guards the fields below
	pool     *channelPool  // nil while not connected
	err      error         // reason why pool is nil
	changed  chan struct{} // closed, and replaced by a new channel, when the field pool changes
	isClosed bool
}

// Open returns a Publisher and connects in the background. If the broker is unreachable, Open returns no error, and the
// entries wait. Err returns the state of the connection. An invalid field of cfg is a *compensator.FieldError.
func Open(cfg Config) (*Publisher, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &Publisher{cfg: cfg, stop: stop, superviseEnd: make(chan struct{}), err: errConnecting, changed: make(chan struct{})}
	go p.supervise(ctx)
	return p, nil
}

// Close closes the connection and waits until it is closed. Messages in flight get the outcome Unavailable. So close
// the Publisher after Run has returned.
func (p *Publisher) Close() error {
	p.stop()
	<-p.superviseEnd
	return nil
}

// Err returns nil while the Publisher is connected, and otherwise the reason why it is not.
func (p *Publisher) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

func (p *Publisher) supervise(ctx context.Context) {
	defer close(p.superviseEnd)
	for failures := 0; ctx.Err() == nil; {
		l, err := connect(ctx, p.cfg.URL, p.cfg.AMQP, "compensator publisher")
		if err == nil {
			failures = 0
			err = p.serve(ctx, l)
		}
		if ctx.Err() != nil {
			break
		}
		failures++
		p.setState(nil, wrapError("not connected", err))
		if failures == 1 {
			p.cfg.Logger.Warn("rabbitmq: publisher is not connected", "err", err)
		}
		pause(ctx, failures)
	}
	p.setState(nil, ErrClosed)
}

func (p *Publisher) serve(ctx context.Context, l *link) error {
	pool := newChannelPool(l, p.cfg.Channels)
	blockings := l.NotifyBlocked(make(chan amqp091.Blocking, 16))
	p.setState(pool, nil)
	p.cfg.Logger.Info("rabbitmq: publisher is connected")
	for {
		select {
		case b, ok := <-blockings:
			if !ok {
				blockings = nil // amqp091 closes this channel when the connection closes.
				continue
			}
			pool.block(b.Active)
			if b.Active {
				p.cfg.Logger.Warn("rabbitmq: the broker blocks the connection", "reason", b.Reason)
			}
		case err := <-l.closeErr:
			pool.endPool()
			return orConnectionLost(err)
		case <-ctx.Done():
			p.setState(nil, ErrClosed)
			if pool.isReadable() {
				l.close()
			}
			pool.endPool()
			return ErrClosed
		}
	}
}

func (p *Publisher) setState(l *channelPool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pool, p.err, p.isClosed = l, err, err == ErrClosed
	close(p.changed)
	p.changed = make(chan struct{})
}

// awaitPool returns the reason why there is no connection if ctx ends first.
func (p *Publisher) awaitPool(ctx context.Context) (*channelPool, error) {
	for {
		p.mu.Lock()
		pool, err, closed, changed := p.pool, p.err, p.isClosed, p.changed
		p.mu.Unlock()
		switch {
		case closed:
			return nil, ErrClosed
		case pool == nil:
			select {
			case <-changed:
			case <-ctx.Done():
				return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
			}
		default:
			return pool, nil
		}
	}
}

var errConnecting = errors.New("rabbitmq: not connected yet")

func (p *Publisher) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, p.cfg.Timeout, fmt.Errorf("rabbitmq: gave up after %v", p.cfg.Timeout.Round(time.Millisecond)))
}
