package engine

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// Recording holds the entries of one Record call. When their transaction has committed, it hands the entries to the
// Starter, which starts or enqueues them. The caller or the connection reports the end of the transaction with Committed,
// CommitUnknown or RolledBack. If this process cannot see the end, a poller looks for the entries in the database, and
// reports the commit when it finds them. Only the first report has an effect. Set Drafts, and then call Attach before any
// other method.
type Recording struct {
	Drafts   []processlog.Draft // unique by idempotency key
	Inserted []processlog.Inserted

	engine         *Engine
	recorderWrites []func(ctx context.Context, tx processlog.Tx, inserted []processlog.Inserted) error // what RunRecorders has collected for RunRecorderWrites
	reservations   []Reservation                                                                       // nil, or one for each draft; nil for a draft that is not inserted with a lease
	insertedAt     time.Time                                                                           // time of the insert
	watched        bool                                                                                // whether this process sees the end of the transaction without a report from the caller
	commitReported atomic.Bool                                                                         // whether the caller has reported the commit
	once           sync.Once
	oneEntry       [1]InsertedEntry // memory for the result of insertedEntries in the usual call, which has one draft
}

// Attach attaches the recording to engine e.
func (r *Recording) Attach(e *Engine) { r.engine = e }

// Reserve reserves slots for drafts that are inserted with a lease. Call it only if this process sees the end of the
// transaction. Otherwise the slots could not be released after a rollback.
func (r *Recording) Reserve() {
	r.watched = true
	r.reservations = r.engine.starter.Reserve(r.Drafts)
}

// RunRecorders calls the Recorder functions of the features, before anything is written. If a draft is wrong, the error
// names the draft and the reason.
func (r *Recording) RunRecorders() error {
	for _, prepare := range r.engine.recorders {
		write, err := prepare(r.Drafts)
		if err != nil {
			return err
		}
		if write != nil {
			r.recorderWrites = append(r.recorderWrites, write)
		}
	}
	return nil
}

// RunRecorderWrites calls the functions write that the recorders have returned. It runs after the insert, in the same
// transaction.
func (r *Recording) RunRecorderWrites(ctx context.Context, tx processlog.Tx) error {
	for _, write := range r.recorderWrites {
		if err := write(ctx, tx, r.Inserted); err != nil {
			return err
		}
	}
	r.recorderWrites = nil
	return nil
}

// Watched reports whether this process sees the end of the transaction itself.
func (r *Recording) Watched() bool { return r.watched }

// SetInserted stores the result of the insert.
func (r *Recording) SetInserted(inserted []processlog.Inserted) {
	r.Inserted, r.insertedAt = inserted, time.Now()
}

// NotifyRecorded calls Observer.Recorded for each new entry.
func (r *Recording) NotifyRecorded(ctx context.Context) {
	b := r.engine.Base
	if b.Observer.Recorded == nil {
		return
	}
	for i := range r.Drafts {
		if d := &r.Drafts[i]; !r.Inserted[i].Duplicate {
			notifyHere(b, b.Observer.Recorded, observe.RecordedEvent{
				Context: ctx, ID: r.Inserted[i].ID, IdempotencyKey: d.IdempotencyKey, BusinessType: d.BusinessType, BusinessID: d.BusinessID})
		}
	}
}

// PollForCommit starts polling for the commit. Call it if this process does not see the end of the transaction.
func (r *Recording) PollForCommit() { r.engine.poller.Recorded(r) }

// Committed is called by the caller or the connection when the transaction has committed. Committed hands the entries to
// the Starter.
func (r *Recording) Committed() {
	r.commitReported.Store(true)
	r.CommitFound()
}

// CommitReported reports whether the caller has reported the commit.
func (r *Recording) CommitReported() bool { return r.commitReported.Load() }

// CommitFound hands the entries to the Starter, after the commit was reported or a poll has found the entries in the
// database. Only the first call has an effect.
func (r *Recording) CommitFound() {
	r.once.Do(func() {
		failpoint.Reach(failpoint.CommitReported)
		for _, notify := range r.engine.committed {
			notify(r.Drafts, r.Inserted)
		}
		r.engine.starter.Committed(r.insertedEntries(0))
	})
}

