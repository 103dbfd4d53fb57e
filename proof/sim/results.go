package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

const resultStream = 3840

// All callers of Wait use one instance, so that one statement reads several of their entries.
func (w *world) drawResults() {
	rng := rand.New(rand.NewPCG(w.seed, resultStream))
	if rng.IntN(4) > 0 {
		return
	}
	w.apart.returning = make(map[string]bool)
	for _, kind := range []string{plainType, txType, undoType, undoTxType} {
		w.apart.returning[kind] = rng.IntN(3) > 0
	}
	whom := rng.IntN(8)
	for range 3 + rng.IntN(5) {
		o := w.plan.orders[rng.IntN(len(w.plan.orders))]
		w.apart.waits = append(w.apart.waits, wait{
			at: o.at + time.Duration(rng.Int64N(int64(2*time.Second))), whom: whom,
			patience: time.Second + time.Duration(rng.Int64N(int64(15*time.Second))), entry: o.entries[rng.IntN(len(o.entries))],
		})
	}
}

type wait struct {
	at       time.Duration
	whom     int
	patience time.Duration
	entry    compensator.NewEntry
}

// Text names the attempt, so that no two results are equal.
type answer struct {
	Text string
	a    *attempt
	b    behaviour
}

func answerOf(id compensator.EntryID, version uint64) string {
	return fmt.Sprintf("%s v%d", id, version)
}

type resultType = compensator.ResultType[content, *answer]

func (n *instance) handle(c *compensator.Compensator, kind string, cfg *compensator.HandlerConfig[content]) (*compensator.Type[content], error) {
	run := func(ctx context.Context, e *compensator.Entry, _ content) (*answer, error) {
		n.w.oracle.checkHandled(kind, e)
		return &answer{Text: answerOf(e.ID, e.Version)}, n.attempt(ctx, e)
	}
	if !n.w.apart.returning[kind] {
		return compensator.Handle(context.Background(), c, kind, func(ctx context.Context, e *compensator.Entry, v content) error {
			_, err := run(ctx, e, v)
			return err
		}, cfg)
	}
	return n.returning(compensator.HandleResult(context.Background(), c, kind, run, cfg))
}

func (n *instance) handleTx(c *compensator.Compensator, kind string, cfg *compensator.HandlerConfig[content]) (*compensator.Type[content], error) {
	if !n.w.apart.returning[kind] {
		return compensator.HandleTx(context.Background(), c, kind, func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ content) error {
			n.w.oracle.checkHandled(kind, e)
			return n.attemptTx(ctx, tx, e)
		}, cfg)
	}
	calls := *cfg
	calls.Middleware = []compensator.Middleware{n.endCall}
	return n.returning(compensator.HandleCall(context.Background(), c, kind, func(ctx context.Context, e *compensator.Entry, _ content) (*answer, error) {
		n.w.oracle.checkHandled(kind, e)
		return n.firstPart(ctx, e)
	}, n.secondPart, &calls))
}

func (n *instance) returning(t *resultType, err error) (*compensator.Type[content], error) {
	if err != nil {
		return nil, err
	}
	if n.results == nil {
		n.results = make(map[string]*resultType)
	}
	n.results[t.Name()] = t
	return t.Type, nil
}

// An error of the database comes in secondPart, because firstPart has no transaction.
func (n *instance) firstPart(ctx context.Context, e *compensator.Entry) (*answer, error) {
	n.w.oracle.checkCall(n, e)
	n.w.oracle.checkFollows(n, e)
	a, err := n.begin(ctx, e)
	if err != nil {
		return nil, err
	}
	r := &answer{Text: answerOf(e.ID, e.Version), a: a, b: n.w.behaviour(e, a.start)}
	if !r.worksLate() {
		err = n.work(ctx, e, r.b)
	}
	serverFault := r.b.manner == serverFaulted || r.b.manner == serverDowned
	if err != nil || r.b.manner != fine && !serverFault && a.start%2 == 0 {
		return nil, n.conclude(a, n.decide(a, r.b, err))
	}
	n.w.oracle.noteCallReturned(a)
	return r, nil
}

func (r *answer) worksLate() bool { return r.a.start%3 == 2 }

func (n *instance) secondPart(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ content, r *answer) error {
	n.w.oracle.checkContinuesAfterCall(r.a, e)
	var err error
	if r.worksLate() {
		err = n.work(ctx, e, r.b)
	}
	if err == nil {
		err = n.writeTx(ctx, tx, e, r.b)
	}
	return n.conclude(r.a, n.decide(r.a, r.b, err))
}

func (o *oracle) noteCallReturned(a *attempt) {
	o.mu.Lock()
	defer o.mu.Unlock()
	a.manner, a.acted = called, true
	o.sights[sawCalls]++
}

