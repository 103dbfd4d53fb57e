package memory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// These constants limit how long a statement waits for a row that a transaction holds.
const (
	lockWait    = 2 * time.Second // for a statement without a caller's transaction
	resolveWait = 10 * time.Second
	txLockWait  = 50 * time.Second // for a statement in a caller's transaction. This is the default of innodb_lock_wait_timeout
)

// ErrLockWait reports that a statement in a caller's transaction waited 50 seconds for a row. The transaction stays
// open.
var ErrLockWait = errors.New("compensatortest/memory: lock wait timeout exceeded")

// Store is a processlog.Store that keeps its rows in this process. Use it in unit tests of code that records entries.
// In a testing/synctest bubble it uses the bubble's clock.
//
// A Store behaves like InnoDB at READ COMMITTED. A Store passes suite.TestStore.
//
// Nothing survives the process. All methods may be called concurrently.
type Store struct {
	name string

	mu            sync.Mutex // guards the fields below it, every storedRow and every Tx; never held while waiting
	rows          map[processlog.ID]*storedRow
	sortedRows    []*storedRow                             // by ascending id
	keys          map[processlog.IdempotencyKey]*storedRow // includes rows that are not committed
	lastID        uint64                                   // highest id so far. A rolled-back insert uses up its id, as with AUTO_INCREMENT
	lastCommitted uint64                                   // highest id ever committed, as a replica knows it
	audit         map[processlog.ID][]processlog.AuditRecord
	marks         map[string]*typeMark
	ordering      map[orderingKey]noteSet
	ops           operations
	limits        map[limitKey]limitRow
	openTxs       []*Tx
	watch         func(before, after processlog.Row)
	clockShift    time.Duration // added to this process's clock
	refusals      map[processlog.ID]error
}

var _ processlog.Store = (*Store)(nil)

var stores atomic.Int64

// NewStore returns an empty store.
func NewStore() *Store {
	return &Store{
		name:     fmt.Sprintf("memory-%d", stores.Add(1)),
		rows:     make(map[processlog.ID]*storedRow),
		keys:     make(map[processlog.IdempotencyKey]*storedRow),
		audit:    make(map[processlog.ID][]processlog.AuditRecord),
		marks:    make(map[string]*typeMark),
		ordering: make(map[orderingKey]noteSet),
		ops:      newOperations(),
		limits:   make(map[limitKey]limitRow),
		watch:    func(processlog.Row, processlog.Row) {},
	}
}

// Watch makes the store call fn for every committed transition from now on, in commit order. Each version of a row
// follows the version before it. The parameter before is zero for an insert, and the parameter after is zero for a
// purge. Both have their Faults and Results. A renewal of a lease is not a transition. The store calls fn while it
// holds its lock, so fn must not call the store.
func (s *Store) Watch(fn func(before, after processlog.Row)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watch = fn
}

// Rows returns every committed row, by ascending id.
func (s *Store) Rows() []processlog.Row {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.nowLocked()
	versions := s.committedLocked()
	rows := make([]processlog.Row, 0, len(versions))
	for _, version := range versions {
		rows = append(rows, version.row(now))
	}
	return rows
}

// Crash ends every open transaction as a server crash does. The transaction's writes are lost, and its Commit returns a
// connection error. Committed rows stay.
func (s *Store) Crash() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, tx := range slices.Clone(s.openTxs) {
		tx.undoLocked(0)
		tx.endLocked(endCrashed)
	}
}

// StoreState is the committed content of a Store at one moment.
type StoreState struct {
	versions []*version // committed versions never change
	lastID   uint64
	audit    map[processlog.ID][]processlog.AuditRecord
	marks    map[string]int64
	ordering map[orderingKey]noteSet
	ops      operations
	limits   map[limitKey]limitRow
}

// Snapshot returns the committed content of the store, as a replica would have it.
func (s *Store) Snapshot() StoreState {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The audit log only appends records to the list of an entry. So a copy of the map is enough, without copies of the
	// lists.
	return StoreState{s.committedLocked(), s.lastCommitted, maps.Clone(s.audit), s.marksLocked(), cloneOrdering(s.ordering), s.ops.clone(), maps.Clone(s.limits)}
}

// Restore sets the store back to a snapshot, as if a lagging replica had been promoted. Open transactions end as in
// Crash. Everything committed since the snapshot is lost. The store gives out again the ids of entries that were
// inserted since then. Restore does not call the function of Watch.
func (s *Store) Restore(state StoreState) {
	s.Crash()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows, s.keys, s.sortedRows = make(map[processlog.ID]*storedRow), make(map[processlog.IdempotencyKey]*storedRow), nil
	for _, v := range state.versions {
		s.addLocked(&storedRow{id: v.entry.ID, key: v.entry.IdempotencyKey, committed: v})
	}
	s.lastID, s.lastCommitted, s.audit = state.lastID, state.lastID, maps.Clone(state.audit)
	s.ordering = cloneOrdering(state.ordering)
	s.ops = state.ops.clone()
	s.limits = maps.Clone(state.limits)
	s.marks = make(map[string]*typeMark, len(state.marks))
	for businessType, at := range state.marks {
		s.marks[businessType] = &typeMark{at: at}
	}
}

// ShiftClock moves the store's clock by d. A negative d moves it back. Stored leases and due times do not change, as in
// a database whose clock is set.
func (s *Store) ShiftClock(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clockShift += d
}

// Now returns the time of the store's clock.
func (s *Store) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return millisToTime(s.nowLocked())
}

// nowLocked returns unix ms.
func (s *Store) nowLocked() int64 { return time.Now().Add(s.clockShift).UnixMilli() }

// Check implements processlog.Store. It returns an error only when ctx has ended.
func (s *Store) Check(ctx context.Context) error { return ctx.Err() }

