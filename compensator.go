package compensator

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/features"
	"github.com/compensator-go/compensator/internal/mysqlerr"
	"github.com/compensator-go/compensator/internal/sqlstore"
	"github.com/compensator-go/compensator/internal/txwatch"
	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/processlog"
)

// Compensator records entries and runs their handlers. Create one per process with New. All methods are safe for
// concurrent use.
type Compensator struct {
	cfg       Config
	log       *slog.Logger
	store     processlog.Store
	queue     processlog.Queue
	connector *txwatch.Connector // the Connector that Config.DB was opened on, which sees commits; nil if Config.DB was opened without one

	fingerprint    string   // result of Store.Fingerprint, which identifies the database of the process log
	sameLogSources sync.Map // keys: the other Connectors and Compensators that are known to use the same process log, see sameLog

	types      *registry
	poolShares poolShares
	purging    purgeState

	features *features.Set
	// engine runs the entries. The function features.New has created the engine, and Compensator.Close closes it.
	engine   *engine.Engine
	isClosed atomic.Bool
}

// New checks the configuration first, then the server and the table. Each of the two checks reports all its problems at
// once. Call Close when you are done. Handlers see the values of ctx. The Compensator does not stop when ctx ends.
//
// An invalid field is a *FieldError, which errors.As finds. After an error, nothing that the library opened stays open.
func New(ctx context.Context, cfg Config) (*Compensator, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	logger := usererr.Logger(cfg.Logger)
	if cfg.Name != "" {
		logger = logger.With("log", cfg.Name)
	}
	c := &Compensator{cfg: cfg, log: logger, types: newRegistry(), purging: purgeState{startToken: make(chan struct{}, 1), started: make(map[string]bool)}}
	queueAnswers, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	c.features = features.New(ctx, c.engineConfig(), features.Config{Paused: c.settings(), CaseOf: c.caseOf(), ScrubAttempt: c.scrubAttempt(), Stats: c.stats(), Instances: c.instances(), Instance: c.instanceName(), StopOnLoss: c.cfg.StopOnLoss, IgnoreLoss: c.cfg.IgnoreLoss, Queue: features.Queue{
		Queue: c.queue, Down: !queueAnswers, Fingerprint: c.fingerprint, Horizon: c.cfg.Horizon, Limit: c.cfg.QueueLimit,
	}, Transactions: features.Transactions{Begin: c.beginForHandler, ServersFault: c.serversFault}})
	c.engine = c.features.Engine
	if err := c.features.Begin(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	// Start the rounds of cases before those of the purge. One goroutine runs all rounds that are due at the same time,
	// in the order of the calls below. A round of the purge may last for the time keepFor. Rounds after the purge would
	// have to wait for its end.
	if cfg.Operations != nil {
		if err := c.startCaseRounds(ctx); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	if err := errors.Join(c.keepStats(ctx), c.forgetInstances(ctx)); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if err := c.startPurging(ctx, cfg.Keep); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Compensator) engineConfig() engine.Config {
	return engine.Config{
		Store: c.store, Log: c.log, Observer: c.cfg.Observer,
		Lease: c.cfg.Lease, Grace: c.cfg.Grace, ReconcileInterval: c.cfg.ReconcileInterval, PollInterval: c.cfg.PollInterval,
		StopTimeout: c.cfg.StopTimeout,
		Extract:     c.extract, ErrorNumber: mysqlerr.Number,
	}
}

func (c *Compensator) open(ctx context.Context) (queueAnswers bool, err error) {
	if c.store, err = c.openStore(ctx); err != nil {
		if c.cfg.Queue != nil {
			err = errors.Join(err, c.cfg.Queue.Close())
		}
		return false, err
	}
	if c.queue, err = c.openQueue(); err != nil {
		return false, errors.Join(err, c.store.Close())
	}
	if err = c.checkStore(ctx); err == nil {
		queueAnswers, err = c.checkQueue(ctx)
	}
	if err != nil {
		return false, errors.Join(err, c.closeQueue(), c.store.Close())
	}
	return queueAnswers, nil
}

func (c *Compensator) openQueue() (processlog.Queue, error) {
	if c.cfg.Queue != nil || c.cfg.Redis == nil {
		return c.cfg.Queue, nil
	}
	return openRedisQueue(c.cfg.Redis, c.cfg.Prefix)
}

// maxQueueCheck limits how long New waits for the queue.
const maxQueueCheck = 10 * time.Second

// checkQueue refuses a queue that belongs to another log. It accepts a queue that does not answer: the library then
// polls the database.
func (c *Compensator) checkQueue(ctx context.Context) (answers bool, err error) {
	if c.queue == nil {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, engine.QueueShare(ctx, maxQueueCheck))
	defer cancel()
	err = c.queue.Check(ctx, c.fingerprint)
	var refused *FieldError
	switch {
	case errors.As(err, &refused):
		return false, err
	case err != nil:
		c.log.Warn("compensator: the queue cannot be used; polling the database meanwhile", "err", err)
		return false, nil
	}
	if q, ok := c.queue.(interface{ Evicts(context.Context) string }); ok {
		if policy := q.Evicts(ctx); policy != "" {
			c.log.Warn("compensator: Redis may evict the queue as a whole; use noeviction or a volatile policy", "maxmemory_policy", policy)
		}
	}
	return true, nil
}

func (c *Compensator) closeQueue() error {
	if c.queue == nil {
		return nil
	}
	return c.queue.Close()
}

// serversFault reports whether the server may have caused an error in a handler's transaction. wholeServer says that
// the cause concerns the whole server.
func (c *Compensator) serversFault(err error) (fromServer, wholeServer bool) {
	judge := mysqlerr.Blames
	if s, ok := c.store.(*sqlstore.Store); ok {
		judge = s.Blame
	}
	blame := judge(err)
	return blame != mysqlerr.Statement, blame == mysqlerr.Server
}

// Name returns Config.Name.
func (c *Compensator) Name() string { return c.cfg.Name }

func (c *Compensator) closed() bool { return c.isClosed.Load() }

// Close waits up to 5 s for the database and Redis to answer requests that the library has sent. Then Close closes
// Config.Store, Config.Queue and the connections that the library opened. Config.DB and Config.Redis stay open. Call
// Close after Run has returned. After Close, Run, Record and all methods that change an entry return ErrClosed. A
// second Close returns nil. Entries that have not run stay in the database for the next process.
func (c *Compensator) Close() error {
	if c.isClosed.Swap(true) {
		return nil
	}
	c.features.StopWaiting()
	c.engine.Close()
	return errors.Join(c.closeQueue(), c.store.Close())
}
