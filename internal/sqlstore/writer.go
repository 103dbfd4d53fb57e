package sqlstore

import (
	"context"
	"database/sql"
	"slices"
	"sync"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// writer hands out turns at the one writer of a SQLite file to the transactions of this library in this process. SQLite itself
// lets those who wait poll, at intervals of up to 100 ms: whoever has just come is as likely to be next as whoever has waited
// for seconds.
//
// A turn is advice. Nobody waits for one longer than for a lock, and who has waited in vain asks SQLite all the same. So a handler that
// holds the writer and calls the library on another connection is told that the file is busy, and nothing deadlocks. Transactions of
// other processes, and those that a service begins by itself, take no turns. They poll, so the turns leave the writer free now and then
// for as long as two looks of theirs are apart.
type writer struct {
	mu      sync.Mutex // guards the fields below
	taken   bool
	before  bool // the turn that is taken, or was last, went before others
	urgent  []chan struct{}
	others  []chan struct{}
	since   time.Time // the writer has not been free for a breath since
	freed   time.Time // the last turn ended
	file    string
	holders int // stores of this file; guarded by writers.mu
}

// take waits for a turn, for timeout at most. The first of those that are urgent goes before the others, but never twice in a row. The
// caller calls release once, when its transaction has ended, whether it got a turn or not.
func (w *writer) take(ctx context.Context, urgent bool, timeout time.Duration) (release func(), err error) {
	if mine := w.join(urgent); mine != nil {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		select {
		case <-mine:
		case <-timer.C:
			if w.leave(mine) {
				return func() {}, nil
			}
		case <-ctx.Done():
			if w.leave(mine) {
				return nil, ctx.Err()
			}
		}
	}
	// From here on the turn is ours, also where it came just as the wait ended.
	if err := w.breathe(ctx); err != nil {
		w.next()
		return nil, err
	}
	return sync.OnceFunc(w.next), nil
}

// SQLite looks again after 1, 2, 5, 10, 15, 20, 25, 25, 25, 50, 50 and then every 100 ms. So whoever begins to wait finds the writer free
// within its first looks.
const (
	breathEvery = 100 * time.Millisecond
	breath      = 25 * time.Millisecond
)

// breathe leaves the writer free for a while if it has been in use for long. Whoever has the turn calls it.
func (w *writer) breathe(ctx context.Context) error {
	w.mu.Lock()
	now := time.Now()
	rest := breath - now.Sub(w.freed)
	if rest <= 0 {
		w.since = now
	}
	long := now.Sub(w.since) >= breathEvery
	w.mu.Unlock()
	if !long {
		return ctx.Err()
	}
	timer := time.NewTimer(rest)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since = time.Now()
	return nil
}

// join takes the turn at once and returns nil, or returns what is closed when the turn comes.
func (w *writer) join(urgent bool) chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.taken {
		w.taken, w.before = true, urgent
		return nil
	}
	mine := make(chan struct{})
	if urgent {
		w.urgent = append(w.urgent, mine)
	} else {
		w.others = append(w.others, mine)
	}
	return mine
}

// leave gives up waiting. It reports false for one whose turn has come.
func (w *writer) leave(mine chan struct{}) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, line := range []*[]chan struct{}{&w.urgent, &w.others} {
		if i := slices.Index(*line, mine); i >= 0 {
			*line = slices.Delete(*line, i, i+1)
			return true
		}
	}
	return false
}

// next hands the turn on.
func (w *writer) next() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.freed = time.Now()
	line, urgent := &w.others, false
	if len(w.urgent) > 0 && (!w.before || len(w.others) == 0) {
		line, urgent = &w.urgent, true
	}
	if len(*line) == 0 {
		w.taken = false
		return
	}
	close((*line)[0])
	*line = slices.Delete(*line, 0, 1)
	w.before = urgent
}

// writers are those of the files that are open in this process.
var writers struct {
	mu     sync.Mutex // guards byFile, and holders of each
	byFile map[string]*writer
}

// openWriter returns the writer of a file, which all stores of the file share. A database in memory has no name, and one of its own.
func openWriter(file string) *writer {
	if file == "" {
		return new(writer)
	}
	writers.mu.Lock()
	defer writers.mu.Unlock()
	if writers.byFile == nil {
		writers.byFile = make(map[string]*writer)
	}
	w := writers.byFile[file]
	if w == nil {
		w = &writer{file: file}
		writers.byFile[file] = w
	}
	w.holders++
	return w
}

// close forgets the file once no store has it open.
func (w *writer) close() {
	writers.mu.Lock()
	defer writers.mu.Unlock()
	if w.holders--; w.holders == 0 {
		delete(writers.byFile, w.file)
	}
}

type (
	urgentKey  struct{}
	holdingKey struct{}
)

// urgently marks a statement that stores what has been done: it goes before others at the one writer.
func (s *Store) urgently(ctx context.Context) context.Context {
	if s.writer == nil {
		return ctx
	}
	return context.WithValue(ctx, urgentKey{}, true)
}

// Holding marks the context of work in an open transaction of this store. The transaction has the turn, so other transactions that are
// begun under the context do not wait for it.
func (s *Store) Holding(ctx context.Context) context.Context {
	if s.writer == nil {
		return ctx
	}
	return context.WithValue(ctx, holdingKey{}, s.writer)
}

// turn takes a turn for a transaction that writes.
func (s *Store) turn(ctx context.Context) (release func(), err error) {
	if s.writer == nil || ctx.Value(holdingKey{}) == s.writer {
		return func() {}, nil
	}
	return s.writer.take(ctx, ctx.Value(urgentKey{}) != nil, s.timeout)
}

// writes is the pool for statements of ours that write outside a transaction.
func (s *Store) writes() processlog.Tx {
	if s.writer == nil {
		return s.pool()
	}
	return waitsForWriter{s.pool(), s}
}

// waitsForWriter is a pool whose statements write, each in a turn of its own.
type waitsForWriter struct {
	processlog.Tx
	s *Store
}

// ExecContext runs a statement.
func (t waitsForWriter) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	release, err := t.s.turn(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	return t.Tx.ExecContext(ctx, query, args...)
}
