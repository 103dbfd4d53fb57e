package chaos

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/proof/chaos/history"
)

type person struct {
	*appProcess
	rand *rand.Rand
}

func newPerson(p *appProcess, random *rand.Rand) *person {
	return &person{appProcess: p, rand: rand.New(rand.NewPCG(random.Uint64(), 5))}
}

func (p *person) run(ctx context.Context) func() {
	return func() {
		for ctx.Err() == nil {
			wait(ctx, time.Duration(p.rand.ExpFloat64()/p.cfg.People*float64(time.Second)))
			if entry, ok := p.recent.any(p.rand); ok {
				p.act(entry)
			}
		}
	}
}

var actions = []string{
	history.ActionComplete, history.ActionCancel, history.ActionReschedule, history.ActionRequeue, history.ActionRequeue, history.ActionSettleManually,
}

// act uses the library's own transaction, or a transaction that may roll back.
func (p *person) act(entry recorded) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	a := &history.Action{Call: p.calls.Add(1), Action: actions[p.rand.IntN(len(actions))], ID: entry.id.Row(), Key: entry.key}
	var ref compensator.Ref = entry.id
	if entry.id.IsZero() || p.rand.IntN(2) == 0 {
		ref = compensator.IdempotencyKey(entry.key)
	}
	switch a.Action {
	case history.ActionReschedule, history.ActionRequeue:
		a.DelayMS = p.rand.Int64N(2000)
		a.Compensate = a.Action == history.ActionRequeue && p.compensates(entry) && p.rand.IntN(4) == 0
	}
	if a.Action == history.ActionRequeue || a.Action == history.ActionSettleManually || p.rand.IntN(2) == 0 {
		p.logAction(a, func(found *history.ActionEnd) error { return p.outright(ctx, a, ref, found) })
		return
	}
	p.inTx(ctx, a, ref)
}

func (p *person) compensates(entry recorded) bool {
	return entry.content.BusinessType == typePay || entry.content.BusinessType == typeClose
}

func (p *person) logAction(a *history.Action, act func(found *history.ActionEnd) error) error {
	a.At = history.Now()
	p.write(a)
	end := &history.ActionEnd{Call: a.Call}
	err := act(end)
	end.At = history.Now()
	end.Err, end.Detail = classOf(err)
	p.write(end)
	return err
}

func (p *person) outright(ctx context.Context, a *history.Action, ref compensator.Ref, found *history.ActionEnd) error {
	by := admin.AuditInfo{Actor: p.cfg.Name, Reason: "chaos"}
	delay := time.Duration(a.DelayMS) * time.Millisecond
	switch a.Action {
	case history.ActionComplete:
		result, err := p.c.Complete(ctx, ref)
		found.Dead = result.WasDead
		return err
	case history.ActionCancel:
		result, err := p.c.Cancel(ctx, ref)
		found.Already, found.Dead = result.WasAlready, result.WasDead
		return err
	case history.ActionReschedule:
		return p.c.Reschedule(ctx, ref, delay)
	case history.ActionRequeue:
		return admin.Of(p.c).Requeue(ctx, ref, admin.RequeueOptions{AuditInfo: by, Delay: delay, Compensate: a.Compensate})
	}
	return admin.Of(p.c).SettleManually(ctx, ref, by)
}

func (p *person) inTx(ctx context.Context, a *history.Action, ref compensator.Ref) {
	tx, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return
	}
	defer tx.Rollback()
	a.Tx = p.txs.Add(1)
	err = p.logAction(a, func(found *history.ActionEnd) error {
		switch a.Action {
		case history.ActionComplete:
			result, err := p.c.CompleteTx(ctx, tx, ref)
			found.Dead = result.WasDead
			return err
		case history.ActionCancel:
			result, err := p.c.CancelTx(ctx, tx, ref)
			found.Already, found.Dead = result.WasAlready, result.WasDead
			return err
		}
		return p.c.RescheduleTx(ctx, tx, ref, time.Duration(a.DelayMS)*time.Millisecond)
	})
	if err != nil || p.rand.IntN(4) == 0 {
		p.write(&history.Rollback{At: history.Now(), Tx: a.Tx})
		return
	}
	if p.rand.IntN(4) == 0 {
		wait(ctx, p.randomly(500*time.Millisecond))
	}
	p.write(&history.Commit{At: history.Now(), Tx: a.Tx})
	err = tx.Commit()
	end := &history.Committed{At: history.Now(), Tx: a.Tx, Outcome: outcomeOfCommit(err)}
	end.Err, end.Detail = classOf(err)
	p.write(end)
}

func (p *person) randomly(limit time.Duration) time.Duration {
	return time.Duration(p.rand.Int64N(int64(limit)))
}