// Fingerprint implements processlog.Store. Each Store has a fingerprint that is unique in this process.
func (s *Store) Fingerprint(ctx context.Context) (string, error) { return s.name, ctx.Err() }

// Close implements processlog.Store. It keeps the rows, so that a test can read them afterwards.
func (s *Store) Close() error { return nil }

func (s *Store) committedLocked() []*version {
	return s.matchingLocked(func(*version) bool { return true })
}

func (s *Store) matchingLocked(match func(*version) bool) []*version { return s.seenLocked(nil, match) }

// seenLocked returns the versions that tx sees and that match, by ascending id. If tx holds a row, tx sees its own
// uncommitted version of the row. For a nil tx, seenLocked returns committed versions.
func (s *Store) seenLocked(tx *Tx, match func(*version) bool) []*version {
	var versions []*version
	for _, row := range s.sortedRows {
		if seen := row.seenBy(tx); seen != nil && match(seen) {
			versions = append(versions, seen)
		}
	}
	return versions
}

// addLocked needs an id that is higher than every id in the store.
func (s *Store) addLocked(row *storedRow) {
	s.rows[row.id], s.keys[row.key] = row, row
	s.sortedRows = append(s.sortedRows, row)
}

// writeLocked stores the next version of a row. With a nil tx, the version is committed at once. Otherwise it is
// committed together with tx. The row must be free for tx. writeLocked panics if the number of the version does not
// follow the number before.
func (s *Store) writeLocked(tx *Tx, row *storedRow, next *version, audit *processlog.AuditRecord) {
	step := rowStep{row: row, before: row.seenBy(tx), after: next, audit: audit}
	step.requireSuccessor()
	if tx == nil {
		s.publishLocked(step)
		return
	}
	tx.holdLocked(row)
	row.current = next
	tx.steps = append(tx.steps, step)
}

func (s *Store) publishLocked(step rowStep) {
	now := s.nowLocked()
	step.row.committed = step.after
	if step.after != nil {
		s.lastCommitted = max(s.lastCommitted, step.row.id.Row())
	}
	if step.before != nil && step.after != nil && step.after.entry.Erased && !step.before.entry.Erased {
		for i, record := range s.audit[step.row.id] {
			s.audit[step.row.id][i] = record.Erased()
		}
	}
	if after := step.after; after != nil && after.entry.Erased && after.entry.State != processlog.Dead {
		s.leaveKeyLocked(after.entry.BusinessType, step.row.id)
	}
	if step.audit != nil {
		s.audit[step.row.id] = append(s.audit[step.row.id], *step.audit)
	}
	s.watch(step.before.fullRow(now), step.after.fullRow(now))
}

func (s *Store) removeLocked(row *storedRow) {
	delete(s.rows, row.id)
	delete(s.keys, row.key)
	at, _ := slices.BinarySearchFunc(s.sortedRows, row.id, func(row *storedRow, id processlog.ID) int { return row.id.Compare(id) })
	s.sortedRows = slices.Delete(s.sortedRows, at, at+1)
}

// freeLocked finds the row again after each wait, and returns nil when there is none. It rolls tx back when the wait
// would be a deadlock, as a server does.
func (s *Store) freeLocked(ctx context.Context, tx *Tx, find func() *storedRow) (*storedRow, error) {
	return s.untilLocked(ctx, tx, find, (*storedRow).freeFor)
}

func (s *Store) untilLocked(ctx context.Context, tx *Tx, find func() *storedRow, free func(*storedRow, *Tx) bool) (*storedRow, error) {
	for {
		row := find()
		if row == nil || free(row, tx) {
			return row, nil
		}
		if err := s.awaitLocked(ctx, tx, row); err != nil {
			return nil, err
		}
	}
}

// awaitLocked unlocks the store while it waits for a release of row, or for the end of tx or ctx.
func (s *Store) awaitLocked(ctx context.Context, tx *Tx, row *storedRow) error {
	if tx != nil && row.waitsFor(tx) {
		tx.undoLocked(0)
		tx.endLocked(endAborted)
		return processlog.ErrTxAborted
	}
	rowFreed, waitEnded := row.nextRelease(), tx.waitLocked(row)
	s.mu.Unlock()
	var err error
	select {
	case <-rowFreed:
	case <-waitEnded:
	case <-ctx.Done():
		if err = ctx.Err(); isLockWait(context.Cause(ctx)) {
			err = context.Cause(ctx)
		}
	}
	s.mu.Lock()
	tx.waitLocked(nil)
	if err == nil {
		return tx.refusalLocked()
	}
	if tx != nil && tx.ending == nil && !isLockWait(err) {
		// A driver that stops waiting for a statement closes the connection. The server then rolls the transaction
		// back.
		tx.undoLocked(0)
		tx.endLocked(endDropped)
	}
	return err
}

func isLockWait(err error) bool { return err == processlog.ErrBusy || err == ErrLockWait }

// withLockWait limits how long freeLocked waits for a row. With a transaction, freeLocked returns ErrLockWait after
// txLockWait. Without a transaction, it returns ErrBusy after lockWait.
func withLockWait(ctx context.Context, tx *Tx) (context.Context, context.CancelFunc) {
	if tx != nil {
		return context.WithTimeoutCause(ctx, txLockWait, ErrLockWait)
	}
	return context.WithTimeoutCause(ctx, lockWait, processlog.ErrBusy)
}

// finderOf returns a function to call with the lock held.
func (s *Store) finderOf(ref processlog.Ref) func() *storedRow {
	return func() *storedRow {
		switch ref := ref.(type) {
		case processlog.ID:
			return s.rows[ref]
		case processlog.IdempotencyKey:
			return s.keys[ref]
		}
		return nil
	}
}
