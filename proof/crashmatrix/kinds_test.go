//go:build failpoints

package crashmatrix

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/compensator-go/compensator"
)

const (
	pay    = "pay"
	ship   = "ship"
	slow   = "slow"
	fail   = "fail"
	refund = "refund" // its transactional compensation fails once
	recall = "recall" // fails permanently; its compensation fails once
	hand   = "hand"   // fails permanently; succeeds after a person requeues it
	mail   = "mail"
	later  = "later" // succeeds; has a delay, and may be rescheduled or cancelled
	wire   = "wire"
	book   = "book" // succeeds, one at a time per business id, or is cancelled; only in the surroundings in-line
	tick   = "tick"
	sum    = "sum"
)

const (
	failures         = 2 // an entry of the kind "fail" fails this often and then succeeds
	refundFailures   = 2
	undoFailures     = 1
	slowTakes        = 500 * time.Millisecond
	recallTime       = 300 * time.Millisecond             // timeout of the attempts of the kind "recall"
	hangs            = recallTime + time.Second + 2*lease // duration of some attempts of "recall", past their leases
	batchSize        = 6
	retryAfter       = 100 * time.Millisecond
	ok, wrong, never = "ok", "failed", "permanent"
)

type content struct {
	Breaks bool
}

type kinds struct {
	db *sql.DB
	of map[string]*compensator.Type[content]

	ticks *compensator.Type[time.Time]
	hang  bool
}

func register(c *compensator.Compensator, db *sql.DB, limit compensator.Limit) (*kinds, error) {
	k := &kinds{db: db, of: make(map[string]*compensator.Type[content])}
	var problems []error
	add := func(name string) func(*compensator.Type[content], error) {
		return func(t *compensator.Type[content], err error) {
			k.of[name] = t
			problems = append(problems, err)
		}
	}
	retry := compensator.HandlerConfig[content]{Retry: compensator.Fixed(retryAfter)}
	add(pay)(compensator.HandleTx(context.Background(), c, pay, k.pay, &retry))
	shipped, err := compensator.HandleResult(context.Background(), c, ship, func(ctx context.Context, e *compensator.Entry, v content) (string, error) {
		return e.CallKey(), k.plain(ctx, e, v)
	}, &retry)
	if err != nil {
		return nil, err
	}
	k.of[ship] = shipped.Type
	wired, err := compensator.HandleCall(context.Background(), c, wire, func(ctx context.Context, e *compensator.Entry, v content) (string, error) {
		return e.CallKey(), k.plain(ctx, e, v)
	}, func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ content, _ string) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO effects (entry, epoch, undoing) VALUES (?,?,?)", e.ID.Row(), e.Epoch, false)
		return err
	}, &retry)
	if err != nil {
		return nil, err
	}
	k.of[wire] = wired.Type
	for _, name := range []string{slow, fail, hand, later} {
		cfg := retry
		cfg.Limit = limit
		add(name)(compensator.Handle(context.Background(), c, name, k.plain, &cfg))
	}
	add(refund)(compensator.Handle(context.Background(), c, refund, k.plain, &compensator.HandlerConfig[content]{
		MaxAttempts: refundFailures, Retry: retry.Retry, CompensateTx: func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ content) error {
			return k.undo(ctx, tx, e)
		},
	}))
	add(recall)(compensator.Handle(context.Background(), c, recall, k.plain, &compensator.HandlerConfig[content]{Timeout: recallTime, Retry: retry.Retry, Compensate: func(ctx context.Context, e *compensator.Entry, _ content) error { return k.undoPlain(ctx, e) }}))
	add(mail)(compensator.HandleBatch(context.Background(), c, mail, k.mail, &compensator.BatchConfig[content]{BatchSize: batchSize, BatchWait: 20 * time.Millisecond, Concurrency: 1, Retry: retry.Retry}))
	add(sum)(compensator.HandleTx(context.Background(), c, sum, k.sum, &compensator.HandlerConfig[content]{Retry: retry.Retry, AfterBatch: func(e *compensator.Entry) string { return e.BusinessID }}))
	k.ticks, err = compensator.Handle(context.Background(), c, tick, func(ctx context.Context, e *compensator.Entry, _ time.Time) error { return k.plain(ctx, e, content{}) }, &compensator.HandlerConfig[time.Time]{Retry: retry.Retry})
	return k, errors.Join(append(problems, err)...)
}

