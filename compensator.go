package compensator

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

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
	connector *txwatch.Connector // the connector that Config.DB was opened on, which sees commits; nil if there is none

	fingerprint string   // identifies the log, as the store reports it
	homes       sync.Map // values are *txwatch.Connector and *Compensator: other sources whose transactions reach the same log

	types  *registry
	inPool poolShares
	kept   kept

	features *features.Set
	// engine runs the entries. It belongs to features, which closes it.
	engine   *engine.Engine
	isClosed atomic.Bool
}

// New checks the configuration first, then the server and the table. Each of the two checks reports all its problems at
// once. Call Close when you are done. Handlers see the values of ctx. The Compensator goes on after ctx has ended.
func New(ctx context.Context, cfg Config) (*Compensator, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	logger := usererr.Logger(cfg.Logger)
	if cfg.Name != "" {
		logger = logger.With("log", cfg.Name)
	}
	c := &Compensator{cfg: cfg, log: logger, types: newRegistry(), kept: kept{begin: make(chan struct{}, 1)}}
	queueAnswers, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	c.features = features.New(ctx, c.engineConfig(), features.Config{Paused: c.paused(), CaseOf: c.caseOf(), StopOnLoss: c.cfg.StopOnLoss, IgnoreLoss: c.cfg.IgnoreLoss, Queue: features.Queue{
		Queue: c.queue, Local: c.local(), Down: !queueAnswers, Fingerprint: c.fingerprint, Horizon: c.cfg.Horizon, Limit: c.cfg.QueueLimit,
	}})
	c.engine = c.features.Engine
	if cfg.Operations != nil { // Start this before the purges. The two run one after the other, and the purges take all the time that is left.
		if err := c.keepCases(ctx); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	if err := c.maintain(ctx, cfg.Keep); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// engineConfig translates the Config for the engine.
func (c *Compensator) engineConfig() engine.Config {
	return engine.Config{
		Store: c.store, Log: c.log, Observer: c.cfg.Observer,
		Lease: c.cfg.Lease, Grace: c.cfg.Grace, ReconcileInterval: c.cfg.ReconcileInterval, PollInterval: c.cfg.PollInterval,
		StopTimeout: c.cfg.StopTimeout,
		Begin:       c.beginForHandler, Extract: c.extract, ErrorNumber: mysqlerr.Number, Blame: c.blame,
	}
}

// open connects and checks the store and the queue, and reports whether the queue answers.
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
		return false, errors.Join(err, c.queue.Close(), c.store.Close())
	}
	return queueAnswers, nil
}

// blame decides whether an error in a handler's transaction was caused by the server or by the handler. A custom Store
// may also use MySQL, so its errors are read in the same way.
func (c *Compensator) blame(err error) engine.Blame {
	judge := mysqlerr.Blames
	if s, ok := c.store.(*sqlstore.Store); ok {
		judge = s.Blame
	}
	switch judge(err) {
	case mysqlerr.Server:
		return engine.BlameServer
	case mysqlerr.Doubtful:
		return engine.BlameEither
	}
	return engine.BlameHandler
}

// Name returns Config.Name.
func (c *Compensator) Name() string { return c.cfg.Name }

func (c *Compensator) closed() bool { return c.isClosed.Load() }

// Close waits up to 5 s for requests that a server has not answered yet. Then it closes Config.Store, Config.Queue and
// the connections that the library opened. It does not close Config.DB and Config.Redis. Call Close after Run has
// returned.
func (c *Compensator) Close() error {
	if c.isClosed.Swap(true) {
		return nil
	}
	c.engine.Close()
	return errors.Join(c.queue.Close(), c.store.Close())
}
