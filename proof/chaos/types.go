package chaos

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/proof/chaos/history"
)

type job struct {
	Key       string `json:"key"`
	Fails     int    `json:"fails,omitempty"` // recorded failures before the handler succeeds
	How       string `json:"how,omitempty"`
	UndoFails int    `json:"undo_fails,omitempty"`
	Kills     int    `json:"kills,omitempty"`    // how many runs in a row kill the process
	SleepMS   int    `json:"sleep_ms,omitempty"` // duration of the handler
	Evades    bool   `json:"evades,omitempty"`   // whether the handler sometimes asks for a later time, which is no failure
	Text      string `json:"text,omitempty"`
}

const (
	failPermanently = "permanently"
	failLater       = "later"
	failLoudly      = "loudly"
	failSlowly      = "slowly"
)

var ways = []string{"", "", "", "", failLater, failLater, failLoudly, failLoudly, failSlowly}

const (
	typePay    = "pay"    // transactional, with a transactional compensation
	typeShip   = "ship"   // acts outside the database, has no compensation
	typeMail   = "mail"   // handled in batches
	typeClose  = "close"  // its compensation acts outside the database
	typeSlow   = "slow"   // takes longer than its lease
	typeFlaky  = "flaky"  // fails a few times first, sometimes too often
	typeBook   = "book"   // calls outside the database, and then writes in the transaction of its success; has bookLimit
	typeRush   = "rush"   // acts outside the database; has rushLimit, of which a claim also takes starts for later claims
	typeOrphan = "orphan" // has no handler
)

// types holds the configuration of each business type, which the Run line passes to the checker.
var types = []history.Type{
	{Name: typePay, Handler: history.HandlerTx, Compensation: history.CompensationTx, MaxAttempts: 4, MaxCompensateAttempts: 4, TimeoutMS: 1000},
	{Name: typeShip, Handler: history.HandlerPlain, MaxAttempts: 3, TimeoutMS: 1000, Returns: true},
	{Name: typeBook, Handler: history.HandlerTx, MaxAttempts: 4, TimeoutMS: 1000, Returns: true},
	{Name: typeMail, Handler: history.HandlerBatch, MaxAttempts: 3, TimeoutMS: 1000},
	{Name: typeClose, Handler: history.HandlerPlain, Compensation: history.CompensationPlain, MaxAttempts: 2, MaxCompensateAttempts: 3, TimeoutMS: 1000, CompensateCrashed: true},
	{Name: typeSlow, Handler: history.HandlerPlain, MaxAttempts: 3, TimeoutMS: 8000},
	{Name: typeFlaky, Handler: history.HandlerPlain, MaxAttempts: 5, TimeoutMS: 1000},
	{Name: typeRush, Handler: history.HandlerPlain, MaxAttempts: 3, TimeoutMS: 1000},
	{Name: typeOrphan, Handler: history.HandlerNone},
}

func init() {
	for i := range types {
		if types[i].Handler != history.HandlerNone {
			types[i].LeaseMS = lease.Milliseconds()
		}
	}
}