const tickEvery = 100 * time.Millisecond

func (k *kinds) tick(ctx context.Context) error {
	return compensator.Periodic(ctx, k.ticks, compensator.Every(tickEvery), &compensator.PeriodicConfig{CatchUp: 500})
}

func (k *kinds) takeOrdering(c *compensator.Compensator) (err error) {
	k.of[book], err = compensator.Handle(context.Background(), c, book, k.plain, &compensator.HandlerConfig[content]{
		Retry: compensator.Fixed(retryAfter), TypeConfig: compensator.TypeConfig{Serial: func(e *compensator.Entry) string { return e.BusinessID },
			PassDead: true},
	})
	return err
}

func verdict(e *compensator.Entry) string {
	switch {
	case e.State == compensator.Compensating && e.CompensateCount < undoFailures:
		return wrong
	case e.State == compensator.Compensating:
		return ok
	case e.BusinessType == refund, e.BusinessType == fail && e.ProcessCount < failures:
		return wrong
	case e.BusinessType == hand && e.Epoch == 0, e.BusinessType == recall:
		return never
	}
	return ok
}

func answer(verdict string) error {
	switch verdict {
	case wrong:
		return errors.New("fails on purpose")
	case never:
		return compensator.Permanent(errors.New("fails permanently on purpose"))
	}
	return nil
}

// noteRun writes its rows outside the handlers' transactions. So a rollback does not remove these rows.
func (k *kinds) noteRun(ctx context.Context, entries ...*compensator.Entry) error {
	var args []any
	for _, e := range entries {
		args = append(args, e.ID.Row(), e.Version, e.Epoch, e.State == compensator.Compensating, verdict(e))
	}
	values := strings.Repeat(",(?,?,?,?,?)", len(entries))[1:]
	_, err := k.db.ExecContext(ctx, "INSERT INTO runs (entry, version, epoch, undoing, verdict) VALUES "+values, args...)
	return err
}

func (k *kinds) plain(ctx context.Context, e *compensator.Entry, _ content) error {
	if err := k.noteRun(ctx, e); err != nil {
		return compensator.Unavailable(err)
	}
	if e.BusinessType == slow {
		select {
		case <-time.After(slowTakes):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return answer(verdict(e))
}

func (k *kinds) pay(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ content) error {
	return k.effect(ctx, tx, e)
}

// The handler sum runs after a batch. It copies each entry of the batch that has not ended into the table named
// "early". The test requires that the table stays empty.
func (k *kinds) sum(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ content) error {
	_, err := k.db.ExecContext(ctx, "INSERT INTO early SELECT id FROM common_process_log WHERE batch_id=? AND state IN (0,-1,-3)", e.BusinessID)
	if err != nil {
		return compensator.Unavailable(err)
	}
	return k.effect(ctx, tx, e)
}

func (k *kinds) undo(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry) error {
	return k.effect(ctx, tx, e)
}

// undoPlain ignores the end of its context. So its success may come after another process has claimed the entry.
func (k *kinds) undoPlain(ctx context.Context, e *compensator.Entry) error {
	if err := k.noteRun(context.WithoutCancel(ctx), e); err != nil {
		return compensator.Unavailable(err)
	}
	if k.hang && verdict(e) == ok && e.ID.Row()%3 == 0 {
		<-time.After(hangs)
	}
	return answer(verdict(e))
}

func (k *kinds) effect(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry) error {
	err := k.noteRun(ctx, e)
	if err == nil {
		_, err = tx.ExecContext(ctx, "INSERT INTO effects (entry, epoch, undoing) VALUES (?,?,?)", e.ID.Row(), e.Epoch, e.State == compensator.Compensating)
	}
	if err != nil {
		return compensator.Unavailable(err)
	}
	return answer(verdict(e))
}

func (k *kinds) mail(ctx context.Context, items []compensator.Item[content]) []error {
	entries := make([]*compensator.Entry, len(items))
	for i, item := range items {
		entries[i] = item.Entry
	}
	if err := k.noteRun(ctx, entries...); err != nil {
		return slices.Repeat([]error{compensator.Unavailable(err)}, len(items))
	}
	for _, item := range items {
		if item.Value.Breaks && len(items) > 1 {
			panic("this batch breaks on purpose")
		}
	}
	return nil
}
