package sim

import (
	"context"
	"encoding/json"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"runtime"
	"strings"
	"time"

	"github.com/compensator-go/compensator"
)

// Every instance has a handler for each type except strayType.
const (
	plainType  = "plain"
	txType     = "tx"
	batchType  = "batch"
	undoType   = "undo"
	undoTxType = "undotx"
	strayType  = "stray" // has no handler
)

var handledTypes = []string{plainType, txType, batchType, undoType, undoTxType}

func transactional(businessType string) bool {
	return businessType == txType || businessType == undoTxType
}

type content = json.RawMessage

func (p *plan) single() compensator.HandlerConfig[content] {
	t := &p.types
	return compensator.HandlerConfig[content]{MaxAttempts: t.MaxAttempts, MaxCompensateAttempts: t.MaxCompensateAttempts, Timeout: t.Timeout,
		Concurrency: t.Concurrency, Retry: t.Retry, Breaker: t.Breaker, MaxWait: t.MaxWait}
}

func (n *instance) register(c *compensator.Compensator) error {
	cfg := n.w.plan.single()
	cfg.TypeConfig = n.ordered(plainType)
	messages, err1 := n.handle(c, plainType, &cfg)
	n.messages = messages
	tx := following(cfg)
	tx.TypeConfig = n.ordered(txType)
	_, err2 := n.handleTx(c, txType, &tx)
	undo := cfg
	undo.TypeConfig, undo.CompensateCrashed = n.ordered(undoType), n.w.plan.compensateCrashed
	undo.Compensate = func(ctx context.Context, e *compensator.Entry, _ content) error { return n.attempt(ctx, e) }
	_, err3 := n.handle(c, undoType, &undo)
	if !n.handlesAll() {
		return errors.Join(err1, err2, err3, n.periodic(c))
	}
	batch := n.w.batches()
	batch.TypeConfig = n.ordered(batchType)
	_, err4 := compensator.HandleBatch(context.Background(), c, batchType, n.attemptBatch, &batch)
	undoTx := cfg
	undoTx.TypeConfig, undoTx.CompensateCrashed = n.ordered(undoTxType), n.w.plan.compensateCrashed
	undoTx.CompensateTx = func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ content) error {
		return n.attemptTx(ctx, tx, e)
	}
	_, err5 := n.handleTx(c, undoTxType, &undoTx)
	return errors.Join(err1, err2, err3, err4, err5, n.periodic(c))
}

type manner int

const (
	unfinished manner = iota // has not ended, or has ended without a result for the entry
	fine
	failed
	permanently
	laterOn // the handler asked for a retry after a time (RetryAfter)
	snoozed
	unavailable
	panicked
	goexited
	interrupted
	serverFaulted
	serverDowned
	called // the call of a handler of HandleCall has returned nil, and its transaction has not begun
)

type behaviour struct {
	manner manner
	took   time.Duration
	deaf   bool
	chain  bool
	after  time.Duration
	kills  bool
	jams   bool
	deed   int // number of an action on the entry during the attempt, from 1 (0: none)
}

