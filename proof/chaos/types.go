package chaos

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/proof/chaos/history"
)

// job is an entry's content: what its handlers are to do.
type job struct {
	Key       string `json:"key"`
	Fails     int    `json:"fails,omitempty"`      // recorded failures before its handler can succeed
	How       string `json:"how,omitempty"`        // of failing: one of ways
	UndoFails int    `json:"undo_fails,omitempty"` // the same of its compensation
	Kills     int    `json:"kills,omitempty"`      // it kills its process that often in a row
	SleepMS   int    `json:"sleep_ms,omitempty"`   // it takes that long
	Evades    bool   `json:"evades,omitempty"`     // now and then it asks for another time, which is no failure
	Text      string `json:"text,omitempty"`       // just bytes
}

// The ways to fail. The empty one is a plain error.
const (
	failPermanently = "permanently"
	failLater       = "later"  // RetryAfter
	failLoudly      = "loudly" // panic
	failSlowly      = "slowly" // its timeout passes
)

var ways = []string{"", "", "", "", failLater, failLater, failLoudly, failLoudly, failSlowly}

// The business types. Nobody handles orphans.
const (
	typePay    = "pay"    // transactional, and so is its undo
	typeShip   = "ship"   // acts outside; nothing undoes it
	typeMail   = "mail"   // in batches
	typeClose  = "close"  // fails for good, often; is undone outside
	typeSlow   = "slow"   // takes longer than its lease
	typeFlaky  = "flaky"  // fails a few times first, sometimes too often
	typeOrphan = "orphan" // has no handler
)

// types are the business types as the checker knows them.
var types = []history.Type{
	{Name: typePay, Handler: history.HandlerTx, Compensation: history.CompensationTx, MaxProcessCount: 4, MaxCompensateCount: 4, TimeoutMS: 1000},
	{Name: typeShip, Handler: history.HandlerPlain, MaxProcessCount: 3, TimeoutMS: 1000},
	{Name: typeMail, Handler: history.HandlerBatch, MaxProcessCount: 3, TimeoutMS: 1000},
	{Name: typeClose, Handler: history.HandlerPlain, Compensation: history.CompensationPlain, MaxProcessCount: 2, MaxCompensateCount: 3, TimeoutMS: 1000, CompensateCrashed: true},
	{Name: typeSlow, Handler: history.HandlerPlain, MaxProcessCount: 3, TimeoutMS: 8000},
	{Name: typeFlaky, Handler: history.HandlerPlain, MaxProcessCount: 5, TimeoutMS: 1000},
	{Name: typeOrphan, Handler: history.HandlerNone},
}

func init() {
	for i := range types {
		if types[i].Handler != history.HandlerNone {
			types[i].LeaseMS = lease.Milliseconds()
		}
	}
}

