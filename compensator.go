package compensator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/groupcommit"
	"github.com/compensator-go/compensator/internal/redisqueue"
	"github.com/compensator-go/compensator/internal/sqlstore"
	"github.com/compensator-go/compensator/internal/timingwheel"
	"github.com/compensator-go/compensator/internal/txwatch"
)

// Compensator records entries and runs their handlers. Make one per process with New; all its methods may
// be called concurrently.
type Compensator struct {
	cfg       Config
	log       *slog.Logger
	store     Store
	queue     Queue
	local     bool // the queue knows this process's entries only
	watchesDB bool // Config.DB was opened on a Connector

	fingerprint string   // the store's
	homes       sync.Map // of *connector: others whose connections reach the same log

	middleware      []Middleware
	batchMiddleware []BatchMiddleware
	types           registry

	// work is the context of everything that outlives a call; Close ends it.
	work     context.Context
	endWork  context.CancelCauseFunc
	isClosed atomic.Bool

	resolveLane  *groupcommit.Batcher[freshEntry]   // ids of a bulk insert are asked for
	verifyLane   *groupcommit.Batcher[freshEntry]   // born-claimed rows are read back
	claimLane    *groupcommit.Batcher[freshEntry]   // fresh rows are claimed by id
	announceLane *groupcommit.Batcher[Announcement] // the queue is told
	moveLane     *groupcommit.Batcher[Announcement] // the queue is told of entries that come sooner than it knows
	settleLane   *groupcommit.Batcher[settlement]   // outcomes are written
	slowLane     *groupcommit.Batcher[settlement]   // outcomes of rows that others hold wait
	ackLane      *groupcommit.Batcher[ack]          // the queue is told of outcomes
	debtLane     *groupcommit.Batcher[debt]         // leases are given back that could not be
	checkLane    *groupcommit.Batcher[struct{}]     // a process that only records reads back

	health     queueHealth
	losses     *losses
	debts      debts
	troubles   troubles
	witness    witness
	dispatcher *dispatcher
	scanner    *scanner

	mu      sync.Mutex // guards the fields below
	running bool
	accepts atomic.Bool // Run takes new entries
}

// New checks the configuration, the server and the table, and reports everything wrong with them at once.
// A process that only records never needs Run; every process should Close.
func New(ctx context.Context, cfg Config) (*Compensator, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	c := &Compensator{cfg: cfg, log: cfg.Logger}
	c.health.c, c.troubles.c, c.losses = c, c, newLosses()
	c.witness.init(c)
	c.types.leases = leaseRange{cfg.Lease, cfg.Lease}
	if err := c.open(ctx); err != nil {
		return nil, err
	}
	c.work, c.endWork = context.WithCancelCause(c.reporting(context.WithoutCancel(ctx)))
	c.dispatcher = newDispatcher(c)
	c.scanner = newScanner(c)
	c.openLanes()
	return c, nil
}

// open connects and checks the store and the queue.
func (c *Compensator) open(ctx context.Context) error {
	var err error
	c.store, c.queue = c.cfg.Store, c.cfg.Queue
	if c.store == nil {
		if c.store, err = sqlstore.Open(ctx, c.cfg.DB, c.cfg.Table); err != nil {
			return err
		}
		_, c.watchesDB = txwatch.Inner(c.cfg.DB)
	}
	if err := c.openQueue(); err != nil {
		return errors.Join(err, c.store.Close())
	}
	if err := c.check(ctx); err != nil {
		return errors.Join(err, c.queue.Close(), c.store.Close())
	}
	return nil
}

func (c *Compensator) openQueue() error {
	if c.queue != nil {
		return nil
	}
	if c.cfg.Redis == nil {
		c.queue, c.local = timingwheel.New(), true
		return nil
	}
	queue, err := redisqueue.Open(c.cfg.Redis, c.cfg.Prefix)
	c.queue = queue
	return err
}

// check asks the servers. A Redis that does not answer is no reason to refuse: the database is polled until
// it does; one that belongs to somebody else is.
func (c *Compensator) check(ctx context.Context) error {
	if err := c.store.Check(ctx); err != nil {
		return err
	}
	if s, ok := c.store.(*sqlstore.Store); ok {
		if err := c.checkServer(s); err != nil {
			return err
		}
	}
	var err error
	if c.fingerprint, err = c.store.Fingerprint(ctx); err != nil {
		return err
	}
	err = c.queue.Check(ctx, c.fingerprint)
	var refused *FieldError
	if err != nil && !errors.As(err, &refused) {
		c.log.Warn("compensator: the queue does not answer; polling the database meanwhile", "err", err)
		c.health.down, c.health.gaps = true, true
		return nil
	}
	if q, ok := c.queue.(*redisqueue.Queue); ok && err == nil {
		if policy := q.Evicts(ctx); policy != "" {
			c.log.Warn("compensator: Redis may evict the queue as a whole; use noeviction or a volatile policy", "maxmemory_policy", policy)
		}
	}
	return err
}

// Use adds middleware around the handlers and compensations of types registered from now on.
func (c *Compensator) Use(middleware ...Middleware) {
	c.middleware = append(c.middleware, middleware...)
}

// UseBatch adds middleware around batch handlers registered from now on.
func (c *Compensator) UseBatch(middleware ...BatchMiddleware) {
	c.batchMiddleware = append(c.batchMiddleware, middleware...)
}

