//go:build failpoints

package crashmatrix

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
)

const victimEnv = "COMPENSATOR_CRASH_VICTIM"

type victim struct {
	Number int
	In     surroundings
	Place  place

	p     *process
	keys  int
	mu    sync.Mutex // guards ended
	ended chan struct{}
}

func runVictim(text string) error {
	l := &victim{ended: make(chan struct{})}
	if err := json.Unmarshal([]byte(text), l); err != nil {
		return err
	}
	go func() {
		for in := bufio.NewReader(os.Stdin); ; {
			if _, err := in.ReadByte(); err != nil {
				os.Exit(3) // The test process has ended or closed the pipe.
			}
		}
	}()
	ctx := context.Background()
	if l.In == unmade {
		db, err := sql.Open("mysql", l.Place.DSN)
		if err != nil {
			return err
		}
		return errors.Join(compensator.Migrate(ctx, db), errors.New("the tables were created without reaching the point"))
	}
	if l.In == noRedis {
		l.Place.Redis = "127.0.0.1:1"
	}
	var err error
	if l.p, err = newProcess(ctx, l.Place, l.In); err != nil {
		return err
	}
	return l.runProgram(ctx)
}

func (l *victim) runProgram(ctx context.Context) error {
	if l.In == streamed {
		return l.p.intake.Run(ctx)
	}
	if l.In == adopting {
		return l.p.adopted.Run(ctx)
	}
	if l.In == recorders {
		return l.serve(ctx, l.recordInTx, l.recordWatched, l.recordBatch)
	}
	steps := []func(context.Context) error{l.recordAgain, l.recordInTx, l.recordWatched, l.recordPlain, l.recordSilently, l.recordBatch,
		l.recordAndTakeBack, l.recordAcrossStop, l.actOnLater, l.actManually, l.purge}
	if l.In == inLine {
		steps = append([]func(context.Context) error{l.recordOrdering}, steps...)
	}
	if l.In == listed {
		return l.runAndClose(ctx, l.recordInTx, l.recordWatched, l.recordBatch)
	}
	problems := make(chan error, 2)
	go func() { problems <- l.runRepeatedly(ctx) }()
	go func() { problems <- l.serve(ctx, steps...) }()
	return <-problems
}

// runAndClose runs a victim whose failpoint is in Compensator.Close. So the process is killed before Close returns.
func (l *victim) runAndClose(ctx context.Context, steps ...func(context.Context) error) error {
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	running, stop := context.WithTimeout(ctx, 200*time.Millisecond+rand.N(400*time.Millisecond))
	defer stop()
	return errors.Join(l.p.Run(running), l.p.Compensator.Close())
}

func (l *victim) runRepeatedly(ctx context.Context) error {
	longest := 600 * time.Millisecond
	if l.In == keeping || l.In == counting {
		// Give Run enough time to purge entries or to fold statistics. After a stop, the rest would wait for the next
		// round, which comes minutes later.
		longest = 10 * time.Second
	}
	for {
		running, stop := context.WithTimeout(ctx, longest/3+rand.N(2*longest/3))
		err := l.p.Run(running)
		stop()
		l.mu.Lock()
		close(l.ended)
		l.ended = make(chan struct{})
		l.mu.Unlock()
		if err != nil {
			return fmt.Errorf("run: %w", err)
		}
		<-time.After(20 * time.Millisecond)
	}
}

func (l *victim) runEnded() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

func (l *victim) serve(ctx context.Context, steps ...func(context.Context) error) error {
	for round := 0; ; round++ {
		for _, step := range steps {
			if err := step(ctx); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
		}
		pause := 20 * time.Millisecond
		if round > 5 {
			pause = 300 * time.Millisecond
		}
		<-time.After(pause)
	}
}

func (l *victim) key() string {
	l.keys++
	return fmt.Sprintf("%d-%d", l.Number, l.keys)
}

