// Package waiting wakes callers that wait for the end of an entry.
//
// An end in this process and a message from another process are hints. The database alone says whether an entry has
// ended. One loop reads the entries of all callers in common statements, so that many callers cost few statements.
package waiting

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/groupcommit"
	"github.com/compensator-go/compensator/processlog"
)

// pauses lists the possible pauses between two reads of an entry. The pause gets longer while the callers wait: a pause
// is used if the latest caller has waited at least pauseFactor times this pause. The first pause is used before that.
//
// Reads happen only at multiples of the pause, and each pause divides a second. So one statement reads the entries of
// many callers.
var pauses = [...]time.Duration{50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second}

const pauseFactor = 40

// lingerTime is the time for which the loop goes on after the last call of Await has ended.
const lingerTime = 5 * time.Second

// Waiting holds the calls of Await of one process. Its loop runs only while somebody waits, and for a short time after that.
type Waiting struct {
	e *engine.Engine

	// publish notifies other processes that entries have ended. listen receives the messages of other processes until
	// its context ends. Both are nil if no queue carries messages.
	publish func(ctx context.Context, ids []processlog.ID) error
	listen  func(ctx context.Context)

	hasCallers atomic.Bool   // whether callers wait; if not, the end of an entry costs only one read of this flag
	startedAt  time.Time     // a read after a pause happens at startedAt plus a multiple of the pause
	wakeUp     chan struct{} // of capacity 1: holds a token when an entry must be read now

	endsToPublish groupcommit.Batcher[processlog.ID]

	ctx  context.Context // ends in Close
	stop context.CancelCauseFunc

	mu      sync.Mutex // guards the fields below
	awaited map[processlog.ID]*awaitedEntry
	loops   sync.WaitGroup
	looping bool
	closed  bool
}

type awaitedEntry struct {
	calls      []*call
	lastCallAt time.Time // when the latest call began
	nextRead   time.Time // the zero time: now
}

type call struct {
	businessType string
	readBegun    bool          // a read of the entry began after the call; an earlier read may not show the entry yet
	done         chan struct{} // closed once the fields below are set
	row          processlog.Row
	err          error
}

// New returns the Waiting of the engine e. The argument published is a function. For a type t it reports whether the
// ends of entries are sent to other processes.
func New(e *engine.Engine, published func(t *engine.Type) bool) *Waiting {
	w := &Waiting{e: e, startedAt: time.Now(), wakeUp: make(chan struct{}, 1), awaited: make(map[processlog.ID]*awaitedEntry)}
	w.ctx, w.stop = context.WithCancelCause(e.Work)
	w.endsToPublish.Max, w.endsToPublish.Workers, w.endsToPublish.Bound, w.endsToPublish.Flush = processlog.MaxRows, 1, maxUnpublished, w.publishEnds
	e.Hooks.Stored = append(e.Hooks.Stored, func(a *engine.Attempt, to processlog.State, _ bool) {
		if !to.Terminal() {
			return
		}
		w.Ended(a.Row.ID)
		if w.publish != nil && published(a.Type) {
			w.endsToPublish.Add(a.Row.ID)
		}
	})
	e.Hooks.Moved = append(e.Hooks.Moved, func(row *processlog.Row, _ processlog.State) { w.Ended(row.ID) })
	e.Await(engine.WaitInClose, &w.endsToPublish)
	return w
}

// maxUnpublished is the maximum number of ended entries that wait in memory to be sent to other processes. Further
// ended entries are not sent. Callers in other processes then find the end by reading the database.
const maxUnpublished = 10_000

// Carry sets the function publish, which notifies other processes of ended entries. It also sets the function listen,
// which receives such notifications. Call Carry before the first registration of a type.
func (w *Waiting) Carry(publish func(ctx context.Context, ids []processlog.ID) error, listen func(ctx context.Context)) {
	w.publish, w.listen = publish, listen
}

const problemPublish = "callers in other processes could not be notified of ends"

func (w *Waiting) publishEnds(ids []processlog.ID) {
	ctx, cancel := context.WithTimeout(w.e.Work, publishTimeout)
	defer cancel()
	w.e.NoteResult(problemPublish, w.publish(ctx, ids))
}

// publishTimeout is the longest time of one call of publish. A queue that does not answer then delays the next
// notifications only for this time.
const publishTimeout = 2 * time.Second

// Ended makes the loop read an entry now, if a caller waits for it.
func (w *Waiting) Ended(id processlog.ID) {
	if !w.hasCallers.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if a := w.awaited[id]; a != nil {
		a.nextRead = time.Time{}
		w.lookNow()
	}
}

func (w *Waiting) lookNow() {
	select {
	case w.wakeUp <- struct{}{}:
	default:
	}
}

// Await returns the row of an entry once the entry has ended. It returns at once for an entry of another type than
// businessType. Await returns processlog.ErrNotFound if there is no such entry, context.Cause(ctx) when ctx ends,
// ErrClosed after Close, or the error of a read.
func (w *Waiting) Await(ctx context.Context, id processlog.ID, businessType string) (processlog.Row, error) {
	c := &call{businessType: businessType, done: make(chan struct{})}
	if !w.addCall(id, c) {
		return processlog.Row{}, processlog.ErrClosed
	}
	select {
	case <-c.done:
		return c.row, c.err
	case <-ctx.Done():
	}
	if !w.removeCall(id, c) {
		// The call already has its result, so the caller gets it although ctx has ended.
		return c.row, c.err
	}
	return processlog.Row{}, context.Cause(ctx)
}