func (w *world) behaviour(e *compensator.Entry, start int) behaviour {
	if w.healed.Load() {
		return behaviour{manner: fine}
	}
	if e.IdempotencyKey == w.plan.killer {
		return behaviour{kills: true}
	}
	if e.IdempotencyKey == w.apart.jammed {
		return behaviour{manner: fine, jams: true}
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(e.IdempotencyKey))
	rng := rand.New(rand.NewPCG(w.seed^h.Sum64(), uint64(e.Epoch)<<32|uint64(start)))
	if b, down := w.applyOutage(e, rng); down {
		return b
	}
	b := behaviour{manner: fine, after: time.Duration(rng.Int64N(int64(3 * time.Second)))}
	if rng.Float64() < w.plan.failing {
		b.manner = failed + manner(rng.IntN(int(goexited-failed)+1))
		if rng.IntN(2) == 0 {
			b.manner = failed
		}
	}
	if b.manner != fine && w.apart.faulty && transactional(e.BusinessType) && start%8 < 7 {
		b.manner = serverFaulted
		if w.apart.wholeServer && !w.healed.Load() {
			b.manner = serverDowned
		}
	}
	timeout := w.plan.types.Timeout
	if w.apart.requeues && e.State == compensator.Retrying && rng.IntN(2) == 0 {
		b.deed = 1 + requeueDeed
	}
	if e.BusinessType == w.plan.hog {
		return behaviour{manner: fine, took: timeout * 2, deaf: rng.IntN(2) == 0, deed: b.deed, after: b.after}
	}
	switch rng.IntN(8) {
	case 0, 1, 2:
	case 3, 4, 5:
		b.took = time.Duration(rng.Int64N(int64(300 * time.Millisecond)))
	case 6:
		b.took = time.Duration(rng.Int64N(int64(timeout)))
	case 7:
		if w.plan.calm {
			b.took = timeout * 9 / 10
		} else if rng.Float64() < w.plan.failing {
			b.took = timeout + time.Duration(rng.Int64N(int64(timeout)))
			b.deaf = rng.IntN(2) == 0
		}
	}
	b.chain = rng.IntN(8) == 0
	if rng.Float64() < w.plan.meddling {
		b.deed = 1 + rng.IntN(6)
		if e.State == compensator.Retrying && rng.IntN(2) == 0 {
			b.deed = 1 + requeueDeed
		}
	}
	if w.apart.sleepy && b.deed == 0 && e.State != compensator.Compensating && rng.IntN(2) == 0 {
		// The method wake makes an entry with so long a delay due at once.
		b.after += time.Duration(31+rng.IntN(400)) * 24 * time.Hour
	}
	return b
}

func (n *instance) attempt(ctx context.Context, e *compensator.Entry) error {
	n.w.oracle.checkCall(n, e)
	a, err := n.begin(ctx, e)
	if err != nil {
		return err
	}
	b := n.w.behaviour(e, a.start)
	return n.conclude(a, n.decide(a, b, n.work(ctx, e, b)))
}

func (n *instance) attemptTx(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry) error {
	n.w.oracle.checkCall(n, e)
	n.w.oracle.checkFollows(n, e)
	a, err := n.begin(ctx, e)
	if err != nil {
		return err
	}
	b := n.w.behaviour(e, a.start)
	ended := n.work(ctx, e, b)
	if ended == nil {
		ended = n.writeTx(ctx, tx, e, b)
	}
	return n.conclude(a, n.decide(a, b, ended))
}

func (n *instance) writeTx(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, b behaviour) error {
	_, err := tx.ExecContext(ctx, effectSQL, effect{e.ID, e.Epoch, e.State == compensator.Compensating})
	if err == nil && b.chain && !strings.Contains(string(e.IdempotencyKey), "/") {
		follow := compensator.NewEntry{BusinessType: plainType, Content: []byte(`"follow"`), Options: compensator.Options{IdempotencyKey: e.IdempotencyKey + "/f"}}
		_, err = n.record(ctx, tx, follow)
	}
	return err
}

func (n *instance) attemptBatch(ctx context.Context, items []compensator.Item[json.RawMessage]) []error {
	n.w.oracle.checkCall(n, items[0].Entry)
	defer n.enter(len(items))()
	if name := ctx.Value(orderName{}); name != nil {
		n.w.oracle.fail("a batch of %d entries runs with the context values of %q", len(items), name)
	}
	attempts := make([]*attempt, len(items))
	for i, item := range items {
		n.w.oracle.checkHandled(batchType, item.Entry)
		a, err := n.begin(item.Context(), item.Entry)
		if err != nil {
			return make([]error, len(items)+1)
		}
		attempts[i] = a
	}
	for _, a := range attempts {
		if a.lost != attempts[0].lost || a.lost > 1 && len(attempts) > 1 {
			n.w.oracle.fail("G16: entry %s with %d lost leases is in one batch with entry %s with %d lost leases", a.id, a.lost, attempts[0].id, attempts[0].lost)
		}
	}
	first := n.w.behaviour(items[0].Entry, attempts[0].start)
	if len(items) > 1 {
		first = n.midway(items[0].Entry, attempts[0].start, first)
	}
	cut := n.work(ctx, items[0].Entry, first)
	ends := make([]attemptEnd, len(items))
	for i, a := range attempts {
		b := first
		if i > 0 {
			b = n.w.behaviour(items[i].Entry, a.start)
		}
		if len(items) > 1 && (b.manner == panicked || b.manner == goexited) {
			n.w.oracle.noteBrokenTx(n)
			for _, other := range attempts {
				other.void()
			}
			if b.manner == panicked {
				panic("sim: batch panics")
			}
			return make([]error, len(items)-1)
		}
		ends[i] = n.decide(a, b, cut)
	}
	verdicts := make([]error, len(items))
	for i, a := range attempts {
		verdicts[i] = n.conclude(a, ends[i])
	}
	return verdicts
}

