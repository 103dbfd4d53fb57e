package chaos

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/proof/chaos/history"
)

const producers = 6

type producer struct {
	*appProcess
	rand *rand.Rand
	name string
	keys int

	killers    int
	from       time.Time
	killer     string
	killerNext bool
}

// A planned killer is an entry that kills every process that runs it, until it is dead-lettered. There are two,
// because a person may cancel one of them.
const plannedKillers = 2

func (p *producer) planKiller() {
	if p.killers > 0 && time.Now().After(p.from) {
		p.killerNext, p.killer = true, "" // The transaction of the killer before this one did not commit.
	}
}

func (t *transaction) committedKiller() {
	if t.killer != "" && slices.ContainsFunc(t.inserted, func(e recorded) bool { return e.key == t.killer }) {
		t.killers--
		t.killer = ""
	}
}

func newProducer(p *appProcess, number int, random *rand.Rand) *producer {
	made := &producer{appProcess: p, rand: rand.New(rand.NewPCG(random.Uint64(), 4)), name: fmt.Sprintf("%s-%d-%d", p.cfg.Name, p.cfg.Seed, number)}
	if number == 0 && !p.cfg.Runs && p.cfg.KillEvery > 0 {
		made.killers, made.from = plannedKillers, time.Now().Add(calmStart)
	}
	return made
}

const entriesPerTx = 4.0

func (p *producer) size() int {
	switch n := p.rand.IntN(100); {
	case n < 8:
		return 10 + p.rand.IntN(41)
	case n < 30:
		return 2 + p.rand.IntN(3)
	}
	return 1
}

func (p *producer) run(ctx context.Context) func() {
	return func() {
		pause := entriesPerTx * producers / p.cfg.Rate * float64(time.Second)
		for next := time.Now(); ctx.Err() == nil; {
			p.record()
			next = next.Add(time.Duration(p.rand.ExpFloat64() * pause))
			if behind := time.Since(next); behind > time.Second {
				next = time.Now() // After an outage, do not catch up.
			}
			wait(ctx, time.Until(next))
		}
	}
}

// The context of the transaction does not end when the load ends, so the transaction ends normally.
func (p *producer) record() {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	p.planKiller()
	t := &transaction{producer: p, number: p.txs.Add(1), mode: "raw"}
	if p.cfg.Connector {
		t.mode = "connector"
	}
	if p.rand.IntN(5) == 0 {
		t.mode = "intx"
		t.inTx(ctx)
		return
	}
	t.begun(ctx)
}

type transaction struct {
	*producer
	number   uint64
	mode     string
	inserted []recorded
}

type sqlTx interface {
	compensator.Tx
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// errUnwanted makes InTx roll back.
var errUnwanted = errors.New("the business transaction rolls back on purpose")

func (t *transaction) inTx(ctx context.Context) {
	asked := false
	err := t.c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := t.body(ctx, tx)
		if err == nil && t.rand.IntN(10) == 0 {
			err = errUnwanted
		}
		if err != nil {
			return err
		}
		asked = true
		t.write(&history.Commit{At: history.Now(), Tx: t.number})
		return nil
	})
	if asked {
		t.committed(err)
	} else {
		t.write(&history.Rollback{At: history.Now(), Tx: t.number})
	}
}

func (t *transaction) begun(ctx context.Context) {
	var opts *sql.TxOptions
	if !t.cfg.RepeatableRead {
		opts = &sql.TxOptions{Isolation: sql.LevelReadCommitted}
	}
	tx, err := t.db.BeginTx(ctx, opts)
	if err != nil {
		return
	}
	receipts, err := t.body(ctx, tx)
	if err != nil || t.rand.IntN(10) == 0 {
		t.write(&history.Rollback{At: history.Now(), Tx: t.number})
		_ = tx.Rollback()
		return
	}
	t.write(&history.Commit{At: history.Now(), Tx: t.number})
	err = tx.Commit()
	t.committed(err)
	if err == nil && !t.cfg.Connector && (t.cfg.Careful || t.rand.IntN(5) > 0) {
		for _, receipt := range receipts {
			receipt.Committed()
		}
	}
}

