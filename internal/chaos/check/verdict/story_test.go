package verdict

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/compensator-go/compensator/internal/chaos/history"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The leases and ages of every story, ms.
const (
	storyLease = 2000
	purgeAge   = 5000
)

// story makes a history by hand: a run whose clock moves only by wait, told by a driver, a producer and apps.
type story struct {
	t       testing.TB
	run     history.Run
	now     int64 // wall µs
	skew    int64 // of the database's clock, µs
	records map[string][]history.Record
	order   []string // of the files
	seq     uint64
	count   uint64 // of transactions, runs, calls, faults, tokens
	people  []*subject
	members []history.Member
}

func newStory(t testing.TB) *story {
	s := &story{t: t, now: 1_700_000_000_000_000, records: make(map[string][]history.Record)}
	s.run = history.Run{
		Seed: 7, HorizonMS: 60_000, PurgeAgeMS: purgeAge,
		Types: []history.Type{
			{Name: "ship", Handler: history.HandlerPlain, MaxProcessCount: 3, LeaseMS: storyLease},
			{Name: "pay", Handler: history.HandlerTx, Compensation: history.CompensationTx, MaxProcessCount: 2, MaxCompensateCount: 2, LeaseMS: storyLease},
			{Name: "close", Handler: history.HandlerPlain, Compensation: history.CompensationPlain, MaxProcessCount: 2, MaxCompensateCount: 2, LeaseMS: storyLease},
			{Name: "mail", Handler: history.HandlerBatch, MaxProcessCount: 3, LeaseMS: storyLease},
			{Name: "bomb", Handler: history.HandlerPlain, Compensation: history.CompensationPlain, CompensateCrashed: true, MaxProcessCount: 3, MaxCompensateCount: 2, LeaseMS: storyLease},
			{Name: "truck", Handler: history.HandlerPlain, MaxProcessCount: 3, LeaseMS: storyLease},
			{Name: "nobody", Handler: history.HandlerNone},
		},
	}
	for _, name := range []string{"driver", "producer", "app1", "app2"} {
		s.start(name, name)
	}
	return s
}

// start begins a file of an app.
func (s *story) start(file, app string) {
	s.order = append(s.order, file)
	s.write(file, &history.Process{App: app, PID: len(s.order), At: s.now})
}

func (s *story) write(file string, r history.Record) { s.records[file] = append(s.records[file], r) }

// wait lets ms pass.
func (s *story) wait(ms int64) { s.now += ms * 1000 }

func (s *story) dbNow() int64 { return s.now + s.skew }

func (s *story) dbMS() int64 { return s.dbNow() / 1000 }

func (s *story) next() uint64 { s.count++; return s.count }

// tx is a producer's transaction.
type tx struct {
	s *story
	n uint64
}

func (s *story) begin() tx { return tx{s, s.next()} }

// ask asks for the COMMIT; answer is its outcome.
func (x tx) ask() { x.s.write("producer", &history.Commit{At: x.s.now, Tx: x.n}) }

func (x tx) answer(outcome string) {
	x.s.write("producer", &history.Committed{At: x.s.now, Tx: x.n, Outcome: outcome})
}

func (x tx) commit(outcome string) { x.ask(); x.answer(outcome) }

// resolve is Resolve's answer about an entry of the transaction.
func (x tx) resolve(e *subject, id uint64, class string) {
	x.s.write("producer", &history.Resolved{At: x.s.now, Tx: x.n, Key: e.key, ID: id, Err: class})
}

func (x tx) rollback() { x.s.write("producer", &history.Rollback{At: x.s.now, Tx: x.n}) }

func (x tx) savepoint(name string) {
	x.s.write("producer", &history.Savepoint{At: x.s.now, Tx: x.n, Name: name})
}

func (x tx) rollbackTo(name string) {
	x.s.write("producer", &history.SavepointRollback{At: x.s.now, Tx: x.n, Name: name})
}