func (w *Waiting) addCall(id processlog.ID, c *call) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	a := w.awaited[id]
	if a == nil {
		a = new(awaitedEntry)
		w.awaited[id] = a
	}
	a.calls, a.lastCallAt, a.nextRead = append(a.calls, c), time.Now(), time.Time{}
	w.hasCallers.Store(true)
	if !w.looping {
		w.looping = true
		w.loops.Go(w.loop)
	}
	w.lookNow()
	return true
}

func (w *Waiting) removeCall(id processlog.ID, c *call) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.awaited[id]
	if a == nil || !slices.Contains(a.calls, c) {
		return false
	}
	if a.calls = slices.DeleteFunc(a.calls, func(other *call) bool { return other == c }); len(a.calls) == 0 {
		w.removeEntryLocked(id)
	}
	return true
}

// removeEntryLocked needs mu.
func (w *Waiting) removeEntryLocked(id processlog.ID) {
	delete(w.awaited, id)
	w.hasCallers.Store(len(w.awaited) > 0)
}

func (w *Waiting) loop() {
	ctx, cancel := context.WithCancel(w.ctx)
	var listener sync.WaitGroup
	// While Run is under way, Run listens. Otherwise the loop must listen.
	if w.listen != nil && !w.e.Running() {
		listener.Go(func() { w.listen(ctx) })
	}
	defer listener.Wait()
	defer cancel()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var idleSince time.Time // zero: a caller waits
	for {
		ids, nextRead := w.dueEntries(time.Now())
		if len(ids) > 0 {
			w.readEntries(ids)
			continue
		}
		switch now := time.Now(); {
		case !nextRead.IsZero():
			idleSince = time.Time{}
		case idleSince.IsZero():
			idleSince = now
			nextRead = now.Add(lingerTime)
		case now.Sub(idleSince) < lingerTime:
			nextRead = idleSince.Add(lingerTime)
		case w.stopIfIdle():
			return
		}
		timer.Reset(time.Until(nextRead))
		select {
		case <-timer.C:
		case <-w.wakeUp:
		case <-w.ctx.Done():
		}
		if w.ctx.Err() != nil { // Check the context itself, because another case may be ready too.
			w.closeAll()
			return
		}
	}
}

func (w *Waiting) stopIfIdle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looping = len(w.awaited) > 0
	return !w.looping
}

// dueEntries returns the entries to read now, and the time of the next read of another entry. If no other entry is
// awaited, nextRead is zero.
func (w *Waiting) dueEntries(now time.Time) (ids []processlog.ID, nextRead time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, a := range w.awaited {
		if now.Before(a.nextRead) {
			if nextRead.IsZero() || a.nextRead.Before(nextRead) {
				nextRead = a.nextRead
			}
			continue
		}
		ids = append(ids, id)
		// Set nextRead before the read. If the end of the entry is reported during the read, the loop then reads the
		// entry again.
		a.nextRead = w.nextReadAt(now, now.Sub(a.lastCallAt))
		for _, c := range a.calls {
			c.readBegun = true
		}
	}
	slices.SortFunc(ids, processlog.ID.Compare)
	return ids, nextRead
}

// nextReadAt returns the time of the next read of an entry. The argument waited is the time that the latest caller has
// waited for the entry.
func (w *Waiting) nextReadAt(now time.Time, waited time.Duration) time.Time {
	pause := pauses[0]
	for _, candidate := range pauses {
		if waited >= pauseFactor*candidate {
			pause = candidate
		}
	}
	return w.startedAt.Add(now.Sub(w.startedAt).Truncate(pause) + pause)
}

func (w *Waiting) readEntries(ids []processlog.ID) {
	ctx, cancel := context.WithTimeout(w.ctx, engine.StatementTimeout)
	rows, err := w.e.Store.Ends(ctx, ids)
	cancel()
	found := make(map[processlog.ID]processlog.Row, len(rows))
	for _, row := range rows {
		found[row.ID] = row
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		row, exists := found[id]
		switch {
		case err != nil:
			w.answerCallsLocked(id, row, err)
		case !exists:
			w.answerCallsLocked(id, row, processlog.ErrNotFound)
		default:
			w.answerCallsLocked(id, row, nil)
		}
	}
}

// answerCallsLocked ends the calls that wait for an entry, if the row has ended or err is not nil. It does not end a
// call that began after the read of the row. The caller holds mu.
func (w *Waiting) answerCallsLocked(id processlog.ID, row processlog.Row, err error) {
	a := w.awaited[id]
	if a == nil {
		return
	}
	a.calls = slices.DeleteFunc(a.calls, func(c *call) bool {
		ended := err != nil || row.State.Terminal() || row.BusinessType != c.businessType
		if !c.readBegun || !ended {
			return false
		}
		c.row, c.err = row, err
		close(c.done)
		return true
	})
	if len(a.calls) == 0 {
		w.removeEntryLocked(id)
	}
}

// Close ends all calls with ErrClosed, and waits for the loop.
func (w *Waiting) Close() {
	w.closeAll()
	w.stop(processlog.ErrClosed)
	w.loops.Wait()
}

func (w *Waiting) closeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for id, a := range w.awaited {
		for _, c := range a.calls {
			c.readBegun = true
		}
		w.answerCallsLocked(id, processlog.Row{}, processlog.ErrClosed)
	}
}