// If the entry exists already, put changes nothing.
func (l *victim) put(ctx context.Context, tx compensator.Tx, kind, key string, delay time.Duration) (*compensator.Receipt, error) {
	receipt, err := l.p.of[kind].Record(ctx, tx, content{}, compensator.Options{IdempotencyKey: compensator.IdempotencyKey(key), Delay: delay})
	if err != nil || receipt.Duplicate() {
		return receipt, err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO ledger VALUES (?)", key)
	return receipt, err
}

func (l *victim) recordInTx(ctx context.Context) error {
	return l.p.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		for _, kind := range []string{pay, ship, wire} {
			if _, err := l.put(ctx, tx, kind, l.key(), 0); err != nil {
				return err
			}
		}
		return nil
	})
}

// recordAgain records a key of the previous victim a second time. If the key's entry has another kind, the error names
// the kind of that entry. recordAgain then records the key with the kind from the error.
func (l *victim) recordAgain(ctx context.Context) error {
	key := fmt.Sprintf("%d-%d", l.Number-1, 1+rand.N(40))
	as := func(kind string) error {
		return l.p.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
			_, err := l.put(ctx, tx, kind, key, 0)
			return err
		})
	}
	err := as(pay)
	var other *compensator.OtherTypeError
	if errors.As(err, &other) {
		return as(other.Recorded)
	}
	return err
}

func (l *victim) recordWatched(ctx context.Context) error {
	recorded := []string{slow, fail, refund}
	if rand.N(3) == 0 {
		recorded = append(recorded, recall)
	}
	return inTx(ctx, l.p.watched, func(tx *sql.Tx) error {
		for _, kind := range recorded {
			if _, err := l.put(ctx, tx, kind, l.key(), 0); err != nil {
				return err
			}
		}
		return nil
	})
}

func (l *victim) recordPlain(ctx context.Context) error {
	var receipts []*compensator.Receipt
	err := inTx(ctx, l.p.plain, func(tx *sql.Tx) error {
		for kind, delay := range map[string]time.Duration{ship: 0, hand: 0, later: 30 * time.Millisecond} {
			receipt, err := l.put(ctx, tx, kind, l.key(), delay)
			if err != nil {
				return err
			}
			receipts = append(receipts, receipt)
		}
		return nil
	})
	if err == nil {
		for _, receipt := range receipts {
			receipt.Committed()
		}
	}
	return err
}

// The reconciler must find an entry whose commit is not reported.
func (l *victim) recordSilently(ctx context.Context) error {
	return inTx(ctx, l.p.plain, func(tx *sql.Tx) error {
		_, err := l.put(ctx, tx, ship, l.key(), 0)
		return err
	})
}

func (l *victim) recordBatch(ctx context.Context) error {
	return l.p.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		var entries []compensator.NewEntry
		add := func(kind string, c content, opts compensator.Options) error {
			entry := l.p.of[kind].Entry(c, opts)
			entries = append(entries, entry)
			_, err := tx.ExecContext(ctx, "INSERT INTO ledger VALUES (?)", entry.IdempotencyKey)
			return err
		}
		batch := "batch-" + l.key()
		for i := range batchSize {
			delay := time.Duration(0)
			if i > 1 {
				delay = 50 * time.Millisecond
			}
			if err := add(mail, content{Breaks: i == 3}, compensator.Options{IdempotencyKey: compensator.IdempotencyKey(l.key()), BatchID: batch, Delay: delay}); err != nil {
				return err
			}
		}
		if err := add(sum, content{}, compensator.Options{IdempotencyKey: compensator.IdempotencyKey(l.key()), BusinessID: batch}); err != nil {
			return err
		}
		_, err := l.p.Record(ctx, tx, entries...)
		return err
	})
}

