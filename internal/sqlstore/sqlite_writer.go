package sqlstore

import (
	"context"
	"database/sql"
	"slices"
	"sync"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// A writer lets the library's transactions in this process write to a SQLite file one after the other. SQLite lets only
// one transaction write at a time. Transactions that wait inside SQLite poll the lock, and get it in no fixed order.
//
// A transaction of the library waits for a turn before it writes, but does not need one. If the transaction has waited
// for its lock timeout, it begins without a turn, so that nothing deadlocks.
//
// Other processes take no turns. Transactions that the service begins without the library take no turns, either. To let
// these transactions write, the writer at times gives no turn for 25 ms, the constant breath.
type writer struct {
	mu            sync.Mutex // guards the fields below
	isTaken       bool
	lastWasUrgent bool // whether the last turn that was given went to an urgent caller
	urgentWaiters []chan struct{}
	otherWaiters  []chan struct{}
	busySince     time.Time // last time at which the file had just been free for 25 ms, the constant breath
	freed         time.Time // end of the last turn
	file          string
	holders       int // number of stores that have this file open; guarded by writers.mu
}

// take waits for a turn. If the duration timeout passes first, take returns without a turn and without an error. If ctx
// ends first, take returns the error of ctx. If err is nil, the caller must call release when its transaction has
// ended. Urgent callers get turns before other callers. But after the turn of an urgent caller, a waiting caller that
// is not urgent comes next.
func (w *writer) take(ctx context.Context, urgent bool, timeout time.Duration) (release func(), err error) {
	if ownTurn := w.takeOrQueue(urgent); ownTurn != nil {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		select {
		case <-ownTurn:
		case <-timer.C:
			if w.cancelWait(ownTurn) {
				return func() {}, nil
			}
		case <-ctx.Done():
			if w.cancelWait(ownTurn) {
				return nil, ctx.Err()
			}
		}
	}
	// This call now holds the turn.
	if err := w.pauseIfBusy(ctx); err != nil {
		w.passTurn()
		return nil, err
	}
	return sync.OnceFunc(w.passTurn), nil
}

// A transaction that waits inside SQLite polls after 1, 2, 5, 10, 15, 20, 25, 25, 25, 50, 50 and then every 100 ms. So
// in the first 128 ms it polls at least every 25 ms. Meanwhile, after about 100 ms of use, the writer leaves the file
// free for 25 ms. So one of these polls finds the file free.
const (
	breathEvery = 100 * time.Millisecond
	breath      = 25 * time.Millisecond
)

// The holder of the turn calls pauseIfBusy.
func (w *writer) pauseIfBusy(ctx context.Context) error {
	w.mu.Lock()
	now := time.Now()
	pause := breath - now.Sub(w.freed)
	if pause <= 0 {
		w.busySince = now
	}
	pauseDue := now.Sub(w.busySince) >= breathEvery
	w.mu.Unlock()
	if !pauseDue {
		return ctx.Err()
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busySince = time.Now()
	return nil
}

// takeOrQueue returns nil if it took the turn.
func (w *writer) takeOrQueue(urgent bool) chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.isTaken {
		w.isTaken, w.lastWasUrgent = true, urgent
		return nil
	}
	ownTurn := make(chan struct{})
	if urgent {
		w.urgentWaiters = append(w.urgentWaiters, ownTurn)
	} else {
		w.otherWaiters = append(w.otherWaiters, ownTurn)
	}
	return ownTurn
}

// cancelWait returns false if the turn has come already.
func (w *writer) cancelWait(ownTurn chan struct{}) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, waiters := range []*[]chan struct{}{&w.urgentWaiters, &w.otherWaiters} {
		if i := slices.Index(*waiters, ownTurn); i >= 0 {
			*waiters = slices.Delete(*waiters, i, i+1)
			return true
		}
	}
	return false
}

func (w *writer) passTurn() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.freed = time.Now()
	waiters, urgent := &w.otherWaiters, false
	if len(w.urgentWaiters) > 0 && (!w.lastWasUrgent || len(w.otherWaiters) == 0) {
		waiters, urgent = &w.urgentWaiters, true
	}
	if len(*waiters) == 0 {
		w.isTaken = false
		return
	}
	close((*waiters)[0])
	*waiters = slices.Delete(*waiters, 0, 1)
	w.lastWasUrgent = urgent
}

var writers struct {
	mu     sync.Mutex // guards byFile, and the holders of each writer
	byFile map[string]*writer
}

// openWriter returns the writer that all stores of a file share. A database in memory has no file name and gets its own.
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

func (s *Store) urgently(ctx context.Context) context.Context {
	if s.writer == nil {
		return ctx
	}
	return context.WithValue(ctx, urgentKey{}, true)
}

// Holding returns a context for work inside an open transaction of this store. This transaction already has a turn at
// the writer. A second transaction under this context would wait for that turn to end, so it begins without a turn.
func (s *Store) Holding(ctx context.Context) context.Context {
	if s.writer == nil {
		return ctx
	}
	return context.WithValue(ctx, holdingKey{}, s.writer)
}

// Call release when the transaction has ended.
func (s *Store) awaitTurn(ctx context.Context) (release func(), err error) {
	if s.writer == nil || ctx.Value(holdingKey{}) == s.writer {
		return func() {}, nil
	}
	return s.writer.take(ctx, ctx.Value(urgentKey{}) != nil, s.timeout)
}

func (s *Store) writePool() processlog.Tx {
	if s.writer == nil {
		return s.pool()
	}
	return waitsForWriter{s.pool(), s}
}

type waitsForWriter struct {
	processlog.Tx
	s *Store
}

func (t waitsForWriter) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	release, err := t.s.awaitTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	return t.Tx.ExecContext(ctx, query, args...)
}
