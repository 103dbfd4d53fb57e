package verdict

import (
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

// Records of one process arrive in order. Records of different processes arrive in any order.
type builder struct {
	l        Ledger
	texts    map[string]string
	process  []int32                   // by file; -1: the Process line has not been read yet
	txs      []map[uint64]*transaction // by process
	inserts  []map[insertName][]int32  // by process: inserts without an answer, in their order
	attempts []map[uint64]attemptName
	calls    []map[uint64]int32
	lastSeq  uint64
}

type insertName struct {
	tx  uint64
	key string
}

type attemptName struct {
	entry *Entry
	index int
}

func newBuilder(files []string) *builder {
	b := &builder{
		l: Ledger{
			files: files, Entries: make(map[uint64]*Entry), keys: make(map[string][]int32),
			types: make(map[string]*history.Type), marks: make(map[string]int64),
		},
		texts: make(map[string]string),
	}
	for range files {
		b.process = append(b.process, -1)
	}
	return b
}

func (b *builder) add(at Place, r history.Record) error {
	b.l.Lines++
	if p, ok := r.(*history.Process); ok {
		return b.start(at, p)
	}
	p := b.process[at.file]
	if p < 0 {
		return fmt.Errorf("the file does not begin with a Process line")
	}
	switch r := r.(type) {
	case *history.Run:
		return b.run(r)
	case *history.Insert:
		b.seen(p, r.At)
		b.insert(at, p, r)
	case *history.Inserted:
		b.seen(p, r.At)
		return b.inserted(p, r)
	case *history.Savepoint:
		b.seen(p, r.At)
		tx := b.tx(p, r.Tx)
		tx.savepoints = append(tx.savepoints, savepoint{name: r.Name, inserts: len(tx.inserts), actions: len(tx.actions)})
	case *history.SavepointRollback:
		b.seen(p, r.At)
		return b.undo(p, r)
	case *history.Commit:
		b.seen(p, r.At)
		b.tx(p, r.Tx).asked = r.At
	case *history.Committed:
		b.seen(p, r.At)
		return b.committed(p, r)
	case *history.Resolved:
		b.seen(p, r.At)
		b.l.resolved = append(b.l.resolved, resolved{Resolved: *r, tx: b.tx(p, r.Tx), place: at})
	case *history.Rollback:
		b.seen(p, r.At)
		b.tx(p, r.Tx).rolledBack = true
	case *history.Attempt:
		b.seen(p, r.At)
		return b.attempt(at, p, r)
	case *history.AttemptEnd:
		b.seen(p, r.At)
		return b.attemptEnd(at, p, r)
	case *history.Effect:
		b.seen(p, r.At)
		return b.effect(p, r)
	case *history.Action:
		b.seen(p, r.At)
		b.action(at, p, r)
	case *history.ActionEnd:
		b.seen(p, r.At)
		return b.actionEnd(p, r)
	case *history.Event:
		b.seen(p, r.At)
		b.l.events = append(b.l.events, *r)
	case *history.Fault:
		b.seen(p, r.At)
		b.l.Faults = append(b.l.Faults, Fault{Fault: *r})
	case *history.FaultEnd:
		b.seen(p, r.At)
		return b.endFault(r)
	case *history.Mark:
		b.seen(p, r.At)
		b.l.marks[r.What] = r.At
		b.l.processes[p].ended = b.l.processes[p].ended || r.What == history.MarkExit
	case *history.Clock:
		b.seen(p, r.At)
		b.l.clock.samples = append(b.l.clock.samples, *r)
	case *history.Audit:
		return b.audit(at, r)
	case *history.EffectRow:
		e, err := b.keyed(r.ID, r.Key)
		if err != nil {
			return err
		}
		e.effects = append(e.effects, *r)
	case *history.ResultRow:
		e := b.entry(r.ID)
		e.result, e.resultPlace = r, at
	case *history.Waited:
		b.seen(p, r.At)
		b.l.waits = append(b.l.waits, waited{Waited: *r, place: at})
	case *history.Row:
		e := b.entry(r.ID)
		e.row, e.rowPlace = r, at
	case *history.Member:
		b.l.Members = append(b.l.Members, *r)
	case *history.Deadlock:
		b.l.Deadlocks = append(b.l.Deadlocks, *r)
	case *history.Stall:
		b.seen(p, r.Until)
		b.l.Stalls = append(b.l.Stalls, Stall{Stall: *r, app: b.l.processes[p].app})
	case *history.Sample:
		b.seen(p, r.At)
	default:
		return fmt.Errorf("unknown kind of record: %s", r.Kind())
	}
	return nil
}

func (b *builder) start(at Place, p *history.Process) error {
	if b.process[at.file] >= 0 {
		return fmt.Errorf("a second Process line in one file")
	}
	b.process[at.file] = int32(len(b.l.processes))
	b.l.processes = append(b.l.processes, process{app: p.App, started: p.At, last: p.At})
	b.txs = append(b.txs, make(map[uint64]*transaction))
	b.inserts = append(b.inserts, make(map[insertName][]int32))
	b.attempts = append(b.attempts, make(map[uint64]attemptName))
	b.calls = append(b.calls, make(map[uint64]int32))
	return nil
}

func (b *builder) seen(p int32, at int64) { b.l.processes[p].last = max(b.l.processes[p].last, at) }

func (b *builder) run(r *history.Run) error {
	if len(b.l.types) > 0 {
		return fmt.Errorf("a second Run line in one directory")
	}
	b.l.Run = *r
	for i := range r.Types {
		b.l.types[r.Types[i].Name] = &b.l.Run.Types[i]
	}
	return nil
}

func (b *builder) tx(p int32, n uint64) *transaction {
	tx := b.txs[p][n]
	if tx == nil {
		tx = &transaction{process: p}
		b.txs[p][n] = tx
		b.l.txs = append(b.l.txs, tx)
	}
	return tx
}

func (b *builder) insert(at Place, p int32, r *history.Insert) {
	tx, n := b.tx(p, r.Tx), int32(len(b.l.inserts))
	in := insert{Insert: *r, tx: tx, place: at}
	in.Type, in.Mode = b.text(r.Type), b.text(r.Mode)
	b.l.inserts = append(b.l.inserts, in)
	tx.inserts = append(tx.inserts, n)
	name := insertName{r.Tx, r.Key}
	b.inserts[p][name] = append(b.inserts[p][name], n)
	b.l.keys[r.Key] = append(b.l.keys[r.Key], n)
}

func (b *builder) inserted(p int32, r *history.Inserted) error {
	name := insertName{r.Tx, r.Key}
	asked := b.inserts[p][name]
	if len(asked) == 0 {
		return fmt.Errorf("an answer to an insert that was not made")
	}
	if b.inserts[p][name] = asked[1:]; len(asked) == 1 {
		delete(b.inserts[p], name)
	}
	in := &b.l.inserts[asked[0]]
	in.answered, in.id, in.dup, in.err = true, r.ID, r.Duplicate, b.text(r.Err)
	in.tx.aborted = in.tx.aborted || aborts(r.Err)
	return nil
}

func aborts(class string) bool {
	return class == history.ErrDeadlock || class == history.ErrTxAborted
}

// undo marks as undone every insert and action that the transaction has made since it last set a savepoint with this
// name. That savepoint remains, and later ones are removed.
func (b *builder) undo(p int32, r *history.SavepointRollback) error {
	tx := b.tx(p, r.Tx)
	for i, s := range slices.Backward(tx.savepoints) {
		if s.name != r.Name {
			continue
		}
		for _, n := range tx.inserts[s.inserts:] {
			b.l.inserts[n].undone = true
		}
		for _, n := range tx.actions[s.actions:] {
			b.l.actions[n].undone = true
		}
		tx.savepoints = tx.savepoints[:i+1]
		return nil
	}
	return fmt.Errorf("rollback to a savepoint %q that was not set", r.Name)
}

func (b *builder) committed(p int32, r *history.Committed) error {
	tx := b.tx(p, r.Tx)
	if tx.asked == 0 {
		return fmt.Errorf("an answer to a commit that was not requested")
	}
	switch r.Outcome {
	case history.CommitOK, history.CommitFail, history.CommitUnknown:
		tx.outcome, tx.answered = b.text(r.Outcome), r.At
		return nil
	}
	return fmt.Errorf("unknown outcome of a commit: %q", r.Outcome)
}

func (b *builder) entry(id uint64) *Entry {
	e := b.l.Entries[id]
	if e == nil {
		e = &Entry{ID: id}
		b.l.Entries[id] = e
	}
	return e
}

// keyed returns an error if an earlier record gave the entry a different key.
func (b *builder) keyed(id uint64, key string) (*Entry, error) {
	e := b.entry(id)
	if e.Key == "" {
		e.Key = key
	}
	if e.Key != key {
		return nil, fmt.Errorf("entry %d has the keys %q and %q", id, e.Key, key)
	}
	return e, nil
}

func (b *builder) attempt(at Place, p int32, r *history.Attempt) error {
	if _, twice := b.attempts[p][r.Run]; twice {
		return fmt.Errorf("run %d begins twice", r.Run)
	}
	e, err := b.keyed(r.ID, r.Key)
	if err != nil {
		return err
	}
	b.attempts[p][r.Run] = attemptName{e, len(e.attempts)}
	e.attempts = append(e.attempts, attempt{
		process: p, batch: int32(r.Batch), number: int32(r.Attempt), epoch: r.Epoch, state: r.State, compensation: r.Compensation,
		version: r.Version, hash: r.Hash, nextAt: r.NextAt, began: r.At, place: at,
	})
	return nil
}

func (b *builder) attemptEnd(at Place, p int32, r *history.AttemptEnd) error {
	name, ok := b.attempts[p][r.Run]
	if !ok || name.entry.ID != r.ID {
		return fmt.Errorf("the end of run %d of entry %d, which did not begin", r.Run, r.ID)
	}
	if !slices.Contains(outcomes, r.Outcome) {
		return fmt.Errorf("unknown outcome of an attempt: %q", r.Outcome)
	}
	delete(b.attempts[p], r.Run)
	a := &name.entry.attempts[name.index]
	a.ended, a.outcome, a.cause, a.after, a.endPlace = r.At, b.text(r.Outcome), b.text(r.Cause), r.AfterMS, at
	return nil
}

var outcomes = []string{
	history.OutcomeOK, history.OutcomeFail, history.OutcomePermanent, history.OutcomeRetryAfter, history.OutcomeSnooze,
	history.OutcomeUnavailable, history.OutcomePanic, history.OutcomeCanceled, history.OutcomeNoVerdict,
}

func (b *builder) effect(p int32, r *history.Effect) error {
	name, ok := b.attempts[p][r.Run]
	if !ok || name.entry.ID != r.ID {
		return fmt.Errorf("an effect of run %d of entry %d, which is not running", r.Run, r.ID)
	}
	a := &name.entry.attempts[name.index]
	a.acted = a.acted || r.Phase == history.EffectAfter
	return nil
}

func (b *builder) action(at Place, p int32, r *history.Action) {
	n := int32(len(b.l.actions))
	a := action{Action: *r, place: at}
	if r.Tx != 0 {
		a.tx = b.tx(p, r.Tx)
		a.tx.actions = append(a.tx.actions, n)
	}
	b.l.actions = append(b.l.actions, a)
	b.calls[p][r.Call] = n
}

func (b *builder) actionEnd(p int32, r *history.ActionEnd) error {
	n, ok := b.calls[p][r.Call]
	if !ok {
		return fmt.Errorf("the end of call %d, which was not made", r.Call)
	}
	a := &b.l.actions[n]
	a.answered, a.err, a.already, a.dead = r.At, b.text(r.Err), r.Already, r.Dead
	if a.tx != nil {
		a.tx.aborted = a.tx.aborted || aborts(r.Err)
	}
	return nil
}

func (b *builder) endFault(r *history.FaultEnd) error {
	for i := range b.l.Faults {
		if f := &b.l.Faults[i]; f.N == r.N {
			f.End, f.Fired = r.At, r.Err == ""
			return nil
		}
	}
	return fmt.Errorf("the end of fault %d, which did not begin", r.N)
}

func (b *builder) audit(at Place, r *history.Audit) error {
	if r.Seq <= b.lastSeq {
		return fmt.Errorf("audit rows are not in the order of seq: %d after %d", r.Seq, b.lastSeq)
	}
	b.lastSeq = r.Seq
	if (r.Op == history.OpInsert) != (r.Old == nil) || (r.Op == history.OpDelete) != (r.New == nil) {
		return fmt.Errorf("audit row %d: an %s with the wrong images", r.Seq, r.Op)
	}
	e, err := b.keyed(r.ID, r.Key)
	if err != nil {
		return err
	}
	e.Type = b.text(r.Type)
	s := step{seq: r.Seq, now: r.DBNow, old: b.image(r.Old), new: b.image(r.New), place: at}
	s.move = map[string]string{history.OpInsert: moveInsert, history.OpDelete: moveDelete}[r.Op]
	if before, exists := e.last(); exists != (r.Old != nil) || exists && before != s.old {
		e.torn = append(e.torn, at)
	}
	e.deleted = r.Op == history.OpDelete
	e.steps = append(e.steps, s)
	return nil
}

func (b *builder) image(i *history.Image) image {
	if i == nil {
		return image{}
	}
	return image{
		version: i.Version, token: tokenHash(i.Token), nextAt: i.NextAt, leaseUntil: i.LeaseUntil, epoch: i.Epoch,
		processCount: int32(i.ProcessCount), compensateCount: int32(i.CompensateCount), deliveryCount: int32(i.DeliveryCount),
		state: i.State, endedBy: b.text(i.EndedBy),
	}
}

// The checks only compare tokens for equality.
func tokenHash(token string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(token))
	return h.Sum64()
}

func (b *builder) text(s string) string {
	if known, ok := b.texts[s]; ok {
		return known
	}
	b.texts[s] = s
	return s
}