// endCall is a middleware for HandleCall. The engine calls firstPart, and then secondPart in a transaction. If this
// transaction cannot begin, secondPart does not run, and endCall notes the end of the attempt.
func (n *instance) endCall(next compensator.HandlerFunc) compensator.HandlerFunc {
	return func(ctx context.Context, e *compensator.Entry) error {
		defer n.w.oracle.readCounts(func(o *oracle) {
			if l := o.histories[e.ID]; l != nil {
				if a := l.attemptOf(e.Version, n); a != nil && a.manner == called {
					a.ended, a.endedAt = true, time.Now()
				}
			}
		})
		return next(ctx, e)
	}
}

func (o *oracle) checkContinuesAfterCall(a *attempt, e *compensator.Entry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if a.manner != called || a.id != e.ID || a.version != e.Version {
		o.failLocked("G40: the second part of entry %s, version %d, runs after the call of attempt %+v", e.ID, e.Version, a)
	}
	a.manner = unfinished
}

func (o *oracle) checkResultLocked(l *rowHistory, t *transition, before processlog.Row) {
	var want []byte
	after := t.row
	switch {
	case after.State != compensator.Succeeded || !o.w.apart.returning[l.kind]:
	case t.op.kind == opSettle:
		want, _ = json.Marshal(answer{Text: answerOf(l.id, t.outcome.Version)})
		o.sights[sawResults]++
	case t.op.kind == opChange && t.op.change.Action == processlog.ActionErase:
	case before.Epoch == after.Epoch:
		want = before.Result
	}
	if !bytes.Equal(after.Result, want) {
		o.failLocked("G38: entry %s is %s in epoch %d with the result %q, want %q", l.id, after.State, after.Epoch, after.Result, want)
	}
}

func (w *world) wait(c wait) {
	time.Sleep(c.at)
	n := w.alive(c.whom)
	if n == nil || n.results[c.entry.BusinessType] == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.patience)
	defer cancel()
	key := c.entry.IdempotencyKey
	before := w.oracle.historyOfKey(key)
	e, r, err := n.results[c.entry.BusinessType].Wait(ctx, key)
	if !n.dead.Load() {
		w.oracle.checkWaitResult(key, before, c.entry.BusinessType, e, r, err)
	}
}

func (o *oracle) checkWaitResult(key compensator.IdempotencyKey, before *rowHistory, kind string, e *compensator.Entry, r *answer, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var ended *compensator.StateError
	switch {
	case e != nil && e.IdempotencyKey != key:
		o.failLocked("G39: a wait for %q returned entry %s of key %q", key, e.ID, e.IdempotencyKey)
	case errors.Is(err, compensator.ErrNotFound):
		if before != nil && o.keys[string(key)] == before {
			o.failLocked("G39: a wait did not find entry %s, which existed all the time", before.id)
		}
	case errors.As(err, &ended):
		o.checkPassedLocked(e, func(row processlog.Row) bool { return row.State == ended.State && row.State != compensator.Succeeded })
	case errors.Is(err, compensator.ErrNoResult):
		o.checkPassedLocked(e, func(row processlog.Row) bool { return row.State == compensator.Succeeded && row.Result == nil })
	case err == nil:
		o.sights[sawWaits]++
		want, _ := json.Marshal(r)
		o.checkPassedLocked(e, func(row processlog.Row) bool { return row.BusinessType == kind && bytes.Equal(row.Result, want) })
	}
}

func (o *oracle) checkPassedLocked(e *compensator.Entry, fits func(row processlog.Row) bool) {
	l := o.histories[e.ID]
	if l == nil || !slices.ContainsFunc(l.steps, func(t transition) bool {
		return t.row.Version == e.Version && t.row.State == e.State && e.State.Terminal() && fits(t.row)
	}) {
		o.failLocked("G39: a wait returned %+v, which the database never stored so", e)
	}
}

// checkResults asserts that each wait ends, and that it returns the result if there is one.
func (w *world) checkResults() {
	n := w.worker()
	if n == nil || w.oracle.failed.Load() || len(w.oracle.losses) > 0 {
		return
	}
	for _, row := range w.store.Rows() {
		t := n.results[row.BusinessType]
		if t == nil || strings.HasPrefix(string(row.IdempotencyKey), barrierPrefix) || !row.State.Terminal() {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		e, r, err := t.Wait(ctx, row.ID)
		cancel()
		if e == nil {
			w.oracle.fail("G39: a wait for entry %s, which is %s, returned %v", row.ID, row.State, err)
			return
		}
		w.oracle.checkWaitResult(row.IdempotencyKey, w.oracle.historyOfKey(row.IdempotencyKey), row.BusinessType, e, r, err)
	}
}