// CommitUnknown is called when it is unknown whether the transaction has committed. CommitUnknown releases the reserved
// slots, and enqueues the entries with due times that are at least one second from now. The claim of an entry finds out
// whether the entry exists.
func (r *Recording) CommitUnknown() {
	r.once.Do(func() {
		r.cancelReservations()
		r.reservations = nil
		r.engine.starter.Enqueue(r.insertedEntries(time.Second))
	})
}

// RolledBack is called when the transaction was rolled back. RolledBack releases the reserved slots.
func (r *Recording) RolledBack() { r.once.Do(r.cancelReservations) }

// cancelReservations releases the reserved slots.
func (r *Recording) cancelReservations() {
	for i := range r.reservations {
		r.engine.CancelReservation(r.Drafts[i].BusinessType, r.reservations[i])
	}
}

// insertedEntries returns the entries that were inserted and must run. It releases the reservations of duplicates. If
// minDelay is positive, no entry in the result is due before the duration minDelay has passed.
func (r *Recording) insertedEntries(minDelay time.Duration) []InsertedEntry {
	earliest := time.Now().Add(minDelay)
	list := slices.Grow(r.oneEntry[:0], len(r.Drafts))
	for i := range r.Drafts {
		d, in := &r.Drafts[i], &r.Inserted[i]
		var reservation Reservation
		if r.reservations != nil {
			reservation = r.reservations[i]
		}
		if in.Duplicate {
			r.engine.CancelReservation(d.BusinessType, reservation)
			continue
		}
		if d.Done {
			continue
		}
		due := r.insertedAt.Add(processlog.DueIn(d.Delay))
		if due.Before(earliest) && minDelay > 0 {
			due = earliest
		}
		list = append(list, InsertedEntry{ID: in.ID, Key: d.IdempotencyKey, BusinessType: d.BusinessType, Token: d.Token, Watched: r.watched, Reservation: reservation, Due: due})
	}
	return list
}

// InsertedEntry is an entry whose transaction has just ended.
type InsertedEntry struct {
	ID           processlog.ID // zero if the id is not known; it is then read from the database by the field Key
	Key          processlog.IdempotencyKey
	BusinessType string
	Token        processlog.Token // token of the lease that the entry was inserted with
	Reservation  Reservation      // slot that is reserved for the entry; nil unless the entry was inserted with a lease
	Watched      bool             // whether this process saw the end of the transaction without a report from the caller
	Due          time.Time        // when the entry is due by this process's monotonic clock; the database has its own due time
}

// Recorded returns the description of the entry for a Watcher.
func (f *InsertedEntry) Recorded() RecordedEntry {
	return RecordedEntry{f.ID, f.Key, f.BusinessType, f.Watched}
}

// Starter is a feature that starts entries in the process that has recorded them, so that they need not wait until a source
// reports them. Without a Starter the source gets these entries. The methods return at once.
type Starter interface {
	// Reserve is called before the insert, if this process sees the end of the transaction. It chooses the drafts that are
	// inserted with a lease, and sets their Draft.Lease. It returns one Reservation for each draft, which is nil for the
	// drafts that it did not choose. It may return nil if it chooses none.
	Reserve(drafts []processlog.Draft) []Reservation

	// Committed takes entries whose transaction has committed. It may reuse the memory of fresh.
	Committed(fresh []InsertedEntry)

	// Enqueue takes entries whose transaction may have committed. It must not claim an entry before InsertedEntry.Due. It may
	// reuse the memory of fresh.
	Enqueue(fresh []InsertedEntry)
}

// AttachStarter makes s start entries that this process has recorded. Call it before anything is recorded.
func (e *Engine) AttachStarter(s Starter) { e.starter = s }

// noStarter is the Starter of an engine to which no feature has attached one. It hands all entries to the source.
type noStarter struct{ e *Engine }