// subject is an entry of a story, with its row as it is now.
type subject struct {
	s     *story
	id    uint64
	key   string
	typ   string
	delay int64
	max   int
	row   history.Image
	ran   uint64 // the version that ran last
	gone  bool   // no row: not inserted, or purged
}

func (s *story) entry(typ string) *subject {
	e := &subject{s: s, id: uint64(len(s.people)) + 1, typ: typ, gone: true}
	e.key = fmt.Sprintf("key-%d", e.id)
	s.people = append(s.people, e)
	return e
}

func (e *subject) hash() uint64 { return e.id*1000 + 1 }

// insert records the entry in a transaction; the row comes with appear.
func (e *subject) insert(x tx) *subject {
	s := e.s
	s.write("producer", &history.Insert{At: s.now, Tx: x.n, Key: e.key, Type: e.typ, Hash: e.hash(), DelayMS: e.delay, Max: e.max})
	s.write("producer", &history.Inserted{At: s.now, Tx: x.n, Key: e.key, ID: e.id})
	return e
}

// repeat records the entry's key again, which is answered as a duplicate of the entry with that id.
func (e *subject) repeat(x tx, id uint64) {
	s := e.s
	s.write("producer", &history.Insert{At: s.now, Tx: x.n, Key: e.key, Type: e.typ, Hash: 5})
	s.write("producer", &history.Inserted{At: s.now, Tx: x.n, Key: e.key, ID: id, Duplicate: true})
}

// appear is the audit of the insert.
func (e *subject) appear(born bool) *subject {
	s := e.s
	e.row = history.Image{NextAt: s.dbMS() + e.delay, Token: s.token()}
	if born {
		e.row.DeliveryCount, e.row.LeaseUntil = 1, s.dbMS()+storyLease
	}
	e.gone = false
	s.audit(history.OpInsert, e, nil, &e.row)
	return e
}

// committed is an entry whose transaction committed, and is free.
func (s *story) committed(typ string) *subject {
	e := s.entry(typ)
	x := s.begin()
	e.insert(x)
	x.ask()
	e.appear(false)
	x.answer(history.CommitOK)
	s.wait(1)
	return e
}

// bornClaimed is an entry whose transaction committed ms after its insert, which leased it.
func (s *story) bornClaimed(ms int64) *subject {
	e, x := s.entry("ship"), s.begin()
	e.insert(x).appear(true)
	s.wait(ms)
	x.commit(history.CommitOK)
	return e
}

func (s *story) token() string { return fmt.Sprintf("%032x", s.next()) }

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

// update is a write under a new version and token, after a moment.
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

// ownClaim is a claim of what the insert leased, by the process that recorded it.
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

// settle writes an outcome: the state, who ended it, and when it is due again.
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
func (e *subject) pause() *subject      { return e.settle(e.row.State, "", nil) }

func (e *subject) requeue(state int8) *subject {
	return e.settle(state, "", func(r *history.Image) { r.Epoch++; r.ProcessCount, r.CompensateCount = 0, 0 })
}

func (e *subject) purge() *subject {
	e.gone = true
	e.s.audit(history.OpDelete, e, &e.row, nil)
	return e
}

// run is an attempt under way.
type run struct {
	e    *subject
	file string
	n    uint64
	row  history.Image
}

