package verdict

import (
	"fmt"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

type subject struct {
	s     *story
	id    uint64
	key   string
	typ   string
	delay int64
	max   int
	row   history.Image
	ran   uint64
	gone  bool
}

func (s *story) entry(typ string) *subject {
	e := &subject{s: s, id: uint64(len(s.people)) + 1, typ: typ, gone: true}
	e.key = fmt.Sprintf("key-%d", e.id)
	s.people = append(s.people, e)
	return e
}

func (e *subject) hash() uint64 { return e.id*1000 + 1 }

func (e *subject) insert(x tx) *subject {
	s := e.s
	s.write("producer", &history.Insert{At: s.now, Tx: x.n, Key: e.key, Type: e.typ, Hash: e.hash(), DelayMS: e.delay, Max: e.max})
	s.write("producer", &history.Inserted{At: s.now, Tx: x.n, Key: e.key, ID: e.id})
	return e
}

func (e *subject) repeat(x tx, id uint64) {
	s := e.s
	s.write("producer", &history.Insert{At: s.now, Tx: x.n, Key: e.key, Type: e.typ, Hash: 5})
	s.write("producer", &history.Inserted{At: s.now, Tx: x.n, Key: e.key, ID: id, Duplicate: true})
}

func (e *subject) writeInsert(inserted bool) *subject {
	s := e.s
	e.row = history.Image{NextAt: s.dbMS() + e.delay, Token: s.token()}
	if inserted {
		e.row.DeliveryCount, e.row.LeaseUntil = 1, s.dbMS()+storyLease
	}
	e.gone = false
	s.audit(history.OpInsert, e, nil, &e.row)
	return e
}

func (s *story) committed(typ string) *subject {
	e := s.entry(typ).record(false, history.CommitOK)
	s.wait(1)
	return e
}

// The COMMIT takes effect even if the answer is an error.
func (e *subject) record(inserted bool, answer string) *subject {
	x := e.s.begin()
	e.insert(x)
	x.askCommit()
	e.writeInsert(inserted)
	x.answer(answer)
	return e
}

func (s *story) insertedWithLease(ms int64) *subject {
	e, x := s.entry("ship"), s.begin()
	e.insert(x).writeInsert(true)
	s.wait(ms)
	x.commit(history.CommitOK)
	return e
}

func (s *story) audit(op string, e *subject, before, after *history.Image) {
	s.seq++
	a := &history.Audit{Seq: s.seq, Op: op, ID: e.id, Key: e.key, Type: e.typ, DBNow: s.dbNow(), Conn: 9}
	if before != nil {
		a.Old = copied(before)
	}
	if after != nil {
		a.New = copied(after)
	}
	s.write("driver", a)
}

func copied(i *history.Image) *history.Image { c := *i; return &c }

func (e *subject) update(change func(r *history.Image)) *subject {
	e.s.wait(1)
	before := e.row
	e.row.Version++
	e.row.Token = e.s.token()
	change(&e.row)
	e.s.audit(history.OpUpdate, e, &before, &e.row)
	return e
}

func (e *subject) claim() *subject {
	return e.update(func(r *history.Image) { r.DeliveryCount++; r.LeaseUntil = e.s.dbMS() + storyLease })
}

func (e *subject) killThree() *subject {
	for range 3 {
		e.claim().run("app1")
		e.s.fault("kill", "app1", 2500, history.TouchesApp)
	}
	return e
}

// killThreeAndClaim waits until the lease of this claim has ended, because the library dead-letters the entry only
// then.
func (e *subject) killThreeAndClaim() *subject {
	e.killThree().claim()
	e.s.wait(2 * storyLease)
	return e
}

func (e *subject) ownClaim() *subject {
	return e.update(func(r *history.Image) { r.LeaseUntil = e.s.dbMS() + storyLease })
}

func (e *subject) renew() *subject {
	before := e.row
	e.row.LeaseUntil = e.s.dbMS() + storyLease
	e.s.audit(history.OpUpdate, e, &before, &e.row)
	return e
}

func (e *subject) release() *subject {
	token := e.row.Token
	return e.update(func(r *history.Image) { r.Token = token; r.DeliveryCount--; r.LeaseUntil = 0 })
}

func (e *subject) settle(state int8, by string, change func(r *history.Image)) *subject {
	return e.update(func(r *history.Image) {
		r.State, r.EndedBy, r.DeliveryCount, r.LeaseUntil, r.NextAt = state, by, 0, 0, e.s.dbMS()
		if change != nil {
			change(r)
		}
	})
}

func failed1(r *history.Image) { r.ProcessCount++ }
func undone1(r *history.Image) { r.CompensateCount++ }

func (e *subject) succeed() *subject    { return e.settle(succeeded, "handler", nil) }
func (e *subject) fail() *subject       { return e.settle(retrying, "", failed1) }
func (e *subject) exhaust() *subject    { return e.settle(compensating, "", failed1) }
func (e *subject) die() *subject        { return e.settle(dead, "exhausted", failed1) }
func (e *subject) compensate() *subject { return e.settle(compensated, "handler", nil) }
func (e *subject) undoFail() *subject   { return e.settle(compensating, "", undone1) }
func (e *subject) undoDie() *subject    { return e.settle(dead, "exhausted", undone1) }
func (e *subject) crash() *subject      { return e.settle(dead, "crash", nil) }
func (e *subject) undoCrash() *subject  { return e.settle(dead, "crash", undone1) }
func (e *subject) pause() *subject      { return e.settle(e.row.State, "", nil) }

func (e *subject) requeue(state int8) *subject {
	return e.settle(state, "", func(r *history.Image) { r.Epoch++; r.ProcessCount, r.CompensateCount = 0, 0 })
}

func (e *subject) purge() *subject {
	e.gone = true
	e.s.audit(history.OpDelete, e, &e.row, nil)
	return e
}

type run struct {
	e    *subject
	file string
	n    uint64
	row  history.Image
}

func (e *subject) attemptLine(n uint64) *history.Attempt {
	r := e.row
	a := &history.Attempt{
		At: e.s.now, Run: n, ID: e.id, Key: e.key, Version: r.Version, Epoch: r.Epoch, Attempt: r.ProcessCount + 1, State: r.State,
		Compensation: r.State == compensating, Hash: e.hash(), NextAt: r.NextAt,
	}
	if a.Compensation {
		a.Attempt = r.CompensateCount + 1
	}
	return a
}

func (e *subject) run(file string) *run { return e.runAs(file, func(*history.Attempt) {}) }

func (e *subject) runAs(file string, change func(a *history.Attempt)) *run {
	r := &run{e: e, file: file, n: e.s.next(), row: e.row}
	e.ran = e.row.Version
	a := e.attemptLine(r.n)
	change(a)
	e.s.write(file, a)
	e.s.wait(1)
	return r
}

func (r *run) end(outcome string) *subject { return r.endAs(outcome, func(*history.AttemptEnd) {}) }

func (r *run) endAs(outcome string, change func(a *history.AttemptEnd)) *subject {
	end := &history.AttemptEnd{At: r.e.s.now, Run: r.n, ID: r.e.id, Outcome: outcome}
	change(end)
	r.e.s.write(r.file, end)
	return r.e
}

func (r *run) effect() *run {
	s := r.e.s
	for _, phase := range []string{history.EffectBefore, history.EffectAfter} {
		s.write(r.file, &history.Effect{At: s.now, Run: r.n, ID: r.e.id, Epoch: r.row.Epoch, Compensation: r.row.State == compensating, Phase: phase})
	}
	return r
}

func (e *subject) effectRow(epoch uint32, undo bool) { e.effectRowAt(epoch, undo, e.ran) }

func (e *subject) effectRowAt(epoch uint32, undo bool, version uint64) {
	e.s.write("driver", &history.EffectRow{ID: e.id, Key: e.key, Epoch: epoch, Compensation: undo, Version: version})
}

func (e *subject) act(action, class string) { e.actAs(action, class, func(*history.Action) {}) }

func (e *subject) actAs(action, class string, change func(a *history.Action)) {
	s := e.s
	a := &history.Action{At: s.now, Call: s.next(), Action: action, ID: e.id}
	change(a)
	s.write("producer", a)
	dead := class == "" && e.row.State == dead && (action == history.ActionCancel || action == history.ActionComplete)
	s.write("producer", &history.ActionEnd{At: s.now, Call: a.Call, Err: class, Dead: dead})
}

func (e *subject) cancelAgain() {
	s := e.s
	n := s.next()
	s.write("producer", &history.Action{At: s.now, Call: n, Action: history.ActionCancel, ID: e.id, Key: e.key})
	s.write("producer", &history.ActionEnd{At: s.now, Call: n, Already: true})
}

// Like the store, reschedule subtracts a running attempt from DeliveryCount, because the outcome of that attempt may be
// dropped.
func (e *subject) reschedule(ms int64) *subject {
	e.actAs(history.ActionReschedule, "", func(a *history.Action) { a.DelayMS = ms })
	return e.update(func(r *history.Image) {
		r.DeliveryCount = max(0, r.DeliveryCount-1)
		r.NextAt = e.s.dbMS() + ms
	})
}

func (e *subject) undo() *subject {
	e.actAs(history.ActionRequeue, "", func(a *history.Action) { a.Compensate = true })
	return e.requeue(compensating)
}
