package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

const messagesStream = 223698

const retriedStream = 363536

func (w *world) drawMessages() {
	rng := rand.New(rand.NewPCG(w.seed, messagesStream))
	if w.plan.calm || rng.IntN(6) > 0 {
		return
	}
	retried := rand.New(rand.NewPCG(w.seed, retriedStream))
	recorded := w.plan.orders
	for i := range 1 + rng.IntN(4) {
		message := compensator.NewEntry{BusinessType: plainType, Options: compensator.Options{IdempotencyKey: compensator.IdempotencyKey(fmt.Sprint("n", i))}}
		from := time.Duration(rng.Int64N(int64(w.plan.chaos * 7 / 10)))
		if o := recorded[rng.IntN(len(recorded))]; rng.IntN(2) == 0 && o.entries[0].BusinessType == plainType {
			message.IdempotencyKey, from = o.entries[0].IdempotencyKey, o.at
		}
		message.Content = strconv.AppendQuote(nil, string(message.IdempotencyKey))
		for range 2 + rng.IntN(3) {
			o := order{at: from + time.Duration(rng.Int64N(int64(3*time.Second))), whom: rng.IntN(8), way: once, entries: []compensator.NewEntry{message}}
			o.fails = rng.IntN(6) == 0
			if o.retried = retried.IntN(2) == 0; o.retried {
				o.lost = [...]fault{none, errBefore, errAfter}[retried.IntN(3)]
			}
			if rng.IntN(3) == 0 {
				o.thinking = time.Duration(rng.Int64N(int64(time.Second)))
			}
			w.plan.orders = append(w.plan.orders, o)
		}
	}
	w.plan.countOrders()
}

func (n *instance) runConsumer(ctx context.Context, o order) error {
	runs := 0
	do := func(ctx context.Context) error {
		if runs++; runs > 1 {
			o.lost = none
		}
		return n.c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error { return n.consume(ctx, tx, o) })
	}
	if !o.retried {
		return do(ctx)
	}
	key := o.entries[0].IdempotencyKey
	err := n.c.WithRetry(ctx, key, do)
	if err == nil && !n.dead.Load() {
		n.w.oracle.checkRetried(key, runs)
	}
	return err
}

func (o *oracle) checkRetried(key compensator.IdempotencyKey, runs int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if runs > 1 {
		o.sights[sawRetried]++
	}
	if len(o.losses) == 0 && !o.hasSucceededLocked(key) {
		o.failLocked("G36: WithRetry reports that the transaction of message %q has committed, but no entry of the message ever succeeded", key)
	}
}

// hasSucceededLocked counts a purged entry as succeeded.
func (o *oracle) hasSucceededLocked(key compensator.IdempotencyKey) bool {
	l := o.keys[string(key)]
	if l == nil {
		return o.fateLocked(string(key)).rows > 0
	}
	return slices.ContainsFunc(l.steps, func(t transition) bool { return t.row.State == compensator.Succeeded })
}

func (n *instance) consume(ctx context.Context, tx compensator.Tx, o order) error {
	message := o.entries[0]
	key := message.IdempotencyKey
	n.w.oracle.noteRecordings(n, wish{NewEntry: message, done: true, carried: carriedBy(ctx)})
	n.w.oracle.noteRequest(processlog.ActionComplete, false, key)
	first, err := n.messages.Once(ctx, tx, key, message.Content)
	if err != nil {
		return err
	}
	if first {
		inner := gatedOf(tx)
		inner.consumed = append(inner.consumed, key)
		inner.lost = o.lost
	} else {
		n.w.oracle.checkDoneBefore(key)
	}
	return n.think(o)
}

type workDone struct {
	id    compensator.EntryID
	epoch uint32
}

// noteConsumed records the messages whose work a committed transaction has done. It asserts G35 (a message is processed
// once): no other transaction has done the message's work since the message's entry was recorded or last requeued.
func (o *oracle) noteConsumed(keys []compensator.IdempotencyKey) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, key := range keys {
		l := o.keys[string(key)]
		if len(o.losses) > 0 {
			return
		}
		if l == nil || l.last().row.State != compensator.Succeeded {
			o.failLocked("G35: the work of message %q is done, but its entry does not show this: %+v", key, l)
			return
		}
		o.sights[sawConsumed]++
		d := workDone{l.id, l.last().row.Epoch}
		if o.done[d]++; o.done[d] > 1 {
			o.failLocked("G35: the work of message %q was done twice, in epoch %d of entry %s", key, d.epoch, d.id)
		}
	}
}

func (o *oracle) checkDoneBefore(key compensator.IdempotencyKey) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sights[sawDoneBefore]++
	if o.fateLocked(string(key)).rows == 0 || !o.hasSucceededLocked(key) {
		o.failLocked("G35: Once reports message %q as processed before, but no entry of the message ever succeeded", key)
	}
}

func (o *oracle) checkDoneAsReportedLocked(l *rowHistory) {
	if l.steps[0].row.State.Terminal() && o.done[workDone{l.id, 0}] != 1 {
		o.failLocked("G35: entry %s is inserted as done, but the work of its message was done %d times", l.id, o.done[workDone{l.id, 0}])
	}
}