// register gives c its handlers.
func (p *appProcess) register(c *compensator.Compensator) error {
	var errs []error
	for _, t := range types {
		var err error
		switch cfg := p.typeConfig(t); t.Handler {
		case history.HandlerTx:
			_, err = compensator.HandleTx(c, t.Name, p.pay, cfg)
		case history.HandlerBatch:
			cfg.Concurrency, cfg.BatchSize, cfg.BatchWait = 2, 20, 50*time.Millisecond
			_, err = compensator.HandleBatch(c, t.Name, p.mail, cfg)
		case history.HandlerPlain:
			_, err = compensator.Handle(c, t.Name, p.ship, cfg)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (p *appProcess) typeConfig(t history.Type) compensator.TypeConfig {
	cfg := compensator.TypeConfig{
		MaxProcessCount: t.MaxProcessCount, MaxCompensateCount: t.MaxCompensateCount, CompensateCrashed: t.CompensateCrashed,
		Timeout: time.Duration(t.TimeoutMS) * time.Millisecond, Concurrency: 30,
		Retry: compensator.Exponential(200*time.Millisecond, longestBackoff),
	}
	switch t.Compensation {
	case history.CompensationTx:
		cfg.CompensateTx = compensator.TypedTx(p.pay)
	case history.CompensationPlain:
		cfg.Compensate = compensator.Typed(p.ship)
	}
	return cfg
}

// pay is a handler, and a compensation, whose effect is a row that commits with the outcome.
func (p *appProcess) pay(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, j job) error {
	return p.attempt(ctx, e, func(uint64) verdict {
		_, err := tx.ExecContext(ctx, "INSERT INTO effects (entry_key, entry_id, epoch, compensation, version) VALUES (?,?,?,?,?)",
			e.IdempotencyKey, e.ID.Row(), e.Epoch, e.State == compensator.Compensating, e.Version)
		if err != nil {
			return verdict{outcome: history.OutcomeUnavailable, err: compensator.Unavailable(err)}
		}
		return p.do(ctx, e, j)
	})
}

// ship is a handler, and a compensation, whose effect is outside the database.
func (p *appProcess) ship(ctx context.Context, e *compensator.Entry, j job) error {
	return p.attempt(ctx, e, func(run uint64) verdict {
		effect := history.Effect{At: history.Now(), Run: run, ID: e.ID.Row(), Epoch: e.Epoch, Compensation: e.State == compensator.Compensating, Phase: history.EffectBefore}
		p.write(&effect)
		v := p.do(ctx, e, j)
		if v.err == nil {
			effect.At, effect.Phase = history.Now(), history.EffectAfter
			p.write(&effect)
		}
		return v
	})
}

// mail handles a batch.
func (p *appProcess) mail(ctx context.Context, items []compensator.Item[job]) []error {
	runs := make([]uint64, len(items))
	for i, item := range items {
		runs[i] = p.begin(item.Entry, len(items))
	}
	verdicts := make([]error, len(items))
	if spoilt(items) {
		for i, item := range items {
			p.end(ctx, item.Entry, runs[i], verdict{outcome: history.OutcomeNoVerdict})
		}
		return verdicts[1:] // the wrong number: no verdict
	}
	for i, item := range items {
		v := p.guarded(ctx, item.Entry, item.Value)
		p.end(ctx, item.Entry, runs[i], v)
		verdicts[i] = v.err
	}
	return verdicts
}

// spoilt tells of a batch that one of its entries keeps from coming to a verdict.
func spoilt(items []compensator.Item[job]) bool {
	return len(items) > 1 && slices.ContainsFunc(items, func(item compensator.Item[job]) bool {
		return item.Entry.ProcessCount < item.Value.Fails && (item.Value.How == failLoudly || item.Value.How == failSlowly)
	})
}

// guarded makes a failure of a panic: the others of the batch are not to suffer.
func (p *appProcess) guarded(ctx context.Context, e *compensator.Entry, j job) (v verdict) {
	defer func() {
		if recover() != nil {
			v = verdict{outcome: history.OutcomeFail, err: errAsPlanned}
		}
	}()
	return p.do(ctx, e, j)
}

// verdict is what a handler returns, and the history's name for it.
type verdict struct {
	outcome string
	err     error
	after   time.Duration // asked for with RetryAfter or Snooze
}

var succeeded = verdict{outcome: history.OutcomeOK}

// leastWait is what the library raises shorter waits to.
const leastWait = 100 * time.Millisecond

var errAsPlanned = errors.New("failed as planned")

// do does what the plan says about this attempt.
func (p *appProcess) do(ctx context.Context, e *compensator.Entry, j job) verdict {
	if e.DeliveryCount <= j.Kills {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	wait(ctx, time.Duration(j.SleepMS)*time.Millisecond)
	switch {
	case ctx.Err() != nil:
		return interrupted(ctx)
	case j.Evades && rand.IntN(6) == 0:
		after := leastWait + rand.N(500*time.Millisecond)
		return verdict{history.OutcomeSnooze, compensator.Snooze(after), after}
	case j.Evades && rand.IntN(6) == 0:
		return verdict{outcome: history.OutcomeUnavailable, err: compensator.Unavailable(errAsPlanned)}
	case e.State == compensator.Compensating && e.CompensateCount < j.UndoFails:
		return verdict{outcome: history.OutcomeFail, err: errAsPlanned}
	case e.State != compensator.Compensating && e.ProcessCount < j.Fails:
		return j.fail(ctx)
	}
	return succeeded
}

func (j job) fail(ctx context.Context) verdict {
	switch j.How {
	case failPermanently:
		return verdict{outcome: history.OutcomePermanent, err: compensator.Permanent(errAsPlanned)}
	case failLater:
		after := leastWait + rand.N(time.Second)
		return verdict{history.OutcomeRetryAfter, compensator.RetryAfter(after, errAsPlanned), after}
	case failLoudly:
		panic("failed as planned")
	case failSlowly:
		<-ctx.Done()
		return interrupted(ctx)
	}
	return verdict{outcome: history.OutcomeFail, err: errAsPlanned}
}

// interrupted is the verdict of a handler that was told to stop.
func interrupted(ctx context.Context) verdict {
	if errors.Is(ctx.Err(), context.Canceled) {
		return verdict{outcome: history.OutcomeCanceled, err: ctx.Err()}
	}
	return verdict{outcome: history.OutcomeFail, err: ctx.Err()}
}
