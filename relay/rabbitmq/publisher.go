package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rabbitmq/amqp091-go"
)

// Publisher sends messages over one connection, which it looks after: it connects again, with pauses of up to 3 s
// and jitter, for as long as it is open. Its methods may be called concurrently.
type Publisher struct {
	cfg  Config
	stop context.CancelFunc
	done chan struct{} // closed when the supervisor has ended

	mu      sync.Mutex    // guards the fields below
	line    *line         // nil: not connected
	err     error         // why not
	changed chan struct{} // closed and replaced when line changes
	closed  bool
}

// Open returns a Publisher and connects behind it: a broker that is away is no error, since the entries wait. Err
// says how it stands. An error names the fields of cfg that are wrong.
func Open(cfg Config) (*Publisher, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &Publisher{cfg: cfg, stop: stop, done: make(chan struct{}), err: errConnecting, changed: make(chan struct{})}
	go p.supervise(ctx)
	return p, nil
}

// Close ends the connection and returns when it has ended. Messages under way are Unavailable: close the Publisher
// after Run has returned.
func (p *Publisher) Close() error {
	p.stop()
	<-p.done
	return nil
}

// Err is nil while the Publisher is connected, and otherwise why it is not: wrong credentials, for example.
func (p *Publisher) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// supervise keeps a connection until ctx ends.
func (p *Publisher) supervise(ctx context.Context) {
	defer close(p.done)
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
		p.set(nil, failure("not connected", err))
		if failures == 1 {
			p.cfg.Logger.Warn("rabbitmq: publisher is not connected", "err", err)
		}
		pause(ctx, failures)
	}
	p.set(nil, ErrClosed)
}

// serve offers a connection until it breaks, and returns why it did.
func (p *Publisher) serve(ctx context.Context, l *link) error {
	line := newLine(l, p.cfg.Channels)
	blockings := l.NotifyBlocked(make(chan amqp091.Blocking, 16))
	p.set(line, nil)
	p.cfg.Logger.Info("rabbitmq: publisher is connected")
	for {
		select {
		case b, ok := <-blockings:
			if !ok {
				blockings = nil // the connection ends
				continue
			}
			line.block(b.Active)
			if b.Active {
				p.cfg.Logger.Warn("rabbitmq: the broker blocks the connection", "reason", b.Reason)
			}
		case err := <-l.closed:
			line.end()
			if err == nil {
				return amqp091.ErrClosed
			}
			return err
		case <-ctx.Done():
			p.set(nil, ErrClosed)
			if line.reads() {
				l.close()
			}
			line.end()
			return ErrClosed
		}
	}
}

func (p *Publisher) set(l *line, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line, p.err, p.closed = l, err, err == ErrClosed
	close(p.changed)
	p.changed = make(chan struct{})
}

// await returns a connection that takes messages, or why there is none when ctx ends.
func (p *Publisher) await(ctx context.Context) (*line, error) {
	for {
		p.mu.Lock()
		line, err, closed, changed := p.line, p.err, p.closed, p.changed
		p.mu.Unlock()
		switch {
		case closed:
			return nil, ErrClosed
		case line == nil:
			select {
			case <-changed:
			case <-ctx.Done():
				return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
			}
		default:
			return line, nil
		}
	}
}

// forget keeps a connection that has ended from being handed out until the supervisor has noticed.
func (p *Publisher) forget(l *line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.line == l {
		p.line, p.err = nil, errGone
	}
}

var errConnecting = errors.New("rabbitmq: not connected yet")

// timed bounds one message, or one batch.
func (p *Publisher) timed(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, p.cfg.Timeout, fmt.Errorf("rabbitmq: gave up after %v", p.cfg.Timeout.Round(time.Millisecond)))
}