// line is the attempt's line, to be changed before it is written.
func (e *subject) line(n uint64) *history.Attempt {
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
	a := e.line(r.n)
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

// effect is one outside the database.
func (r *run) effect() *run {
	s := r.e.s
	for _, phase := range []string{history.EffectBefore, history.EffectAfter} {
		s.write(r.file, &history.Effect{At: s.now, Run: r.n, ID: r.e.id, Epoch: r.row.Epoch, Compensation: r.row.State == compensating, Phase: phase})
	}
	return r
}

// effectRow is a committed one of the transactional handler that ran last.
func (e *subject) effectRow(epoch uint32, undo bool) { e.effectRowAt(epoch, undo, e.ran) }

func (e *subject) effectRowAt(epoch uint32, undo bool, version uint64) {
	e.s.write("driver", &history.EffectRow{ID: e.id, Key: e.key, Epoch: epoch, Compensation: undo, Version: version})
}

// act is a person's call, with its answer.
func (e *subject) act(action, class string) { e.actAs(action, class, func(*history.Action) {}) }

func (e *subject) actAs(action, class string, change func(a *history.Action)) {
	s := e.s
	a := &history.Action{At: s.now, Call: s.next(), Action: action, ID: e.id}
	change(a)
	s.write("producer", a)
	s.write("producer", &history.ActionEnd{At: s.now, Call: a.Call, Err: class})
}

// reschedule is a person's, for ms from now.
func (e *subject) reschedule(ms int64) *subject {
	e.actAs(history.ActionReschedule, "", func(a *history.Action) { a.DelayMS = ms })
	return e.update(func(r *history.Image) {
		r.DeliveryCount = max(0, r.DeliveryCount-1)
		r.NextAt = e.s.dbMS() + ms
	})
}

// undo is a person's requeue to the compensation.
func (e *subject) undo() *subject {
	e.actAs(history.ActionRequeue, "", func(a *history.Action) { a.Compensate = true })
	return e.requeue(compensating)
}

// fault is one that lasts ms, told when it ends.
func (s *story) fault(kind, target string, ms int64, touches ...string) {
	n := s.next()
	s.write("driver", &history.Fault{At: s.now, N: n, Fault: kind, Target: target, Touches: touches})
	s.wait(ms)
	s.write("driver", &history.FaultEnd{At: s.now, N: n})
}

// stall is one that lasts ms, told by an app when it ends.
func (s *story) stall(app string, ms int64) {
	at := s.now
	s.wait(ms)
	s.write(app, &history.Stall{At: at, Until: s.now})
}

func (s *story) clock() {
	s.write("driver", &history.Clock{At: s.now, DBNow: s.dbNow(), AuditSeq: s.seq})
}

// rest ends the story in order: everything done, the table and the queue dumped.
func (s *story) rest() {
	s.wait(1000)
	s.write("driver", &history.Mark{At: s.now, What: history.MarkQuiescent})
	for _, e := range s.people {
		if e.gone {
			continue
		}
		s.write("driver", &history.Row{ID: e.id, Key: e.key, Type: e.typ, DBNow: s.dbNow(), Image: e.row})
		if !terminal(e.row.State) {
			s.members = append(s.members, history.Member{Type: e.typ, ID: e.id, Score: float64(s.now/1000 + max(e.row.NextAt, e.row.LeaseUntil) - s.dbMS()), Now: s.now})
		}
	}
	for i := range s.members {
		s.write("driver", &s.members[i])
	}
}

// tell makes the ledger, each file as a reader would.
func (s *story) tell() (*Ledger, error) {
	b := newBuilder(s.order)
	for i, file := range s.order {
		records := s.records[file]
		if i == 0 {
			records = slices.Insert(slices.Clone(records), 1, history.Record(&s.run))
		}
		for n, r := range records {
			if err := b.add(Place{file: int32(i), line: int32(n + 1)}, r); err != nil {
				return nil, err
			}
		}
	}
	return &b.l, b.l.finish()
}

func (s *story) judge() *Verdict {
	s.t.Helper()
	l, err := s.tell()
	require.NoError(s.t, err)
	return Judge(l)
}

// violates requires that these checks are violated and no others.
func (s *story) violates(want ...string) *Verdict {
	s.t.Helper()
	v := s.judge()
	got := make(map[string]bool)
	var findings []string
	for _, c := range v.Checks {
		if c.Violations > 0 {
			got[c.Name] = true
			require.NotEmpty(s.t, c.Findings)
			for _, f := range c.Findings {
				findings = append(findings, c.Name+": "+f.What)
			}
		}
	}
	slices.Sort(want)
	require.Equal(s.t, want, slices.Sorted(maps.Keys(got)), "violated checks; findings: %q", findings)
	return v
}

// holds requires that no check is violated.
func (s *story) holds() *Verdict {
	s.t.Helper()
	return s.violates()
}
