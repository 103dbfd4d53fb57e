package intake

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest/memory"
	"github.com/compensator-go/compensator/processlog"
)

var (
	simSeeds = flag.Int("sim-seeds", 200, "how many seeds TestNoSeedLosesOrDoublesAMessage lives")
	simFrom  = flag.Uint64("sim-from", 1, "the first of them")
)

// Two intakes restart many times. The clock moves only when every goroutine waits. The seed determines the messages,
// the duration of each step, and its faults.
// Failure: F96
func TestNoSeedLosesOrDoublesAMessage(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // One goroutine runs at a time, so a second thread would only cost time.
	var sum simTally
	for seed := *simFrom; seed < *simFrom+uint64(*simSeeds); seed++ {
		synctest.Test(t, func(t *testing.T) {
			w := newSimWorld(seed)
			w.run()
			for _, wrong := range w.wrong {
				t.Errorf("seed %d: %s", seed, wrong)
			}
			sum.add(w.tally)
		})
	}
	t.Logf("%d seeds: %+v", *simSeeds, sum)
	if *simSeeds >= 200 {
		assert.NotContains(t, strings.Trim(fmt.Sprintf("%+v", sum), "{}")+" ", ":0 ", "vacuous: something never came up")
	}
}

type simTally struct {
	Messages, Steps, Faults, Deaths, UnknownDone, UnknownNot, UnknownLate, Aside, Dead int
}

func (s *simTally) add(o simTally) {
	s.Messages += o.Messages
	s.Steps += o.Steps
	s.Faults += o.Faults
	s.Deaths += o.Deaths
	s.UnknownDone += o.UnknownDone
	s.UnknownNot += o.UnknownNot
	s.UnknownLate += o.UnknownLate
	s.Aside += o.Aside
	s.Dead += o.Dead
}

// simWorld survives each simulated restart of the process.
type simWorld struct {
	seed   uint64
	store  *memory.Store
	stream *simStream
	rate   float64
	ids    map[string]string

	mu     sync.Mutex     // guards the fields below
	rows   map[string]int // by message
	healed bool
	wrong  []string
	tally  simTally
}

// A kind that occurs more often is drawn more often.
var simKinds = strings.Fields("good good good good good good good good good failing failing named hopeless poison slow killer")

func newSimWorld(seed uint64) *simWorld {
	w := &simWorld{seed: seed, store: memory.NewStore(), rows: make(map[string]int), ids: make(map[string]string)}
	w.stream = newSimStream(w.acked)
	return w
}

func (w *simWorld) note(what func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	what()
}

func (w *simWorld) fail(format string, args ...any) {
	w.note(func() { w.wrong = append(w.wrong, fmt.Sprintf(format, args...)) })
}

func (w *simWorld) entries() map[string]processlog.Row {
	entries := make(map[string]processlog.Row)
	for _, row := range w.store.Rows() {
		entries[string(row.IdempotencyKey)] = row
	}
	return entries
}

const simName = "orders:shop"

func (w *simWorld) acked(id string) {
	if _, found := w.entries()[string(idempotencyKey(simName, id))]; !found {
		w.fail("message %s was acknowledged, but is not in the log", id)
	}
}

func (w *simWorld) committed(messages []string) {
	w.note(func() {
		for _, id := range messages {
			if w.rows[id]++; w.rows[id] > 1 {
				w.wrong = append(w.wrong, fmt.Sprintf("message %s has %d rows", id, w.rows[id]))
			}
		}
	})
}

// run simulates one minute with faults, then without faults until everything is idle.
func (w *simWorld) run() {
	rng := rand.New(rand.NewPCG(w.seed, 0))
	w.rate = []float64{0.01, 0.05, 0.15}[rng.IntN(3)]
	ctx, stop := context.WithCancel(context.Background())
	var lives sync.WaitGroup
	for slot := range 2 {
		lives.Go(func() { w.succession(ctx, slot) })
	}
	for range 10 + rng.IntN(60) {
		time.Sleep(time.Duration(rng.Int64N(int64(time.Second))))
		says := simKinds[rng.IntN(len(simKinds))]
		w.ids[w.stream.add(says)] = says
	}
	w.note(func() { w.healed = true })
	if !within(time.Hour, w.stream.atRest) {
		w.fail("after an hour without problems messages are left")
	}
	stop()
	lives.Wait()
	w.workOff()
	w.judge()
}

