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

// How long a row is waited for that a transaction holds.
const (
	lockWait    = 2 * time.Second  // by a statement of the store's own
	resolveWait = 10 * time.Second // by Resolve
	txLockWait  = 50 * time.Second // by a statement in a caller's transaction, as innodb_lock_wait_timeout has it
)

// ErrLockWait is what a statement in a caller's transaction returns that has waited for a row for 50 seconds.
// The transaction stays open.
var ErrLockWait = errors.New("compensatortest/memory: lock wait timeout exceeded")

// Store is a processlog.Store that keeps its rows in this process: for unit tests of code that records
// entries, and for simulations in a testing/synctest bubble, whose clock it then uses. It behaves as InnoDB
// does at READ COMMITTED: others read committed rows only, a transaction holds the rows it wrote until it
// ends, and a second insert of an idempotency key waits for the first. It passes suite.TestStore.
//
// Nothing survives the process. All methods may be called concurrently.
type Store struct {
	name string

	mu            sync.Mutex // guards what follows, and every storedRow and Tx; never held while waiting
	rows          map[processlog.ID]*storedRow
	inOrder       []*storedRow                             // the same, by ascending id
	keys          map[processlog.IdempotencyKey]*storedRow // by idempotency key, those not committed included
	lastID        uint64                                   // a rolled back insert has used up its id, as AUTO_INCREMENT has
	lastCommitted uint64                                   // the highest id that ever was; all that a replica hears of
	audit         map[processlog.ID][]processlog.AuditRecord
	marks         map[string]*mark
	ordering      map[orderingKey]notes
	ops           operations
	open          []*Tx
	watch         func(before, after processlog.Row)
	shift         time.Duration // of the store's clock
	refused       map[processlog.ID]error
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
		marks:    make(map[string]*mark),
		ordering: make(map[orderingKey]notes),
		ops:      newOperations(),
		watch:    func(processlog.Row, processlog.Row) {},
	}
}

// Watch has fn see every committed transition from now on, in the order of commits, each one version after
// the other. before is zero when the row was inserted, after when it was purged; a renewed lease is no
// transition. fn runs while the store is locked: it must not call the store.
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

// Crash ends every open transaction as a server crash does: its writes are gone, and its Commit reports a
// broken connection. What was committed stays.
func (s *Store) Crash() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, tx := range slices.Clone(s.open) {
		tx.undoLocked(0)
		tx.endLocked(endCrashed)
	}
}

// StoreState is what a Store holds at one moment.
type StoreState struct {
	versions []*version // never changed once they are committed
	lastID   uint64
	audit    map[processlog.ID][]processlog.AuditRecord
	marks    map[string]int64
	ordering map[orderingKey]notes
	ops      operations
}

// Snapshot returns what the store holds now, as a replica has it.
func (s *Store) Snapshot() StoreState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return StoreState{s.committedLocked(), s.lastCommitted, maps.Clone(s.audit), s.marksLocked(), cloneOrdering(s.ordering), s.ops.clone()} // records are only appended
}

// Restore makes the store hold what it held at a snapshot, as a replica that is promoted although it lags: open
// transactions end as by Crash, what was committed since is gone, and the ids of what was inserted since are
// given out again. Watch is told nothing of it.
func (s *Store) Restore(state StoreState) {
	s.Crash()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows, s.keys, s.inOrder = make(map[processlog.ID]*storedRow), make(map[processlog.IdempotencyKey]*storedRow), nil
	for _, v := range state.versions {
		s.addLocked(&storedRow{id: v.entry.ID, key: v.entry.IdempotencyKey, committed: v})
	}
	s.lastID, s.lastCommitted, s.audit = state.lastID, state.lastID, maps.Clone(state.audit)
	s.ordering = cloneOrdering(state.ordering)
	s.ops = state.ops.clone()
	s.marks = make(map[string]*mark, len(state.marks))
	for businessType, at := range state.marks {
		s.marks[businessType] = &mark{at: at}
	}
}

// ShiftClock moves the store's clock by d from where it stands: forward, or back when d is negative. Leases
// and due moments stay where they are, as those of a database whose clock is set.
func (s *Store) ShiftClock(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shift += d
}

// Now is the store's clock.
func (s *Store) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return instant(s.nowLocked())
}

// nowLocked is the store's clock, cut to what a row stores.
func (s *Store) nowLocked() int64 { return time.Now().Add(s.shift).UnixMilli() }

