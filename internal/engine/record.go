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

// Recording holds the entries of one Record call. The caller or the connection reports the end of their transaction
// with Committed, CommitUnknown or RolledBack. Only the first of these calls has an effect.
//
// Set Drafts, and then call Attach before any other method.
type Recording struct {
	Drafts   []processlog.Draft // unique by idempotency key
	Inserted []processlog.Inserted

	engine         *Engine
	recorderWrites []RecorderWrite // what RunRecorders has collected for RunRecorderWrites
	reservations   []Reservation   // one for each draft. An element is nil if its draft is not inserted with a lease. The slice is nil if nothing was reserved
	insertedAt     time.Time       // time of the insert
	watched        bool            // whether this process sees the end of the transaction on the connection, so that it needs no call of Receipt.Committed
	commitReported atomic.Bool     // whether the caller has reported the commit
	once           sync.Once
	oneEntry       [1]InsertedEntry // memory for the result of insertedEntries in the usual call, which has one draft
}

// Attach attaches the recording to engine e.
func (r *Recording) Attach(e *Engine) { r.engine = e }

// Reserve reserves slots for drafts that are inserted with a lease. Call it only if this process sees the end of the
// transaction, because a rollback must release the slots.
func (r *Recording) Reserve() {
	r.watched = true
	for _, reserve := range r.engine.Hooks.Reserve {
		if reserved := reserve(r.Drafts); reserved != nil {
			r.reservations = reserved
		}
	}
}

// RunRecorders calls Hooks.BeforeInsert of the features, before anything is written.
func (r *Recording) RunRecorders() error {
	for _, beforeInsert := range r.engine.Hooks.BeforeInsert {
		write, err := beforeInsert(r.Drafts)
		if err != nil {
			return err
		}
		if write != nil {
			r.recorderWrites = append(r.recorderWrites, write)
		}
	}
	return nil
}

// RunRecorderWrites calls the functions that Hooks.BeforeInsert has returned. It runs after the insert, in the same
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

// AwaitCommit lets the features find out whether the transaction has committed. Call it if this process does not see
// the end of the transaction.
func (r *Recording) AwaitCommit() {
	for _, awaitCommit := range r.engine.Hooks.AwaitCommit {
		awaitCommit(r)
	}
}

// Committed is called by the caller or the connection when the transaction has committed.
func (r *Recording) Committed() {
	r.commitReported.Store(true)
	r.CommitFound()
}

// CommitReported reports whether the caller has reported the commit.
func (r *Recording) CommitReported() bool { return r.commitReported.Load() }

// CommitFound is called when the transaction is known to have committed. It hands the entries of this recording to the
// hook Committed, and then to Engine.StartRecorded.
func (r *Recording) CommitFound() {
	r.once.Do(func() {
		failpoint.Reach(failpoint.CommitReported)
		for _, committed := range r.engine.Hooks.Committed {
			committed(r.Drafts, r.Inserted)
		}
		r.engine.StartRecorded(r.insertedEntries(0))
	})
}

// CommitUnknown is called when it is unknown whether the transaction has committed. It releases the reserved slots, and
// enqueues the entries to be due in one second or later.
func (r *Recording) CommitUnknown() {
	r.once.Do(func() {
		r.cancelReservations()
		r.engine.enqueueInserted(r.insertedEntries(time.Second))
	})
}

// RolledBack is called when the transaction was rolled back.
func (r *Recording) RolledBack() { r.once.Do(r.cancelReservations) }

func (r *Recording) cancelReservations() {
	for i := range r.reservations {
		r.engine.CancelReservation(r.Drafts[i].BusinessType, r.reservations[i])
	}
	r.reservations = nil
}

// insertedEntries returns the new entries of this recording that must run. It makes entries due in minDelay if they are
// due earlier. It leaves out duplicates, and releases the slots that were reserved for them.
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
		list = append(list, InsertedEntry{RecordedEntry{in.ID, d.IdempotencyKey, d.BusinessType, r.watched}, d.Token, reservation, due})
	}
	return list
}

// InsertedEntry is an entry whose transaction has just ended. If its ID is zero, package readback reads the id from the database
// by the IdempotencyKey.
type InsertedEntry struct {
	RecordedEntry
	Token       processlog.Token // token of the lease that the entry was inserted with
	Reservation Reservation      // slot that is reserved for the entry; nil unless the entry was inserted with a lease
	Due         time.Time        // when the entry is due by this process's monotonic clock; the database has its own due time
}

// StartRecorded starts or enqueues entries whose transaction has committed. First, features take the entries that they
// start in this process: see Hooks.Start. Then the source gets the other entries.
func (e *Engine) StartRecorded(fresh []InsertedEntry) {
	for _, start := range e.Hooks.Start {
		fresh = start(fresh)
	}
	e.watcher.Recorded(fresh)
	e.enqueueInserted(fresh)
}

// enqueueInserted passes each entry that the source accepts to the source. If the id of such an entry is unknown,
// enqueueInserted passes the entry to the FindID hooks. If no hook takes the entry, enqueueInserted schedules a claim.
// The reconciler later enqueues the entries that the source does not accept.
func (e *Engine) enqueueInserted(fresh []InsertedEntry) {
	items := make([]processlog.QueueEntry, 0, len(fresh))
	for _, f := range fresh {
		wait := time.Until(f.Due)
		switch {
		case !e.source.Accepts(f.BusinessType, wait):
		case !f.ID.IsZero():
			items = append(items, processlog.QueueEntry{BusinessType: f.BusinessType, ID: f.ID, In: wait})
		case !slices.ContainsFunc(e.Hooks.FindID, func(findID func(InsertedEntry) bool) bool { return findID(f) }):
			e.Expect(f.BusinessType, wait)
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
