package sim

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// The goroutines of a dead instance continue, because Go cannot end them. All their later steps fail.
type instance struct {
	w      *world
	number int
	runs   bool

	c        *compensator.Compensator
	messages *compensator.Type[json.RawMessage]
	results  map[string]*resultType
	store    *gatedStore
	link     link
	opening  bool // whether the instance is inside New, where steps do not wait for the scheduler
	stop     context.CancelFunc
	ended    chan struct{} // closed when Run has returned and the Compensator is closed
	runErr   error

	ranWell     atomic.Bool
	mustEndWell atomic.Bool // whether Run must return nil, because no fault prevents an orderly stop

	process processlog.InstanceID // guarded by oracle.mu
	round   backlogRound          // guarded by oracle.mu

	compared       time.Time      // time of the latest answer that says which rows the database still has; guarded by oracle.mu, like the fields below it
	lossSeen       time.Time      // time of the answer that showed the instance a loss; a value of the field compared
	newest         processlog.Row // latest row that this instance knows it has claimed
	pendingRelease processlog.Row // the field newest, if the database has lost that row unnoticed; otherwise zero
	claims         map[compensator.EntryID]claimed
	ran            processlog.Row // latest row for which the instance called a handler
	lost           processlog.Row // the field ran, if the database has lost that row unnoticed; otherwise zero

	dead        atomic.Bool
	died        chan struct{}
	once        sync.Once
	retired     bool         // used only by the world's goroutine
	stoppedAt   atomic.Int64 // unix ns (0: Run continues)
	pausedUntil atomic.Int64 // unix ns

	mu  sync.Mutex
	txs []*gatedTx

	batches atomic.Int32
}

// Only one goroutine may call launch at a time: first the caller of run, and then the goroutine of the simulation's main
// loop.
func (w *world) launch(runs bool) *instance {
	w.launched++
	n := &instance{w: w, number: w.launched, runs: runs, died: make(chan struct{}), ended: make(chan struct{}), opening: true,
		claims: make(map[compensator.EntryID]claimed)}
	n.store = &gatedStore{from: n, store: w.store}
	cfg := w.configOf(n)
	cfg.Store, cfg.Observer, cfg.Logger = n.store, w.oracle.observer(n), w.logger
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if w.plan.sharedQueue {
		cfg.Queue = &gatedQueue{from: n, queue: w.queue.Client()}
	}
	c, err := compensator.New(context.Background(), cfg)
	if err == nil {
		err = n.register(c)
	}
	if err != nil {
		w.oracle.fail("New failed for instance %d: %v", n.number, err)
		panic(err)
	}
	n.c, n.opening = c, false
	if runs && !n.handlesAll() {
		w.oracle.readCounts(func(o *oracle) { o.sights[sawFormer]++ })
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.stop = cancel
	w.mu.Lock()
	w.instances = append(w.instances, n)
	w.mu.Unlock()
	w.wg.Go(func() { n.runAndClose(ctx) })
	return n
}

func (n *instance) runAndClose(ctx context.Context) {
	defer close(n.ended)
	if n.runs {
		n.runErr = n.c.Run(ctx)
		n.afterRun()
	} else {
		<-ctx.Done()
	}
	if err := n.c.Close(); err != nil && !n.dead.Load() {
		n.w.oracle.fail("G15: Close of instance %d failed: %v", n.number, err)
	}
	if n.ranWell.Load() && !n.dead.Load() {
		n.w.oracle.checkClosed(n)
	}
}

func (n *instance) afterRun() {
	switch {
	case n.dead.Load():
	case n.runErr == nil:
		n.ranWell.Store(true)
		n.w.oracle.checkStoppedRun(n)
	case n.mustEndWell.Load():
		n.w.oracle.fail("G15: Run of instance %d returned %v, although no fault prevented an orderly stop", n.number, n.runErr)
	}
}

func (w *world) alive(which int) *instance {
	living := w.living()
	if len(living) == 0 {
		return nil
	}
	return living[which%len(living)]
}

func (w *world) living() []*instance {
	w.mu.Lock()
	defer w.mu.Unlock()
	var living []*instance
	for _, n := range w.instances {
		if !n.dead.Load() && !n.retired {
			living = append(living, n)
		}
	}
	return living
}

func (w *world) retire(n *instance) {
	w.mu.Lock()
	n.retired = true
	w.mu.Unlock()
	n.stoppedAt.Store(time.Now().UnixNano())
	n.stop()
}

// The main loop of the simulation later calls bury.
func (n *instance) die() {
	n.once.Do(func() {
		n.dead.Store(true)
		close(n.died)
		n.w.mu.Lock()
		n.w.deaths = append(n.w.deaths, n)
		n.w.mu.Unlock()
		n.w.gate.poke()
	})
}

func (w *world) bury() {
	w.mu.Lock()
	deaths := w.deaths
	w.deaths = nil
	w.mu.Unlock()
	slices.SortFunc(deaths, func(a, b *instance) int { return a.number - b.number })
	for _, n := range deaths {
		kept, refused := w.gate.pending[:0], 0
		for _, r := range w.gate.pending {
			if r.from == n {
				r.refuse(refused)
				refused++
			} else {
				kept = append(kept, r)
			}
		}
		w.gate.pending = kept
		n.stop()
		noticed := time.Duration(w.rng.Int64N(int64(3 * time.Second)))
		if w.healed.Load() {
			noticed = 0
		}
		w.later(noticed, n.hangUp)
		switch wait := time.Duration(w.rng.Int64N(int64(4 * time.Second))); {
		case w.oracle.failed.Load():
		case !w.healed.Load() && n.runs && w.rng.IntN(4) > 0:
			w.later(wait, func() {
				if !w.healed.Load() {
					w.launch(true)
				}
			})
		case w.healed.Load():
			w.ensureWorker()
		}
	}
}

func (n *instance) hangUp() {
	n.mu.Lock()
	txs := n.txs
	n.txs = nil
	n.mu.Unlock()
	for _, tx := range txs {
		_ = tx.Tx.Rollback()
	}
}

func (n *instance) own(tx *gatedTx) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.txs = append(n.txs, tx)
}