func (noStarter) Reserve([]processlog.Draft) []Reservation { return nil }

func (s noStarter) Committed(fresh []InsertedEntry) {
	s.e.WatchRecorded(fresh)
	s.Enqueue(fresh)
}

func (s noStarter) Enqueue(fresh []InsertedEntry) {
	s.e.EnqueueInserted(fresh, func(f InsertedEntry) { s.e.Expect(f.BusinessType, time.Until(f.Due)) })
}

// EnqueueInserted hands each entry to the source if Source.Accepts returns true for it. The reconciler later enqueues an
// entry that the source does not accept. If the id of an entry is not known, EnqueueInserted calls withoutID for it.
func (e *Engine) EnqueueInserted(fresh []InsertedEntry, withoutID func(f InsertedEntry)) {
	items := make([]processlog.QueueEntry, 0, len(fresh))
	for _, f := range fresh {
		wait := time.Until(f.Due)
		switch {
		case !e.source.Accepts(f.BusinessType, wait):
		case f.ID.IsZero():
			withoutID(f)
		default:
			items = append(items, processlog.QueueEntry{BusinessType: f.BusinessType, ID: f.ID, In: wait})
		}
	}
	e.source.Enqueue(items)
}

// CancelReservation releases the slots of a reservation, which may be nil.
func (e *Engine) CancelReservation(businessType string, r Reservation) {
	if r != nil {
		r.Use(0) // If the reservation has lapsed or was used before, Use changes nothing.
		e.slotFreed(businessType)
	}
}

// Recorder is a function by which a feature takes part in recording entries. The engine calls it before the insert. It may
// change the drafts. If it returns an error, nothing is recorded. If write is not nil, the engine calls write after the
// insert, in the same transaction. inserted has the result for each draft, in the same order.
type Recorder func(drafts []processlog.Draft) (write func(ctx context.Context, tx processlog.Tx, inserted []processlog.Inserted) error, err error)

// AttachRecorder attaches a recorder. Call it before anything is recorded.
func (e *Engine) AttachRecorder(r Recorder) { e.recorders = append(e.recorders, r) }

// AttachCommitted makes the engine call notify with the entries of each Record call whose commit this process has seen. Call
// it before anything is recorded. notify must not keep its arguments.
func (e *Engine) AttachCommitted(notify func(drafts []processlog.Draft, inserted []processlog.Inserted)) {
	e.committed = append(e.committed, notify)
}

// CommitPoller is for transactions whose end this process does not see. It polls the database to find out whether they have
// committed. Its methods are safe for concurrent use. They return at once, except Close.
type CommitPoller interface {
	// Recorded starts polling for the transaction of a recording. The poller calls Recording.CommitFound when it finds the commit.
	Recorded(r *Recording)

	// Changed starts polling for a transaction that has changed an entry. The poller calls Engine.ChangeCommitted when it finds
	// the commit.
	Changed(before processlog.Row, ch processlog.Change)

	// Close waits until the running polls have returned. After Close, the poller calls none of the functions named above.
	Close()
}

// AttachCommitPoller makes p poll for transactions whose end this process does not see. Call it before anything is recorded.
//
// Without a poller, such commits are noticed later. The reconciler finds recorded entries. A change of an entry, for
// example by Cancel, is noticed when this process next reads the entry's row, for example in a claim.
func (e *Engine) AttachCommitPoller(p CommitPoller) { e.poller = p }

// noPoller is the CommitPoller of an engine to which no feature has attached one. It does nothing.
type noPoller struct{}

func (noPoller) Recorded(*Recording)                       {}
func (noPoller) Changed(processlog.Row, processlog.Change) {}
func (noPoller) Close()                                    {}