func within(d time.Duration, check func() bool) bool {
	for deadline := time.Now().Add(d); time.Now().Before(deadline); time.Sleep(time.Second) {
		if check() {
			return true
		}
	}
	return false
}

func (w *simWorld) workOff() {
	l := &simLife{w: w}
	c, _ := l.open("")
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	ends := func() bool {
		for _, e := range w.entries() {
			if e.BusinessType == simAside && !e.State.Terminal() {
				return false
			}
		}
		return true
	}
	if !within(time.Hour, ends) {
		w.fail("messages set aside do not end")
	}
	stop()
	if err := errors.Join(<-ended, c.Close()); err != nil {
		w.fail("the log: %v", err)
	}
}

func (w *simWorld) judge() {
	entries, worked := w.entries(), 0
	for id, says := range w.ids {
		e, found := entries[string(idempotencyKey(simName, id))]
		good := says != "hopeless" && says != "poison" && says != "killer"
		switch {
		case !found:
			w.fail("%s message %s has no entry", says, id)
			continue
		case e.BusinessType == simAside:
			w.tally.Aside++
		}
		if e.State == compensator.Dead {
			w.tally.Dead++
			// With this text, the message is dead because too many processes died during the work on it. So it is not
			// good.
			good = good && !strings.Contains(e.LastError, "without success")
		} else if !good {
			w.fail("%s message %s is %s", says, id, e.State)
		}
		want := 0
		if good {
			want = 1
			worked++
		}
		if w.rows[id] != want {
			w.fail("%s message %s has %d rows, want %d", says, id, w.rows[id], want)
		}
	}
	w.tally.Messages += len(w.ids)
	if n := len(entries) - w.tally.Aside; n != worked {
		w.fail("%d entries of messages, want %d", n, worked)
	}
}

/* ==== lives ==== */

const simAside = "order_aside"

var errDead = errors.New("sim: this process has died")

// After the death of a simLife its goroutines continue to their end, but their steps have no effect.
type simLife struct {
	w    *simWorld
	rng  *rand.Rand // nil if no step fails or takes time
	stop context.CancelFunc
	dead bool // guarded by w.mu
}

func (w *simWorld) succession(ctx context.Context, slot int) {
	for number := uint64(slot); ctx.Err() == nil; number += 2 {
		time.Sleep(time.Duration(slot+1) * time.Microsecond)
		running, stop := context.WithCancel(ctx)
		l := &simLife{w: w, rng: rand.New(rand.NewPCG(w.seed, 1+number)), stop: stop}
		name := "" // an empty name makes the Intake generate a name
		if l.rng.IntN(2) == 0 {
			name = fmt.Sprint("clerk", slot)
		}
		c, in := l.open(name)
		err := in.Run(running)
		stop()
		if err := errors.Join(err, c.Close()); err != nil && !l.isDead() {
			w.fail("Run: %v", err)
		}
		time.Sleep(time.Duration(1 + l.rng.Int64N(int64(2*time.Second))))
	}
}

func (l *simLife) open(name string) (*compensator.Compensator, *Intake) {
	quiet := slog.New(slog.DiscardHandler)
	c, err := compensator.New(context.Background(), compensator.Config{Store: &simStore{l.w.store, l}, Logger: quiet})
	if err == nil {
		var in *Intake
		in, err = Stream{
			Redis: &simRedis{simLife: l}, Stream: "orders", Group: "shop", Consumer: name, Block: 100 * time.Millisecond, Idle: 20 * time.Second,
		}.Open(context.Background(), c, Config{
			Type: simAside, Entry: l.entry, Work: l.work, Batch: 8, Timeout: 10 * time.Second, StopTimeout: 5 * time.Second, Logger: quiet,
			Aside: compensator.HandlerConfig[Message]{Retry: compensator.Fixed(time.Second)},
		})
		if err == nil {
			return c, in
		}
	}
	panic(err)
}