// addType takes a validated type in.
func (c *Compensator) addType(t *handlerType) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running {
		return fmt.Errorf("register %q: %w: register types before Run", t.name, ErrRunning)
	}
	c.fitPool(t)
	t.slots = &slots{size: t.cfg.Concurrency, credit: t.cfg.Lease / 3}
	return c.types.add(t)
}

// fitPool keeps a type from waiting for connections of a small pool: transactional handlers hold one each,
// and without connections of our own a lease may not be renewable in time.
func (c *Compensator) fitPool(t *handlerType) {
	if c.cfg.DB == nil {
		return
	}
	size := c.cfg.DB.Stats().MaxOpenConnections
	if size == 0 {
		return
	}
	if most := max(1, size-2); t.usesTx() && t.cfg.Concurrency > most {
		c.log.Warn("compensator: transactional handlers are bounded by the pool", "type", t.name, "concurrency", most, "max_open_conns", size)
		t.cfg.Concurrency = most
	}
	if size <= 3 && !c.watchesDB && t.cfg.Lease < t.cfg.Timeout {
		t.cfg.Lease = t.cfg.Timeout + c.cfg.Grace
		c.log.Warn("compensator: the pool is too small to renew leases in time; lease raised above the timeout", "type", t.name, "lease", t.cfg.Lease)
	}
}

func (t *handlerType) usesTx() bool { return t.runTx != nil || t.cfg.CompensateTx != nil }

// accepting returns the type's handler while Run takes new entries.
func (c *Compensator) accepting(businessType string) *handlerType {
	if !c.accepts.Load() {
		return nil
	}
	return c.types.named(businessType)
}

func (c *Compensator) closed() bool { return c.isClosed.Load() }

// Run works entries off until ctx ends, and then stops in this order: it claims no more, waits for running
// handlers (see Config.StopTimeout), stores their outcomes, and returns nil. Handlers that do not return
// make it return a *StuckError; outcomes the database does not take, an error that says so. Either way
// nothing is lost: those entries come due again when their leases end. It returns ErrRunning at once when
// called while it runs, and may be called again afterwards.
func (c *Compensator) Run(ctx context.Context) error {
	if err := c.startRunning(ctx); err != nil {
		return err
	}
	defer c.stopRunning()
	var loops sync.WaitGroup
	loopCtx, stopLoops := context.WithCancel(c.reporting(ctx)) // the loops' readings are not of c.work
	defer stopLoops()
	for _, loop := range []func(context.Context){c.scanner.run, c.reconcile, c.listen} {
		loops.Go(func() { loop(loopCtx) })
	}
	renewCtx, stopRenewing := context.WithCancel(context.WithoutCancel(ctx))
	var renewing sync.WaitGroup
	renewing.Go(func() { c.dispatcher.renew(renewCtx) })
	<-ctx.Done()
	c.accepts.Store(false)
	failpoint.Reach(failpoint.StopBegun)
	stopLoops()
	loops.Wait()
	failpoint.Reach(failpoint.LoopsEnded)
	err := c.drain()
	stopRenewing()
	renewing.Wait()
	return err
}

func (c *Compensator) startRunning(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed() {
		return ErrClosed
	}
	if c.running {
		return ErrRunning
	}
	c.running = true
	c.dispatcher.open(ctx)
	c.accepts.Store(true)
	return nil
}

func (c *Compensator) stopRunning() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.accepts.Store(false)
	c.running = false
}

// drain ends what Run has begun.
func (c *Compensator) drain() error {
	began := time.Now()
	await(time.NewTimer(c.cfg.StopTimeout/3), c.resolveLane, c.verifyLane, c.claimLane)
	stuck := c.dispatcher.drain(c.cfg.StopTimeout - time.Since(began))
	failpoint.Reach(failpoint.HandlersEnded)
	patience := time.NewTimer(max(c.cfg.StopTimeout/3, stopPatience))
	if !await(patience, c.settleLane, c.slowLane) {
		return errors.Join(stuck, errors.New("compensator: outcomes of finished handlers could not be stored; their entries will run again when their leases end"))
	}
	failpoint.Reach(failpoint.OutcomesDrained)
	await(patience, c.ackLane, c.announceLane, c.moveLane)
	return stuck
}

// stopPatience is how long a stop waits for outcomes to be stored, at least.
const stopPatience = time.Second

// lane is a batcher that can be waited for.
type lane interface {
	Done() <-chan struct{}
	Quiet() bool
}

// await waits until none of the lanes, which may feed each other, holds anything. It returns false when the
// timer ends first.
func await(timer *time.Timer, lanes ...lane) bool {
	for {
		for _, l := range lanes {
			select {
			case <-l.Done():
			case <-timer.C:
				return false
			}
		}
		if !slices.ContainsFunc(lanes, func(l lane) bool { return !l.Quiet() }) {
			return true
		}
	}
}

// Close waits briefly for what is on its way and releases the connections the library opened. Call it after
// Run has returned. Config.DB and Config.Redis stay open.
func (c *Compensator) Close() error {
	if c.isClosed.Swap(true) {
		return nil
	}
	lanes := []lane{c.resolveLane, c.verifyLane, c.claimLane, c.settleLane, c.slowLane, c.ackLane, c.announceLane, c.moveLane, c.debtLane, c.checkLane}
	await(time.NewTimer(closeTimeout), lanes...)
	c.endWork(ErrClosed)
	for _, l := range lanes {
		<-l.Done() // only statements are left to wait for, and the ended context has cancelled them
	}
	return errors.Join(c.queue.Close(), c.store.Close())
}

const closeTimeout = 5 * time.Second
