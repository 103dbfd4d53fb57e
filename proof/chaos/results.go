package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/proof/chaos/history"
)

// result names the attempt, so that no two results are equal.
type result struct {
	ID      uint64 `json:"id"`
	Version uint64 `json:"version"`
}

func resultOf(e *compensator.Entry) result { return result{e.ID.Row(), e.Version} }

func (p *appProcess) shipWithResult(ctx context.Context, e *compensator.Entry, j job) (result, error) {
	return resultOf(e), p.ship(ctx, e, j)
}

type booking struct {
	run   uint64 // number of the run; 0: the call has not begun
	ended bool
}

type bookingKey struct{}

// bookings is the middleware of the type "book". The library calls bookCall first, and then bookThen in a transaction.
// If this transaction cannot begin, bookThen does not run. In this case, bookings writes the end of the attempt.
func (p *appProcess) bookings(next compensator.HandlerFunc) compensator.HandlerFunc {
	return func(ctx context.Context, e *compensator.Entry) error {
		b := new(booking)
		err := next(context.WithValue(ctx, bookingKey{}, b), e)
		switch {
		case b.run == 0 || b.ended:
		case ctx.Err() != nil:
			p.end(ctx, e, b.run, interrupted(ctx))
		default:
			p.end(ctx, e, b.run, verdict{outcome: history.OutcomeUnavailable})
		}
		return err
	}
}

func (p *appProcess) bookCall(ctx context.Context, e *compensator.Entry, j job) (result, error) {
	b := ctx.Value(bookingKey{}).(*booking)
	b.run = p.begin(e, 0)
	defer func() {
		if panicked := recover(); panicked != nil {
			p.endBooking(ctx, e, b, verdict{outcome: history.OutcomePanic})
			panic(panicked)
		}
	}()
	if v := p.perform(ctx, e, j); v.err != nil {
		p.endBooking(ctx, e, b, v)
		return result{}, v.err
	}
	return resultOf(e), nil
}

func (p *appProcess) bookThen(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ job, _ result) error {
	v := succeeded
	if err := insertEffect(ctx, tx, e); err != nil {
		v = verdict{outcome: history.OutcomeUnavailable, err: compensator.Unavailable(err)}
	}
	p.endBooking(ctx, e, ctx.Value(bookingKey{}).(*booking), v)
	return v.err
}

func (p *appProcess) endBooking(ctx context.Context, e *compensator.Entry, b *booking, v verdict) {
	b.ended = true
	p.end(ctx, e, b.run, v)
}

func (p *appProcess) declareResults(c *compensator.Compensator) error {
	for _, t := range types {
		if t.Returns {
			declared, err := compensator.DeclareResult[job, result](context.Background(), c, t.Name, nil)
			if err != nil {
				return err
			}
			p.results[t.Name] = declared
		}
	}
	return nil
}

type waiter struct {
	*appProcess
	rand *rand.Rand
}

func newWaiter(p *appProcess, random *rand.Rand) *waiter {
	return &waiter{appProcess: p, rand: rand.New(rand.NewPCG(random.Uint64(), 6))}
}

const waiters = 3

func (w *waiter) run(ctx context.Context) func() {
	return func() {
		for ctx.Err() == nil {
			wait(ctx, time.Duration(w.rand.Int64N(int64(300*time.Millisecond))))
			if entry, ok := w.recent.any(w.rand); ok && w.results[entry.content.BusinessType] != nil {
				w.wait(entry)
			}
		}
	}
}

func (w *waiter) wait(entry recorded) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	e, r, err := w.results[entry.content.BusinessType].Wait(ctx, compensator.IdempotencyKey(entry.key))
	if e == nil {
		return
	}
	answer := &history.Waited{At: history.Now(), ID: e.ID.Row(), Key: string(e.IdempotencyKey), Version: e.Version, Epoch: e.Epoch, State: int8(e.State), Asked: entry.key}
	switch {
	case err == nil:
		answer.Result = &history.Result{ID: r.ID, Version: r.Version}
	case errors.Is(err, compensator.ErrNoResult):
	default:
		answer.Err, answer.Detail = classOf(err)
	}
	w.write(answer)
}

func (st *stage) dumpResults(w *batchWriter) error {
	return st.query("SELECT entry_id, result_epoch, result FROM common_process_log_result ORDER BY entry_id", func(scan func(...any) error) error {
		r, encoded := &history.ResultRow{}, []byte(nil)
		if err := scan(&r.ID, &r.Epoch, &encoded); err != nil {
			return err
		}
		if err := json.Unmarshal(encoded, &r.Result); err != nil {
			return err
		}
		w.add(r)
		return nil
	})
}