func (l *simLife) entry(m *Message) (compensator.NewEntry, error) {
	if m.Fields["says"] == "poison" {
		return compensator.NewEntry{}, errTest
	}
	return compensator.NewEntry{BusinessType: "take_order", Content: []byte("{}"), Options: compensator.Options{Delay: time.Hour}}, nil
}

func (l *simLife) work(ctx context.Context, tx *compensator.ScopedTx, batch []*Message) error {
	for _, m := range batch {
		if _, err := tx.ExecContext(ctx, simInsert, m.ID); err != nil {
			return err
		}
		says, first := m.Fields["says"], m.Entry == nil
		switch {
		case says == "failing" && first:
			return errTest
		case says == "named" && first:
			return Fault(m, errTest)
		case says == "hopeless", says == "killer" && !first: // The log dead-letters messages that kill its processes.
			return compensator.Permanent(errTest)
		case says == "slow" && len(batch) > 1:
			<-ctx.Done()
			return ctx.Err()
		case says == "killer":
			l.die()
			return errDead
		}
	}
	return nil
}

func (l *simLife) die() {
	l.w.note(func() {
		if !l.dead {
			l.dead = true
			l.w.tally.Deaths++
		}
	})
	l.stop()
}

func (l *simLife) isDead() (dead bool) {
	l.w.note(func() { dead = l.dead })
	return dead
}

func (l *simLife) sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

/* ==== steps ==== */

type simFault int

const (
	fine simFault = iota
	errBefore
	errAfter // the step is done, and its caller gets an error
	late     // only for COMMIT: the step is done after the caller got an error
	slowly
	dieBefore
	dieAfter
	aborted // the server has rolled the transaction back
)

var (
	faultsOfCommands   = []simFault{errBefore, errAfter, slowly, dieBefore, dieAfter}
	faultsOfReads      = []simFault{errBefore, slowly, dieBefore}
	faultsOfStatements = []simFault{errBefore, errAfter, slowly, dieBefore, dieAfter, aborted}
	faultsOfCommits    = []simFault{errBefore, errAfter, late, slowly, dieBefore, dieAfter}
)

var errBroken = errors.New("sim: connection broken")

func (l *simLife) draw(ctx context.Context, faults []simFault) (fault simFault, err error) {
	if l.rng == nil {
		return fine, ctx.Err()
	}
	took, hit, which := time.Duration(l.rng.Int64N(int64(2*time.Millisecond))), l.rng.Float64(), l.rng.IntN(len(faults))
	l.w.note(func() {
		l.w.tally.Steps++
		if hit < l.w.rate && !l.w.healed {
			fault = faults[which]
			l.w.tally.Faults++
		}
	})
	if (fault == dieBefore || fault == dieAfter) && l.rng.IntN(3) > 0 {
		fault = errBefore
	}
	if fault == slowly {
		took += time.Duration(l.rng.Int64N(int64(15 * time.Second)))
	}
	l.sleep(ctx, took)
	if fault == dieBefore {
		l.die()
	}
	if l.isDead() {
		return fault, errDead
	}
	return fault, ctx.Err()
}

// A process that waited for a lock and the process that held it continue in a random order.
func (l *simLife) reply(ctx context.Context) {
	if l.rng != nil {
		l.sleep(ctx, time.Duration(1+l.rng.Int64N(int64(time.Millisecond))))
	}
}

// The method step calls the function do, unless a fault prevents the call. After some faults, the caller does not know
// whether the function do has run.
func (l *simLife) step(ctx context.Context, faults []simFault, do func() error) error {
	fault, err := l.draw(ctx, faults)
	if err != nil {
		return err
	}
	if fault == errBefore {
		return errBroken
	}
	err = do()
	l.reply(ctx)
	switch fault {
	case errAfter:
		return errBroken
	case dieAfter:
		l.die()
		return errDead
	}
	return err
}

type simStore struct {
	*memory.Store
	l *simLife
}