// Source reports due entries before the reconciler finds them in the database. Its reports are only hints. A claim asks
// the database whether the entry exists, is due and is free (G10, Redis is a hint). The methods are safe for concurrent
// use.
type Source interface {
	// Scope returns whether the source now reports the entries of all processes, of this process only, or no entries.
	Scope() Scope

	// Accepts reports whether the source accepts an entry that is due after the given delay.
	Accepts(businessType string, delay time.Duration) bool

	// Enqueue adds entries, each with the time until it is due. Enqueue, Move and Settle return at once. If such a call
	// fails later, the reconciler finds its entries in the database.
	Enqueue(entries []processlog.QueueEntry)

	// Move changes the due time of an entry. If the source does not have the entry, Move adds it.
	Move(entry processlog.QueueEntry)

	// Settle ends the source's lease of an entry that was passed to Engine.ClaimOffered. It removes the entry or makes it due again.
	Settle(businessType string, o processlog.QueueOutcome)

	// ClaimDue claims and starts due entries of t, for the given number of calls. The caller has taken Type.SlotsToSearch
	// slots for these calls, and ClaimDue releases the slots that it does not need. It calls Engine.ClaimOffered for the
	// entries that the source has, and Engine.ClaimFromStore if the source does not answer or lacks entries.
	ClaimDue(t *Type, calls int) ClaimResult

	// Ping asks the queue whether it answers, and returns at once. The function answer waits for the result: nil, or an error
	// that says why the queue cannot be used. The queue may use its QueueShare of the time that ctx has left.
	Ping(ctx context.Context) (answer func() error)

	// NoteBacklog notes that the database holds due entries of a type that the source does not report. From then on ClaimDue
	// also calls Engine.ClaimFromStore, until the database has no more due entries. HasBacklog reports whether ClaimDue now
	// does so.
	NoteBacklog(businessType string)
	HasBacklog(businessType string) bool

	// Round is called when a round of the reconciler begins. The returned function is called at the end of the round, after
	// overdue entries were claimed. Its parameter heads has the earliest entry of each type and state, as the round has read
	// them.
	Round(ctx context.Context) func(ctx context.Context, heads Heads, event *observe.ReconciledEvent)
}

// Scope says whether a source reports the entries of all processes, of one process, or no entries.
type Scope int

const (
	ScopeNone Scope = iota // no entries: there is no source, or it does not answer
	ScopeOwn               // entries that this process has enqueued
	ScopeAll               // entries that any process has enqueued
)

// Heads holds the earliest entry of each type and state, as a round of the reconciler has read them.
type Heads struct {
	List   []processlog.Head
	SentAt time.Time // just before the statement was sent
}

// AttachSource attaches a source to the engine. Call it before a type is registered.
func (e *Engine) AttachSource(s Source) { e.source = s }

// Source returns the source of the engine.
func (e *Engine) Source() Source { return e.source }

// sourceReports returns whether the source reports due entries. If it does not, claims read them from the database.
func (e *Engine) sourceReports() bool { return e.source.Scope() != ScopeNone }

// noSource is the Source of an engine that has no queue. It keeps no entries. When it hears of an entry, it only schedules
// a claim.
type noSource struct{ e *Engine }

func (noSource) Scope() Scope { return ScopeNone }
func (s noSource) Accepts(businessType string, _ time.Duration) bool {
	return s.e.AcceptingType(businessType) != nil
}
func (noSource) Settle(string, processlog.QueueOutcome)    {}
func (s noSource) ClaimDue(t *Type, calls int) ClaimResult { return s.e.ClaimFromStore(t, calls) }
func (noSource) Ping(context.Context) func() error         { return func() error { return nil } }
func (noSource) NoteBacklog(string)                        {}
func (noSource) HasBacklog(string) bool                    { return false }

func (s noSource) Enqueue(entries []processlog.QueueEntry) {
	for _, entry := range entries {
		s.Move(entry)
	}
}

// Move schedules a claim of the entry's type for the time when the entry is due, if the type runs here.
func (s noSource) Move(entry processlog.QueueEntry) { s.e.Expect(entry.BusinessType, entry.In) }

func (noSource) Round(context.Context) func(context.Context, Heads, *observe.ReconciledEvent) {
	return func(context.Context, Heads, *observe.ReconciledEvent) {}
}