func (n *instance) disown(tx *gatedTx) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, other := range n.txs {
		if other == tx {
			n.txs = append(n.txs[:i], n.txs[i+1:]...)
			return
		}
	}
}

func (n *instance) paused() time.Time { return time.Unix(0, n.pausedUntil.Load()) }

// The seed decides whether the function do is called, and whether the caller gets the answer.
func (n *instance) step(ctx context.Context, c class, op, args string, do func() error) error {
	return n.stepUnder(ctx, processlog.Token{}, c, op, args, do)
}

func (n *instance) stepUnder(ctx context.Context, token processlog.Token, c class, op, args string, do func() error) error {
	_, err := n.judged(ctx, &request{from: n, class: c, op: op, args: args, claim: n.w.oracle.claimOf(token)}, func(verdict) error { return do() })
	return err
}

// judged waits for its turn, and then calls the function do, unless the seed decides against it. The verdict holds what
// the seed decided about this step.
func (n *instance) judged(ctx context.Context, r *request, do func(verdict) error) (verdict, error) {
	if err := ctx.Err(); err != nil {
		return verdict{}, err
	}
	v := n.w.gate.pass(r)
	// Count a hanging step as stuck from its beginning, because the step may wait for a locked row before it hangs.
	if v.fault == hangBefore || v.fault == hangAfter {
		n.w.stuck.Add(1)
		defer n.w.stuck.Add(-1)
	}
	switch {
	case v.dead, v.fault == crashBefore:
		return v, errDead
	case v.fault == errBefore:
		n.reply(v)
		return v, errBroken
	case v.fault == hangBefore:
		return v, n.hang(ctx, v)
	}
	if r.class != classQueue {
		n.connect()
	}
	err := do(v)
	if v.fault == twice {
		err = do(v)
	}
	switch v.fault {
	case hangAfter:
		return v, n.hang(ctx, v)
	case crashAfter:
		n.die()
	case errAfter:
		err = errBroken
	}
	n.reply(v)
	if n.dead.Load() {
		return v, errDead
	}
	return v, err
}

// A broken connection ends the transaction.
func (n *instance) stepIn(ctx context.Context, in compensator.Tx, op string, args args, do func() error) error {
	tx := gatedOf(in)
	if tx == nil || tx.broken.Load() {
		return errBroken
	}
	key := string(args)
	if tx.first == "" {
		tx.first = op + " " + key
	}
	v, err := n.judged(ctx, &request{from: n, class: classInTx, op: op, args: key}, func(v verdict) error {
		if v.fault == txAborted {
			return tx.abort()
		}
		return do()
	})
	if errors.Is(err, driver.ErrBadConn) {
		err = errBroken // The memory store's error says more than a real driver's error for a broken connection.
	}
	if v.fault == errAfter || v.fault == hangBefore || v.fault == hangAfter {
		tx.broken.Store(true)
		_ = tx.Tx.Rollback()
	}
	return err
}

// A paused instance gets the answer after its pause.
func (n *instance) reply(v verdict) {
	time.Sleep(v.reply)
	for until := n.paused(); time.Now().Before(until); until = n.paused() {
		select {
		case <-time.After(time.Until(until) + v.reply%time.Millisecond):
		case <-n.died:
			return
		}
	}
}

// hang waits until ctx ends, and then as long as an answer takes. Without the second wait, hang could return at the
// instant at which other timers of the engine fire. The runtime, and not the seed, would then choose their order.
func (n *instance) hang(ctx context.Context, v verdict) error {
	select {
	case <-ctx.Done():
		n.reply(v)
	case <-n.died:
	}
	if n.dead.Load() {
		return errDead
	}
	return ctx.Err()
}
