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

// The kinds of entries, by what becomes of them. Each is a business type.
const (
	pay    = "pay"    // transactional, succeeds
	ship   = "ship"   // succeeds
	slow   = "slow"   // succeeds, after its lease had to be renewed
	fail   = "fail"   // fails twice, then succeeds
	refund = "refund" // fails as often as it may; its compensation, transactional, fails once, then succeeds
	recall = "recall" // fails for good; its compensation, plain, fails once, then succeeds, and somebody may want it once more
	hand   = "hand"   // fails for good; succeeds once somebody has requeued it
	mail   = "mail"   // succeeds in batches, some of which break
	later  = "later"  // succeeds; comes due later, and may be moved or called off until then
	book   = "book"   // succeeds, one of a business id at a time; may be called off; where lives are in line
	tick   = "tick"   // succeeds; made for each slot, where the surroundings are periodic
	sum    = "sum"    // transactional, succeeds; comes after a batch of mail
)

const (
	failures         = 2 // of a fail, before it succeeds
	refundFailures   = 2 // all a refund may have
	undoFailures     = 1 // of a refund's compensation, and of a recall's each time
	slowTakes        = 500 * time.Millisecond
	recallTime       = 300 * time.Millisecond             // what a recall's attempts have
	hangs            = recallTime + time.Second + 2*lease // longer than the lease of what has not returned when its time is over
	batchSize        = 6
	retryAfter       = 100 * time.Millisecond
	ok, wrong, never = "ok", "failed", "permanent" // verdicts
)

// content is what an entry carries.
type content struct {
	Breaks bool // a batch it is in
}

// kinds registers every kind with c. What handlers do is written down through db, a plain pool.
type kinds struct {
	db *sql.DB
	of map[string]*compensator.Type[content]

	ticks *compensator.Type[time.Time]
	hang  bool // some recalls are undone when their leases have been lost
}

func register(c *compensator.Compensator, db *sql.DB) (*kinds, error) {
	k := &kinds{db: db, of: make(map[string]*compensator.Type[content])}
	var problems []error
	add := func(name string) func(*compensator.Type[content], error) {
		return func(t *compensator.Type[content], err error) {
			k.of[name] = t
			problems = append(problems, err)
		}
	}
	retry := compensator.TypeConfig{Retry: compensator.Fixed(retryAfter)}
	add(pay)(compensator.HandleTx(c, pay, k.pay, retry))
	for _, name := range []string{ship, slow, fail, hand, later} {
		add(name)(compensator.Handle(c, name, k.plain, retry))
	}
	add(refund)(compensator.Handle(c, refund, k.plain, compensator.TypeConfig{
		MaxProcessCount: refundFailures, Retry: retry.Retry, CompensateTx: k.undo,
	}))
	add(recall)(compensator.Handle(c, recall, k.plain, compensator.TypeConfig{Timeout: recallTime, Retry: retry.Retry, Compensate: k.undoPlain}))
	add(mail)(compensator.HandleBatch(c, mail, k.mail, compensator.TypeConfig{BatchSize: batchSize, BatchWait: 20 * time.Millisecond, Concurrency: 1, Retry: retry.Retry}))
	add(sum)(compensator.HandleTx(c, sum, k.sum, compensator.TypeConfig{Retry: retry.Retry, AfterBatch: func(e *compensator.Entry) string { return e.BusinessID }}))
	var err error
	k.ticks, err = compensator.Handle(c, tick, func(ctx context.Context, e *compensator.Entry, _ time.Time) error { return k.plain(ctx, e, content{}) }, retry)
	return k, errors.Join(append(problems, err)...)
}

// tickEvery is how far slots are apart. None may be missing, whatever kept them back.
const tickEvery = 100 * time.Millisecond

func (k *kinds) tick(ctx context.Context) error {
	return compensator.Periodic(ctx, k.ticks, compensator.Every(tickEvery), compensator.PeriodicConfig{CatchUp: 500})
}

// takeOrdering registers what takes turns.
func (k *kinds) takeOrdering(c *compensator.Compensator) (err error) {
	k.of[book], err = compensator.Handle(c, book, k.plain, compensator.TypeConfig{
		Retry: compensator.Fixed(retryAfter), Serial: func(e *compensator.Entry) string { return e.BusinessID },
		PassDead: true, // those that lives have killed too often
	})
	return err
}

// verdict is what a handler will say of an entry.
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

// answer is the verdict as an error.
func answer(verdict string) error {
	switch verdict {
	case wrong:
		return errors.New("not yet")
	case never:
		return compensator.Permanent(errors.New("not like this"))
	}
	return nil
}

// ran writes down that handlers have begun. It is not part of any transaction of theirs.
func (k *kinds) ran(ctx context.Context, entries ...*compensator.Entry) error {
	var args []any
	for _, e := range entries {
		args = append(args, e.ID.Row(), e.Version, e.Epoch, e.State == compensator.Compensating, verdict(e))
	}
	values := strings.Repeat(",(?,?,?,?,?)", len(entries))[1:]
	_, err := k.db.ExecContext(ctx, "INSERT INTO runs (entry, version, epoch, undoing, verdict) VALUES "+values, args...)
	return err
}

func (k *kinds) plain(ctx context.Context, e *compensator.Entry, _ content) error {
	if err := k.ran(ctx, e); err != nil {
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

// sum writes down, too, that it has come too early.
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

// undoPlain is deaf to its context, and may come back with a success when the entry is somebody else's.
func (k *kinds) undoPlain(ctx context.Context, e *compensator.Entry) error {
	if err := k.ran(context.WithoutCancel(ctx), e); err != nil {
		return compensator.Unavailable(err)
	}
	if k.hang && verdict(e) == ok && e.ID.Row()%3 == 0 {
		<-time.After(hangs)
	}
	return answer(verdict(e))
}

func (k *kinds) effect(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry) error {
	err := k.ran(ctx, e)
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
	if err := k.ran(ctx, entries...); err != nil {
		return slices.Repeat([]error{compensator.Unavailable(err)}, len(items))
	}
	for _, item := range items {
		if item.Value.Breaks && len(items) > 1 {
			panic("a batch that breaks")
		}
	}
	return nil
}