func (l *victim) recordOrdering(ctx context.Context) error {
	record := func(tx compensator.Tx, lines ...string) (key string, err error) {
		var entries []compensator.NewEntry
		for _, line := range lines {
			entry := l.p.of[book].Entry(content{}, compensator.Options{IdempotencyKey: compensator.IdempotencyKey(l.key()), BusinessID: line})
			entries = append(entries, entry)
			if _, err := tx.ExecContext(ctx, "INSERT INTO ledger VALUES (?)", entry.IdempotencyKey); err != nil {
				return "", err
			}
		}
		_, err = l.p.Record(ctx, tx, entries...)
		return string(entries[0].IdempotencyKey), err
	}
	err := l.p.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := record(tx, "a", "b", "a", "b", "a")
		return err
	})
	silently := inTx(ctx, l.p.plain, func(tx *sql.Tx) error {
		_, err := record(tx, "b")
		return err
	})
	// Plain SQL records an entry with an ordering key, but stores no position under the key. The first claim of the entry
	// stores the position, and releases the entry.
	plain := inTx(ctx, l.p.plain, func(tx *sql.Tx) error {
		for _, line := range []string{"a", "b"} {
			key := l.key() + unnoted
			_, err := tx.ExecContext(ctx, "INSERT INTO common_process_log (idempotent_id, business_type, business_id, content, next_at, created_at, updated_at) VALUES (?,?,?,'{}',1,UTC_TIMESTAMP(3),UTC_TIMESTAMP(3))", key, book, line)
			if err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, "INSERT INTO ledger VALUES (?)", key); err != nil {
				return err
			}
		}
		return nil
	})
	var key string
	watched := inTx(ctx, l.p.watched, func(tx *sql.Tx) (err error) {
		key, err = record(tx, "a")
		return err
	})
	if err := errors.Join(err, silently, plain, watched); err != nil {
		return err
	}
	_, err = l.p.Cancel(ctx, compensator.IdempotencyKey(key))
	return unlessLate(err)
}

var errTakenBack = errors.New("taken back")

func (l *victim) recordAndTakeBack(ctx context.Context) error {
	err := l.p.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := l.put(ctx, tx, pay, l.key(), 0)
		return errors.Join(err, errTakenBack)
	})
	if !errors.Is(err, errTakenBack) || errors.Is(err, compensator.ErrNoTransaction) {
		return err
	}
	return inTx(ctx, l.p.watched, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "SAVEPOINT s"); err != nil {
			return err
		}
		if _, err := l.put(ctx, tx, pay, l.key(), 0); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT s")
		return err
	})
}

// recordAcrossStop commits after the end of the Run that should have run the entry.
func (l *victim) recordAcrossStop(ctx context.Context) error {
	ended := l.runEnded()
	key := l.key()
	go func() {
		_ = l.p.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
			_, err := l.put(ctx, tx, ship, key, 0)
			<-ended
			return err
		})
	}()
	return nil
}

func (l *victim) actOnLater(ctx context.Context) error {
	keys := []string{l.key(), l.key(), l.key()}
	err := inTx(ctx, l.p.watched, func(tx *sql.Tx) error {
		for _, key := range keys {
			if _, err := l.put(ctx, tx, later, key, 80*time.Millisecond); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	_, cancelled := l.p.Cancel(ctx, compensator.IdempotencyKey(keys[0]))
	moved := l.p.Reschedule(ctx, compensator.IdempotencyKey(keys[1]), 200*time.Millisecond)
	completed := l.p.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := l.p.CompleteTx(ctx, tx, compensator.IdempotencyKey(keys[2]))
		return err
	})
	return errors.Join(unlessLate(cancelled), unlessLate(moved), unlessLate(completed))
}

const purgeAge = 30 * time.Minute

func (l *victim) purge(ctx context.Context) error {
	if l.In == keeping {
		return nil
	}
	_, err := admin.Of(l.p.Compensator).Purge(ctx, purgeAge)
	return err
}

func inTx(ctx context.Context, db *sql.DB, work func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := work(tx); err != nil {
		return err
	}
	return tx.Commit()
}
