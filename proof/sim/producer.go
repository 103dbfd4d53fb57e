package sim

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/compensator-go/compensator"
)

type order struct {
	at       time.Duration
	whom     int
	way      way
	entries  []compensator.NewEntry
	fails    bool
	undone   bool // whether the business code records the entries after a savepoint, and rolls back to this savepoint
	thinking time.Duration
	stubborn bool // ignores the error for a key that another type owns
	retried  bool
	lost     fault
}

type courier struct{}

type orderName struct{}

func (courier) Inject(ctx context.Context) map[string]string {
	if name, ok := ctx.Value(orderName{}).(string); ok {
		return map[string]string{"order": name}
	}
	return nil
}

func (courier) Extract(ctx context.Context, headers map[string]string) context.Context {
	if name := headers["order"]; name != "" {
		ctx = context.WithValue(ctx, orderName{}, name)
	}
	return ctx
}

type way int

const (
	inTx      way = iota // InTx, which inserts entries with a lease if a slot is free
	enqueued             // a plain transaction, then Receipt.Committed
	unwatched            // a plain transaction without Receipt.Committed, so the reconciler finds the entries
	ways                 // number of the ways above, which record entries for a handler
	once                 // a consumer: one transaction records the message with Type.Once and does the work
)

func (w *world) drawOrders() (orders []order) {
	total := 4 + w.rng.IntN(9)
	for made := 0; made < total; {
		o := order{at: time.Duration(w.rng.Int64N(int64(w.plan.chaos * 7 / 10))), whom: w.rng.IntN(8), way: way(w.rng.IntN(int(ways)))}
		count := 1
		if w.rng.IntN(5) == 0 {
			count = 2 + w.rng.IntN(4)
		}
		for range count {
			made++
			o.entries = append(o.entries, w.drawEntry(made))
		}
		o.fails = w.rng.IntN(10) == 0
		o.undone = w.rng.IntN(10) == 0
		if w.rng.IntN(6) == 0 {
			o.thinking = time.Duration(w.rng.Int64N(int64(2 * w.plan.config.Lease)))
		}
		orders = append(orders, o)
		if w.rng.IntN(6) == 0 {
			again := o
			again.at += time.Duration(w.rng.Int64N(int64(3 * time.Second)))
			again.whom = w.rng.IntN(8)
			again.fails, again.undone = false, false
			orders = append(orders, again)
		}
	}
	return orders
}

func (w *world) drawEntry(number int) compensator.NewEntry {
	e := compensator.NewEntry{BusinessType: handledTypes[w.rng.IntN(len(handledTypes))]}
	if w.rng.IntN(20) == 0 {
		e.BusinessType = strayType
	}
	e.IdempotencyKey = compensator.IdempotencyKey("e" + strconv.Itoa(number))
	e.Content = strconv.AppendQuote(nil, string(e.IdempotencyKey))
	switch w.rng.IntN(20) {
	case 0, 1, 2, 3, 4:
		e.Delay = time.Duration(w.rng.Int64N(int64(5 * time.Second)))
	case 5, 6:
		e.Delay = time.Duration(w.rng.Int64N(int64(40 * time.Second)))
	case 7:
		e.Delay = time.Duration(w.rng.Int64N(int64(4 * time.Minute)))
	}
	if w.rng.IntN(4) == 0 {
		e.MaxAttempts = 1 + w.rng.IntN(3)
	}
	return e
}

func (w *world) produce(o order) {
	time.Sleep(o.at)
	n := w.alive(o.whom)
	if n == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	ctx = context.WithValue(ctx, orderName{}, string(o.entries[0].IdempotencyKey+" at ")+o.at.String())
	var err error
	switch o.way {
	case inTx:
		err = n.c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
			_, err := n.business(ctx, tx, o)
			return err
		})
	case once:
		err = n.runConsumer(ctx, o)
	default:
		err = n.plainTransaction(ctx, o)
	}
	if n.dead.Load() {
		err = errDead
	}
	w.oracle.noteOrderResult(o, err)
	if err != nil && errors.Is(err, compensator.ErrCommitUnknown) {
		n.resolve(ctx, o)
	}
}

var errBusiness = errors.New("sim: the business decided against it")

func (n *instance) business(ctx context.Context, tx compensator.Tx, o order) (*compensator.Receipt, error) {
	inner := gatedOf(tx)
	if o.undone {
		if err := inner.Savepoint("s"); err != nil {
			return nil, err
		}
	}
	receipt, err := n.record(ctx, tx, o.entries...)
	var other *compensator.OtherTypeError
	if o.stubborn && o.way == inTx && errors.As(err, &other) {
		return nil, nil // The business code goes on, and the commit must refuse the transaction.
	}
	if err != nil {
		return nil, err
	}
	if o.undone {
		if err := inner.RollbackTo("s"); err != nil {
			return nil, err
		}
	}
	if err := n.think(o); err != nil {
		return nil, err
	}
	return receipt, nil
}

func (n *instance) think(o order) error {
	if o.thinking > 0 {
		select {
		case <-time.After(o.thinking):
		case <-n.died:
		}
	}
	if o.fails {
		return errBusiness
	}
	return nil
}

func (n *instance) record(ctx context.Context, tx compensator.Tx, entries ...compensator.NewEntry) (*compensator.Receipt, error) {
	for _, e := range entries {
		n.w.oracle.noteRecordings(n, wish{NewEntry: e, carried: carriedBy(ctx)})
	}
	return n.c.Record(ctx, tx, entries...)
}

func carriedBy(ctx context.Context) string {
	name, _ := ctx.Value(orderName{}).(string)
	return name
}

func (n *instance) plainTransaction(ctx context.Context, o order) error {
	tx, err := n.store.begin(ctx)
	if err != nil {
		return err
	}
	receipt, err := n.business(ctx, tx, o)
	if err != nil {
		_ = tx.Rollback()
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	if o.way == enqueued {
		receipt.Committed()
	}
	return nil
}

func (n *instance) resolve(ctx context.Context, o order) {
	if !o.undone {
		_, _ = n.ask(ctx, o.entries[0].IdempotencyKey)
	}
}

// If ref is an idempotency key, ask checks the answer.
func (n *instance) ask(ctx context.Context, ref compensator.Ref) (*compensator.Entry, error) {
	key, named := ref.(compensator.IdempotencyKey)
	before := n.w.oracle.historyOfKey(key)
	e, err := n.c.Resolve(ctx, ref)
	if named && (err == nil || errors.Is(err, compensator.ErrNotFound)) {
		n.w.oracle.checkResolved(key, before, err == nil)
	}
	return e, err
}
