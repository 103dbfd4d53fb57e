package intake

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/sleep"
	"github.com/compensator-go/compensator/internal/usererr"
)

// Intake records the messages of one source in the log. Call Run to start it. Its methods may be called concurrently,
// and several processes may each run an Intake of one Stream. If a process dies, the source delivers its
// unacknowledged messages again.
type Intake struct {
	c       *compensator.Compensator
	source  Source
	cfg     Config
	name    string
	counts  counters
	running atomic.Bool

	mu  sync.Mutex // guards err
	err error
}

// Open registers cfg.Type with c and returns an Intake. Call Open before c.Run. c.Run processes the recorded entries,
// including the entries of messages that were set aside. Another process that opens the same Intake processes these
// entries in its Compensator.Run, too. An invalid field is a *compensator.FieldError. While c.Run runs, Open returns
// compensator.ErrRunning.
func Open(ctx context.Context, c *compensator.Compensator, source Source, cfg Config) (*Intake, error) {
	cfg = cfg.withDefaults()
	if source == nil {
		return nil, &compensator.FieldError{Field: "source", Reason: "is nil"}
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	in := &Intake{c: c, source: source, cfg: cfg, name: source.Name(), err: errNotRunning}
	if _, err := compensator.HandleTx(ctx, c, cfg.Type, in.retry, &cfg.Aside); err != nil {
		return nil, err
	}
	return in, nil
}

var errNotRunning = errors.New("intake: not running")

// IdempotencyKey returns the key under which a message is recorded. It consists of the source's name and the message
// id.
func (in *Intake) IdempotencyKey(m *Message) compensator.IdempotencyKey {
	return idempotencyKey(in.name, m.ID)
}

// Err returns nil while the Intake takes messages or waits for new ones. If the Intake cannot take messages, Err
// returns the reason, for example an unreachable source or database.
func (in *Intake) Err() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.err
}

func (in *Intake) set(err error) (changed bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	changed = (in.err == nil) != (err == nil) || in.err == errNotRunning
	in.err = err
	return changed
}

// Stats returns the counts of this Intake. If the source is a Measurer, Stats also returns the backlog of the source.
// If measuring fails, Stats returns the error, and the counts are still valid.
func (in *Intake) Stats(ctx context.Context) (Stats, error) {
	backlog := Backlog{Lag: -1}
	var err error
	if m, ok := in.source.(Measurer); ok {
		if backlog, err = m.Measure(ctx); err != nil {
			backlog, err = Backlog{Lag: -1}, failure("measure "+in.name, usererr.Safe(err))
		}
	}
	return in.counts.stats(backlog), err
}

// Run takes messages until ctx ends. Then it completes and acknowledges its current batch and returns nil. The source
// delivers unacknowledged messages again. Run returns compensator.ErrRunning if it is running already, and
// compensator.ErrClosed if the Compensator was closed.
func (in *Intake) Run(ctx context.Context) error {
	if in.running.Swap(true) {
		return compensator.ErrRunning
	}
	defer in.running.Store(false)
	works, stop := in.lasting(ctx)
	defer stop()
	measured := make(chan struct{})
	go func() {
		defer close(measured)
		// The context in the variable works ends when Run calls the function stop. Do not pass ctx here. If the loop
		// ends because the Compensator is closed, ctx does not end. This goroutine would then never end, and Run would
		// wait for it forever.
		in.measure(works)
	}()
	err := in.loop(ctx, works)
	stop()
	<-measured
	in.leaveGroup(ctx)
	in.set(errNotRunning)
	return err
}

// lasting returns a context that ends StopTimeout after ctx has ended.
func (in *Intake) lasting(ctx context.Context) (context.Context, context.CancelFunc) {
	works, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	var mu sync.Mutex // guards timer
	var timer *time.Timer
	unhook := context.AfterFunc(ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		if works.Err() == nil {
			timer = time.AfterFunc(in.cfg.StopTimeout, func() { cancel(compensator.ErrStopping) })
		}
	})
	return works, func() {
		unhook()
		cancel(compensator.ErrStopping)
		mu.Lock()
		defer mu.Unlock()
		if timer != nil {
			timer.Stop()
		}
	}
}

// loop settles one batch before it takes the next, so that messages do not pile up in memory.
func (in *Intake) loop(ctx, works context.Context) error {
	if err := in.prove(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	for failures := 0; ctx.Err() == nil; {
		messages, err := in.source.Next(ctx, in.cfg.Batch)
		err = usererr.Safe(err)
		if len(messages) > 0 {
			failpoint.Reach(failpoint.MessagesRead)
			if fatal := in.processBatch(works, messages); fatal != nil {
				return fatal
			}
		}
		if err == nil {
			failures = 0
			in.isHealthy()
			continue
		}
		if ctx.Err() != nil {
			return nil
		}
		failures++
		in.waitAfter(0, failure("next messages of "+in.name, err))
		pause(ctx, failures)
	}
	return nil
}

// prove waits until the database accepts a trial entry. Only then does this process take messages. Without the trial, a
// process that restarts again and again would take messages while the database is read-only. Each taking counts as a
// delivery, and a message with too many deliveries is set aside.
func (in *Intake) prove(ctx context.Context) error {
	for failures := 1; ctx.Err() == nil; failures++ {
		err := in.trial(ctx)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, compensator.ErrClosed):
			return err
		case ctx.Err() == nil:
			in.waitAfter(0, err)
			pause(ctx, failures)
		}
	}
	return nil
}

func (in *Intake) trial(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, in.cfg.Timeout, errSlow)
	defer cancel()
	return try(ctx, in.c, in.cfg.Type)
}

// waitAfter reports that the Intake waits because of an error. It logs only the first report after a success.
func (in *Intake) waitAfter(messages int, err error) {
	if in.set(err) {
		in.cfg.Logger.Warn("intake: no messages are taken until the error has passed", "source", in.name, "messages", messages, "err", err)
	}
	notify(in, in.cfg.Observer.Waiting, WaitingEvent{Source: in.name, Messages: messages, Err: err})
}

func (in *Intake) isHealthy() {
	if in.set(nil) {
		in.cfg.Logger.Info("intake: taking messages", "source", in.name)
	}
}

// measure calls Observer.Measured every StatsEvery, even while a batch waits.
func (in *Intake) measure(ctx context.Context) {
	if _, ok := in.source.(Measurer); !ok || in.cfg.Observer.Measured == nil {
		return
	}
	ticker := time.NewTicker(in.cfg.StatsEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if stats, err := in.Stats(ctx); err == nil {
			notify(in, in.cfg.Observer.Measured, stats)
		}
	}
}

const leaveTimeout = 2 * time.Second

func (in *Intake) leaveGroup(ctx context.Context) {
	l, ok := in.source.(leaver)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	if err := l.leaveGroup(ctx); err != nil {
		in.cfg.Logger.Debug("intake: the source could not end its consumer", "source", in.name, "err", err)
	}
}

const longestPause = 2 * time.Second

func pause(ctx context.Context, failures int) bool {
	return sleep.For(ctx, min(20*time.Millisecond<<min(failures, 10), longestPause))
}