func (p *appProcess) register(c *compensator.Compensator) error {
	var errs []error
	for _, t := range types {
		var err error
		switch cfg := p.typeConfig(t); {
		case t.Returns && t.Handler == history.HandlerTx:
			cfg.Middleware = []compensator.Middleware{p.bookings}
			p.results[t.Name], err = compensator.HandleCall(context.Background(), c, t.Name, p.bookCall, p.bookThen, &cfg)
		case t.Returns:
			p.results[t.Name], err = compensator.HandleResult(context.Background(), c, t.Name, p.shipWithResult, &cfg)
		case t.Handler == history.HandlerTx:
			_, err = compensator.HandleTx(context.Background(), c, t.Name, p.pay, &cfg)
		case t.Handler == history.HandlerBatch:
			_, err = compensator.HandleBatch(context.Background(), c, t.Name, p.mail, &compensator.BatchConfig[job]{
				MaxAttempts: cfg.MaxAttempts, Timeout: cfg.Timeout, Retry: cfg.Retry,
				Concurrency: 2, BatchSize: 20, BatchWait: 50 * time.Millisecond,
			})
		case t.Handler == history.HandlerPlain:
			_, err = compensator.Handle(context.Background(), c, t.Name, p.ship, &cfg)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Under a limit without Concurrent, a claim may take starts in advance: it reserves more starts of the limit than it
// leases entries, and later claims use them. rushLimit makes claims take many starts in advance. bookLimit sets
// Concurrent, so claims take no starts in advance.
var (
	bookLimit = compensator.Limit{Rate: compensator.PerSecond(20), Burst: 3, Concurrent: 3, Key: func(e *compensator.Entry) string { return partnerOf(string(e.IdempotencyKey), bookPartners) }}
	rushLimit = compensator.Limit{Rate: compensator.PerSecond(40), Burst: 20, Key: func(e *compensator.Entry) string { return partnerOf(string(e.IdempotencyKey), rushPartners) }}
)

// These are the numbers of partners. rushPartners is small, so that each process starts several entries of a partner in half
// a second.
const (
	bookPartners = 8
	rushPartners = 3
)

func partnerOf(key string, partners int) string {
	n, _ := strconv.Atoi(key[strings.LastIndexByte(key, '-')+1:])
	return strconv.Itoa(n % partners)
}

func (p *appProcess) typeConfig(t history.Type) compensator.HandlerConfig[job] {
	cfg := compensator.HandlerConfig[job]{
		MaxAttempts: t.MaxAttempts, MaxCompensateAttempts: t.MaxCompensateAttempts, CompensateCrashed: t.CompensateCrashed,
		Timeout: time.Duration(t.TimeoutMS) * time.Millisecond, Concurrency: 30,
		Retry: compensator.Exponential(200*time.Millisecond, longestBackoff),
	}
	switch t.Name {
	case typeBook:
		cfg.Limit = bookLimit
	case typeRush:
		cfg.Limit = rushLimit
	}
	switch t.Compensation {
	case history.CompensationTx:
		cfg.CompensateTx = p.pay
	case history.CompensationPlain:
		cfg.Compensate = p.ship
	}
	return cfg
}

func (p *appProcess) pay(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, j job) error {
	return p.attempt(ctx, e, func(uint64) verdict {
		if err := insertEffect(ctx, tx, e); err != nil {
			return verdict{outcome: history.OutcomeUnavailable, err: compensator.Unavailable(err)}
		}
		return p.perform(ctx, e, j)
	})
}

func insertEffect(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO effects (entry_key, entry_id, epoch, compensation, version) VALUES (?,?,?,?,?)",
		e.IdempotencyKey, e.ID.Row(), e.Epoch, e.State == compensator.Compensating, e.Version)
	return err
}

func (p *appProcess) ship(ctx context.Context, e *compensator.Entry, j job) error {
	return p.attempt(ctx, e, func(run uint64) verdict {
		effect := history.Effect{At: history.Now(), Run: run, ID: e.ID.Row(), Epoch: e.Epoch, Compensation: e.State == compensator.Compensating, Phase: history.EffectBefore}
		p.write(&effect)
		v := p.perform(ctx, e, j)
		if v.err == nil {
			effect.At, effect.Phase = history.Now(), history.EffectAfter
			p.write(&effect)
		}
		return v
	})
}

func (p *appProcess) mail(ctx context.Context, items []compensator.Item[job]) []error {
	runs := make([]uint64, len(items))
	for i, item := range items {
		runs[i] = p.begin(item.Entry, len(items))
	}
	verdicts := make([]error, len(items))
	if preventsVerdicts(items) {
		for i, item := range items {
			p.end(ctx, item.Entry, runs[i], verdict{outcome: history.OutcomeNoVerdict})
		}
		return verdicts[1:] // A wrong number of results is no verdict.
	}
	for i, item := range items {
		v := p.guarded(ctx, item.Entry, item.Value)
		p.end(ctx, item.Entry, runs[i], v)
		verdicts[i] = v.err
	}
	return verdicts
}

func preventsVerdicts(items []compensator.Item[job]) bool {
	return len(items) > 1 && slices.ContainsFunc(items, func(item compensator.Item[job]) bool {
		return item.Entry.ProcessCount < item.Value.Fails && (item.Value.How == failLoudly || item.Value.How == failSlowly)
	})
}

func (p *appProcess) guarded(ctx context.Context, e *compensator.Entry, j job) (v verdict) {
	defer func() {
		if recover() != nil {
			v = verdict{outcome: history.OutcomeFail, err: errAsPlanned}
		}
	}()
	return p.perform(ctx, e, j)
}

type verdict struct {
	outcome string
	err     error
	after   time.Duration // delay asked for with RetryAfter or Snooze
}

var succeeded = verdict{outcome: history.OutcomeOK}

// leastWait is the shortest delay of a retry. If a handler asks for a shorter delay, the library uses leastWait.
const leastWait = 100 * time.Millisecond

var errAsPlanned = errors.New("failed as planned")

func (p *appProcess) perform(ctx context.Context, e *compensator.Entry, j job) verdict {
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

func interrupted(ctx context.Context) verdict {
	if errors.Is(ctx.Err(), context.Canceled) {
		return verdict{outcome: history.OutcomeCanceled, err: ctx.Err()}
	}
	return verdict{outcome: history.OutcomeFail, err: ctx.Err()}
}