// If ctx ends first, work returns the error of ctx. A handler that ignores its context (b.deaf) continues to wait.
func (n *instance) work(ctx context.Context, e *compensator.Entry, b behaviour) error {
	if strings.HasPrefix(string(e.IdempotencyKey), barrierPrefix) {
		return n.w.barrier.wait(n.w.shortenDeadline(ctx), e.BusinessType)
	}
	if b.kills {
		n.die()
		return errDead
	}
	if b.jams {
		n.w.oracle.readCounts(func(o *oracle) { o.sights[sawJammed]++ })
		select {
		case <-n.w.problem.Done():
			return nil
		case <-n.died:
			return errDead
		}
	}
	if b.deed > 0 {
		n.meddle(e, b)
	}
	if b.took == 0 {
		return nil
	}
	var ended <-chan struct{}
	if !b.deaf {
		ended = ctx.Done()
	}
	select {
	case <-time.After(b.took):
	case <-ended:
		return ctx.Err()
	case <-n.died:
		return errDead
	}
	return nil
}

func (n *instance) meddle(e *compensator.Entry, b behaviour) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	n.w.meddling.Add(1)
	defer n.w.meddling.Add(-1)
	if other := n.w.alive(int(e.Version)); other != nil {
		other.act(ctx, deed{what: b.deed - 1, entry: int(e.Version), delay: b.after, holds: b.after / 8}, e.ID)
	}
}

func (n *instance) begin(ctx context.Context, e *compensator.Entry) (*attempt, error) {
	key := make(args, 0, 16).id(e.ID).num(e.Version)
	if v := n.w.gate.pass(&request{from: n, class: classOwn, op: "run", args: string(key)}); v.dead {
		return nil, errDead
	}
	return n.w.oracle.noteAttemptStart(ctx, n, e), nil
}

type attemptEnd struct {
	manner manner
	after  time.Duration
	cut    error
	dead   bool
}

func (n *instance) decide(a *attempt, b behaviour, cut error) attemptEnd {
	n.w.oracle.checkAttemptEnd(a)
	key := make(args, 0, 16).id(a.id).num(a.version)
	v := n.w.gate.pass(&request{from: n, class: classOwn, op: "end", args: string(key)})
	how := b.manner
	if cut != nil {
		how = interrupted
	}
	return attemptEnd{how, b.after, cut, v.dead}
}

func (n *instance) conclude(a *attempt, end attemptEnd) error {
	if end.dead {
		return errDead
	}
	n.w.oracle.noteResult(a, end.manner, end.after)
	errHandler := n.errorOf(a, end.manner)
	switch end.manner {
	case interrupted:
		return end.cut
	case fine:
		return nil
	case permanently:
		return compensator.Permanent(errHandler)
	case laterOn:
		return compensator.RetryAfter(end.after, errHandler)
	case snoozed:
		return compensator.Snooze(end.after)
	case unavailable:
		return compensator.Unavailable(errHandler)
	case panicked:
		panic(errHandler)
	case goexited:
		runtime.Goexit()
	case serverFaulted:
		return errServerFault
	case serverDowned:
		return errServerDown
	}
	return errHandler
}

var errHandler = errors.New("sim: the handler failed")

func (n *instance) errorOf(a *attempt, how manner) error {
	if !n.w.apart.losesAnswers || a.start%2 == 0 || a.kind == batchType {
		return errHandler
	}
	switch how {
	case failed, permanently, laterOn, unavailable:
		n.w.oracle.readCounts(func(*oracle) { a.acted = true })
		return lostAnswer{errHandler}
	}
	return errHandler
}