func (t *transaction) body(ctx context.Context, tx sqlTx) ([]*compensator.Receipt, error) {
	if err := t.business(ctx, tx); err != nil {
		return nil, err
	}
	first, err := t.insert(ctx, tx, t.drafts(t.size()))
	if err != nil || t.rand.IntN(8) > 0 {
		return []*compensator.Receipt{first}, err
	}
	second, err := t.aroundSavepoint(ctx, tx)
	return []*compensator.Receipt{first, second}, err
}

// business is the producer's own work in the transaction. After a deadlock (error 1213), the server has rolled the
// transaction back. In half of these cases, business ignores the error, so that the producer goes on to record entries.
func (t *transaction) business(ctx context.Context, tx sqlTx) error {
	for range t.rand.IntN(3) {
		_, err := tx.ExecContext(ctx, "UPDATE /* producer */ accounts SET n=n+1 WHERE id=?", 1+t.rand.IntN(200))
		if err != nil && !(isServerError(err, 1213) && t.rand.IntN(2) == 0) {
			return err
		}
	}
	return nil
}

func (t *transaction) aroundSavepoint(ctx context.Context, tx sqlTx) (*compensator.Receipt, error) {
	if _, err := tx.ExecContext(ctx, "SAVEPOINT s"); err != nil {
		return nil, err
	}
	t.write(&history.Savepoint{At: history.Now(), Tx: t.number, Name: "s"})
	before := len(t.inserted)
	receipt, err := t.insert(ctx, tx, t.drafts(1+t.rand.IntN(3)))
	if err != nil || t.cfg.Careful || t.rand.IntN(3) == 0 {
		return receipt, err
	}
	if _, err := tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT s"); err != nil {
		return nil, err
	}
	t.write(&history.SavepointRollback{At: history.Now(), Tx: t.number, Name: "s"})
	t.inserted = t.inserted[:before]
	return receipt, nil
}

// insert writes each entry to the history before the call, and each answer after the call.
func (t *transaction) insert(ctx context.Context, tx compensator.Tx, entries []compensator.NewEntry) (*compensator.Receipt, error) {
	before := make([]history.Record, len(entries))
	for i, e := range entries {
		before[i] = &history.Insert{At: history.Now(), Tx: t.number, Key: string(e.IdempotencyKey), Type: e.BusinessType, Hash: history.Hash(e.Content),
			DelayMS: e.Delay.Milliseconds(), Max: e.MaxAttempts, Mode: t.mode}
	}
	t.write(before...)
	receipt, err := t.c.Record(ctx, tx, entries...)
	after := make([]history.Record, len(entries))
	class, detail := classOf(err)
	for i, e := range entries {
		answer := &history.Inserted{At: history.Now(), Tx: t.number, Key: string(e.IdempotencyKey), Err: class, Detail: detail}
		if err == nil {
			answer.ID, answer.Duplicate = receipt.Entries[i].ID.Row(), receipt.Entries[i].Duplicate
			t.inserted = append(t.inserted, recorded{id: receipt.Entries[i].ID, key: string(e.IdempotencyKey), content: e, before: answer.Duplicate})
		}
		after[i] = answer
	}
	t.write(after...)
	return receipt, err
}

func (t *transaction) committed(err error) {
	end := &history.Committed{At: history.Now(), Tx: t.number, Outcome: outcomeOfCommit(err)}
	end.Err, end.Detail = classOf(err)
	if t.mode != "raw" && err != nil && !errors.Is(err, compensator.ErrCommitUnknown) {
		end.Outcome = history.CommitFail // With InTx and the Connector an unknown outcome is an ErrCommitUnknown, so any other error means a failure.
	}
	t.write(end)
	switch end.Outcome {
	case history.CommitOK:
		t.recent.add(t.inserted...)
		t.committedKiller()
	case history.CommitUnknown:
		t.resolve()
	}
}

func (t *transaction) resolve() {
	i := slices.IndexFunc(t.inserted, func(e recorded) bool { return !e.before })
	if i < 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	answer := &history.Resolved{Tx: t.number, Key: t.inserted[i].key}
	entry, err := t.c.Resolve(ctx, compensator.IdempotencyKey(answer.Key))
	if err == nil {
		answer.ID = entry.ID.Row()
	}
	answer.At = history.Now()
	answer.Err, _ = classOf(err)
	t.write(answer)
}