func (s *simStore) Begin(ctx context.Context) (processlog.Transaction, error) {
	tx := &simTx{l: s.l}
	err := s.l.step(ctx, faultsOfReads, func() (err error) {
		tx.Tx, err = s.BeginTx(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return tx, nil
}

func (s *simStore) Insert(ctx context.Context, tx processlog.Tx, drafts []processlog.Draft, proven bool) (answers []processlog.Inserted, err error) {
	err = simTxOf(tx).statement(ctx, func() error {
		answers, err = s.Store.Insert(ctx, tx, drafts, proven)
		return err
	})
	return answers, err
}

func (s *simStore) Resolve(ctx context.Context, ref processlog.Ref) (row processlog.Row, err error) {
	err = s.l.step(ctx, faultsOfReads, func() error {
		row, err = s.Store.Resolve(ctx, ref)
		return err
	})
	return row, err
}

// simTx is a transaction that holds entries, and in the field rows the business rows that Config.Work has inserted.
type simTx struct {
	*memory.Tx
	l      *simLife
	broken bool
	rows   []string
}

const simInsert = "INSERT INTO effects"

type simTxKey struct{}

func simTxOf(tx processlog.Tx) (found *simTx) {
	_, _ = tx.ExecContext(context.WithValue(context.Background(), simTxKey{}, &found), "")
	return found
}

func (tx *simTx) ExecContext(ctx context.Context, query string, values ...any) (sql.Result, error) {
	if found, asked := ctx.Value(simTxKey{}).(**simTx); asked {
		*found = tx
		return nil, nil
	}
	if query != simInsert {
		return tx.Tx.ExecContext(ctx, query, values...)
	}
	return nil, tx.statement(ctx, func() error {
		tx.rows = append(tx.rows, values[0].(string))
		return nil
	})
}

// An error that does not come from the server breaks the connection.
func (tx *simTx) statement(ctx context.Context, do func() error) error {
	if tx.broken {
		return driver.ErrBadConn
	}
	fault, err := tx.l.draw(ctx, faultsOfStatements)
	if err == nil && fault == aborted {
		tx.Abort()
		return fmt.Errorf("%w: deadlock", compensator.ErrTxAborted)
	}
	if err == nil && fault != errBefore {
		err = do()
		tx.l.reply(ctx)
		if err == nil && fault != errAfter && fault != dieAfter {
			return nil
		}
	}
	if fault == dieAfter {
		tx.l.die()
	}
	tx.broken = true
	return errors.Join(errBroken, err)
}

func (tx *simTx) Commit() error {
	if tx.broken {
		_ = tx.Rollback()
		return driver.ErrBadConn
	}
	fault, err := tx.l.draw(context.Background(), faultsOfCommits)
	switch {
	case fault == late && err == nil:
		after := time.Duration(tx.l.rng.Int64N(int64(3 * time.Second)))
		go func() {
			time.Sleep(after)
			if tx.apply() == nil {
				tx.l.w.note(func() { tx.l.w.tally.UnknownLate++ })
			}
		}()
		return errBroken
	case err != nil || fault == errBefore:
		tx.l.w.note(func() { tx.l.w.tally.UnknownNot++ })
		_ = tx.Rollback()
		return errors.Join(errBroken, err)
	}
	if err := tx.apply(); err != nil {
		return err
	}
	switch fault {
	case errAfter:
		tx.l.w.note(func() { tx.l.w.tally.UnknownDone++ })
		return errBroken
	case dieAfter:
		tx.l.die()
		return errDead
	}
	return nil
}

func (tx *simTx) apply() error {
	err := tx.Tx.Commit()
	if err == nil {
		tx.l.w.committed(tx.rows)
	}
	return err
}

func TestSeedIsLivedTheSameWayAgain(t *testing.T) {
	lived := func(seed uint64) (tally simTally) {
		synctest.Test(t, func(t *testing.T) {
			w := newSimWorld(seed)
			w.run()
			tally = w.tally
		})
		return tally
	}
	for seed := uint64(1); seed <= 20; seed++ {
		require.Equal(t, lived(seed), lived(seed), "seed %d", seed)
	}
}
