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

// instance is one process: a Compensator and what runs in it. When it dies its goroutines go on, as there is no
// way to end them, but from then on they reach nothing.
type instance struct {
	w      *world
	number int // from 1
	runs   bool

	c        *compensator.Compensator
	messages *compensator.Type[json.RawMessage]
	store    *gatedStore
	link     link
	opening  bool // inside New, in front of the turnstile
	stop     context.CancelFunc
	ended    chan struct{} // closed when Run has returned and the Compensator is closed
	runErr   error         // of Run; read after ended

	ranWell     atomic.Bool // Run has returned nil
	mustEndWell atomic.Bool // nothing stands in the way of an orderly stop

	compared       time.Time      // when the database last answered what it keeps; guarded by oracle.mu, as the next ones
	lossSeen       time.Time      // of that, by what it stopped because the database had gone back
	newest         processlog.Row // what it was last told it had claimed
	pendingRelease processlog.Row // what the database has lost of that, until it notices
	claims         map[compensator.EntryID]claimed
	ran            processlog.Row // what it last called a handler for
	lost           processlog.Row // what the database has lost of that, until it notices

	dead        atomic.Bool
	died        chan struct{}
	once        sync.Once
	retired     bool         // stopped in order; the world's own goroutine only
	stoppedAt   atomic.Int64 // when Run's context ended, unix ns; 0: it goes on
	pausedUntil atomic.Int64 // unix ns

	mu  sync.Mutex
	txs []*gatedTx // open

	batches atomic.Int32 // of several entries, whose handlers run
}

// launch starts an instance, in the world's own goroutine or before it.
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
		w.oracle.fail("start of instance %d: %v", n.number, err)
		panic(err)
	}
	n.c, n.opening = c, false
	if runs && !n.handlesAll() {
		w.oracle.note(func(o *oracle) { o.sights[sawFormer]++ })
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.stop = cancel
	w.mu.Lock()
	w.instances = append(w.instances, n)
	w.mu.Unlock()
	w.wg.Go(func() { n.life(ctx) })
	return n
}

// life is Run and Close.
func (n *instance) life(ctx context.Context) {
	defer close(n.ended)
	if n.runs {
		n.runErr = n.c.Run(ctx)
		n.afterRun()
	} else {
		<-ctx.Done()
	}
	if err := n.c.Close(); err != nil && !n.dead.Load() {
		n.w.oracle.fail("G15: Close of instance %d: %v", n.number, err)
	}
	if n.ranWell.Load() && !n.dead.Load() {
		n.w.oracle.closed(n)
	}
}

// afterRun asserts what Run's end promises.
func (n *instance) afterRun() {
	switch {
	case n.dead.Load():
	case n.runErr == nil:
		n.ranWell.Store(true)
		n.w.oracle.ranToItsEnd(n)
	case n.mustEndWell.Load():
		n.w.oracle.fail("G15: Run of instance %d, with nothing in its way, returned %v", n.number, n.runErr)
	}
}

// alive is one of the living instances, or nil.
func (w *world) alive(which int) *instance {
	living := w.living()
	if len(living) == 0 {
		return nil
	}
	return living[which%len(living)]
}

// living lists the instances that are neither dead nor stopped, by number.
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

// retire stops an instance in order.
func (w *world) retire(n *instance) {
	w.mu.Lock()
	n.retired = true
	w.mu.Unlock()
	n.stoppedAt.Store(time.Now().UnixNano())
	n.stop()
}

// die makes the instance reach nothing any more. The world buries it at its next turn.
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

// bury does what the world does after a death: the server sees its connections go, and somebody starts another
// instance, or not.
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
		case w.healed.Load(): // it was on its way to die when all was healed
			w.someoneWorks()
		}
	}
}

// hangUp ends the transactions of a dead instance.
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

// step is one statement or script: it waits for its turn, is done or not, and answers or not, as the seed says.
func (n *instance) step(ctx context.Context, c class, op, args string, do func() error) error {
	return n.stepUnder(ctx, processlog.Token{}, c, op, args, do)
}

// stepUnder is step for what is asked under a claim's token.
func (n *instance) stepUnder(ctx context.Context, token processlog.Token, c class, op, args string, do func() error) error {
	_, err := n.judged(ctx, &request{from: n, class: c, op: op, args: args, claim: n.w.oracle.claimOf(token)}, func(verdict) error { return do() })
	return err
}

// judged is step for those who want to know the verdict.
func (n *instance) judged(ctx context.Context, r *request, do func(verdict) error) (verdict, error) {
	if err := ctx.Err(); err != nil {
		return verdict{}, err
	}
	v := n.w.gate.pass(r)
	if v.fault == hangBefore || v.fault == hangAfter { // counted before it is done: a row that is locked may hold that up
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

// stepIn is a step inside a transaction. When its connection breaks, the transaction is gone.
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
		err = errBroken // the double says more than a broken connection could
	}
	if v.fault == errAfter || v.fault == hangBefore || v.fault == hangAfter {
		tx.broken.Store(true)
		_ = tx.Tx.Rollback()
	}
	return err
}

// reply is the answer on its way. A paused instance does not see it before it goes on.
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

// hang is no answer at all. That the context has ended is noticed as late as an answer would be: at the very instant
// other timers of the engine may end, and the order of those is the runtime's own choice.
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