func (t *transaction) drafts(n int) []compensator.NewEntry {
	entries := make([]compensator.NewEntry, 0, n)
	businessType := t.businessType()
	for range n {
		if old, ok := t.recent.any(t.rand); ok && t.rand.IntN(50) == 0 {
			entries = append(entries, t.repeatKey(old.content))
			continue
		}
		if len(entries) > 0 && t.rand.IntN(50) == 0 {
			entries = append(entries, t.repeatKey(entries[len(entries)-1]))
			continue
		}
		if t.rand.IntN(3) == 0 {
			businessType = t.businessType()
		}
		entries = append(entries, t.draft(businessType))
	}
	return entries
}

func (p *producer) repeatKey(entry compensator.NewEntry) compensator.NewEntry {
	entry.Delay = 0
	if p.rand.IntN(2) == 0 {
		entry.Content = []byte(`{"key":"another"}`)
	}
	return entry
}

func (p *producer) businessType() string {
	switch n := p.rand.IntN(1000); {
	case n < 200:
		return typePay
	case n < 300:
		return typeBook
	case n < 470:
		return typeShip
	case n < 640:
		return typeMail
	case n < 800:
		return typeRush
	case n < 870:
		return typeClose
	case n < 885:
		return typeSlow
	case n < 998:
		return typeFlaky
	}
	return typeOrphan
}

func (p *producer) draft(businessType string) compensator.NewEntry {
	p.keys++
	j := job{Key: fmt.Sprintf("%s-%d", p.name, p.keys), SleepMS: p.rand.IntN(5), Text: strings.Repeat("é", p.rand.IntN(100))}
	p.plan(&j, businessType)
	if p.killerNext {
		j.Kills, p.killer, p.killerNext = 99, j.Key, false
	}
	content, err := json.Marshal(j)
	must(err)
	entry := compensator.NewEntry{BusinessType: businessType, Content: content, Options: compensator.Options{IdempotencyKey: compensator.IdempotencyKey(j.Key)}}
	if p.rand.IntN(4) == 0 {
		entry.Delay = time.Duration(p.rand.Float64() * p.rand.Float64() * float64(longestDelay)).Round(time.Millisecond)
	}
	if p.rand.IntN(20) == 0 {
		entry.MaxAttempts = 1 + p.rand.IntN(6)
	}
	return entry
}

func (p *producer) plan(j *job, businessType string) {
	if p.cfg.Failing+p.cfg.Poison > 0 {
		p.planMostlyWell(j, businessType)
		return
	}
	j.How = ways[p.rand.IntN(len(ways))]
	j.Evades = p.rand.IntN(50) == 0
	if p.rand.IntN(20) == 0 {
		j.Fails = 1 + p.rand.IntN(5)
	}
	switch businessType {
	case typeClose:
		j.Fails, j.UndoFails = p.rand.IntN(4), p.rand.IntN(3)*p.rand.IntN(3)
		if p.rand.IntN(2) == 0 {
			j.How = failPermanently
		}
	case typeSlow:
		j.SleepMS = 1500 + p.rand.IntN(4000)
	case typeFlaky:
		j.Fails = p.rand.IntN(6)
	}
	if every := p.cfg.KillEvery.Seconds(); every > 0 && p.rand.Float64() < 1/(p.cfg.Rate*every) {
		j.Kills = []int{1, 1, 2, 99}[p.rand.IntN(4)]
	}
}

func (p *producer) planMostlyWell(j *job, businessType string) {
	j.How = ways[p.rand.IntN(len(ways))]
	switch n := p.rand.Float64(); {
	case n < p.cfg.Poison:
		j.Fails = 99
	case n < p.cfg.Poison+p.cfg.Failing:
		j.Fails = 1
	}
	if businessType == typeSlow {
		j.SleepMS, j.How = 500+p.rand.IntN(1000), ""
	}
}

type recorded struct {
	id      compensator.EntryID
	key     string
	content compensator.NewEntry
	before  bool
}

type recent struct {
	mu      sync.Mutex // guards the fields below it
	entries []recorded
	next    int
}

func (r *recent) add(entries ...recorded) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range entries {
		if len(r.entries) < 1000 {
			r.entries = append(r.entries, e)
			continue
		}
		r.entries[r.next%len(r.entries)] = e
		r.next++
	}
}

func (r *recent) any(random *rand.Rand) (recorded, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.entries) == 0 {
		return recorded{}, false
	}
	return r.entries[random.IntN(len(r.entries))], true
}