// Check implements processlog.Store: nothing can be wrong here.
func (s *Store) Check(ctx context.Context) error { return ctx.Err() }

// Fingerprint implements processlog.Store. It is unique in this process.
func (s *Store) Fingerprint(ctx context.Context) (string, error) { return s.name, ctx.Err() }

// Close implements processlog.Store. The rows stay, so that a test may look at them afterwards.
func (s *Store) Close() error { return nil }

// committedLocked lists the committed version of every row, by ascending id.
func (s *Store) committedLocked() []*version {
	return s.matchingLocked(func(*version) bool { return true })
}

// matchingLocked lists the committed versions that match, by ascending id.
func (s *Store) matchingLocked(match func(*version) bool) []*version { return s.seenLocked(nil, match) }

// seenLocked is what tx sees of what matches: of the rows that it has written its own version.
func (s *Store) seenLocked(tx *Tx, match func(*version) bool) []*version {
	var versions []*version
	for _, row := range s.inOrder {
		if seen := row.seenBy(tx); seen != nil && match(seen) {
			versions = append(versions, seen)
		}
	}
	return versions
}

// addLocked adds a row whose id is higher than all there are.
func (s *Store) addLocked(row *storedRow) {
	s.rows[row.id], s.keys[row.key] = row, row
	s.inOrder = append(s.inOrder, row)
}

// writeLocked is the one way from a version of a row to its next, in tx or, when tx is nil, at once; the row
// must be free for it. A version that does not follow its predecessor is a bug of ours and panics.
func (s *Store) writeLocked(tx *Tx, row *storedRow, next *version, audit *processlog.AuditRecord) {
	step := rowStep{row: row, before: row.seenBy(tx), after: next, audit: audit}
	step.mustFollow()
	if tx == nil {
		s.publishLocked(step)
		return
	}
	tx.holdLocked(row)
	row.working = next
	tx.steps = append(tx.steps, step)
}

// publishLocked commits one step.
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
	s.watch(step.before.row(now), step.after.row(now))
}

// removeLocked forgets a row: its insert was rolled back, or it was purged.
func (s *Store) removeLocked(row *storedRow) {
	delete(s.rows, row.id)
	delete(s.keys, row.key)
	at, _ := slices.BinarySearchFunc(s.inOrder, row.id, func(row *storedRow, id processlog.ID) int { return row.id.Compare(id) })
	s.inOrder = slices.Delete(s.inOrder, at, at+1)
}

// freeLocked finds a row and waits until it is free for tx to write: until ctx ends, with the error of that. A
// tx that would wait for itself through others is ended, as by a server's deadlock detection. The row is
// looked up anew after each wait; nil means that there is none.
func (s *Store) freeLocked(ctx context.Context, tx *Tx, find func() *storedRow) (*storedRow, error) {
	return s.untilLocked(ctx, tx, find, (*storedRow).freeFor)
}

// untilLocked is freeLocked for any condition.
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

// awaitLocked gives up the lock until somebody has let go of row, or tx or ctx has ended.
func (s *Store) awaitLocked(ctx context.Context, tx *Tx, row *storedRow) error {
	if tx != nil && row.waitsFor(tx) {
		tx.undoLocked(0)
		tx.endLocked(endAborted)
		return processlog.ErrTxAborted
	}
	free, ended := row.nextRelease(), tx.waitLocked(row)
	s.mu.Unlock()
	var err error
	select {
	case <-free:
	case <-ended:
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
	if tx != nil && tx.end == nil && !isLockWait(err) {
		tx.undoLocked(0) // a driver gives up the connection with a statement that it no longer waits for
		tx.endLocked(endDropped)
	}
	return err
}

func isLockWait(err error) bool { return err == processlog.ErrBusy || err == ErrLockWait }

// withLockWait bounds ctx by lockWait, and by txLockWait when the statement is one of a transaction;
// freeLocked then returns ErrBusy or ErrLockWait.
func withLockWait(ctx context.Context, tx *Tx) (context.Context, context.CancelFunc) {
	if tx != nil {
		return context.WithTimeoutCause(ctx, txLockWait, ErrLockWait)
	}
	return context.WithTimeoutCause(ctx, lockWait, processlog.ErrBusy)
}

// byRef finds what ref names; call it with the lock held.
func (s *Store) byRef(ref processlog.Ref) func() *storedRow {
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
