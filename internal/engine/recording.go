package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// Recording holds the entries of one Record call. It reserves slots for them, and routes them when their transaction
// has ended. Only the first report of that end counts. A value with only Drafts set is ready for Of.
type Recording struct {
	Drafts   []processlog.Draft // unique by idempotency key
	Inserted []processlog.Inserted

	intake       *intake
	engine       *Engine
	writes       []func(ctx context.Context, tx processlog.Tx, inserted []processlog.Inserted) error // from the recorders; WriteMore calls them
	reservations []Reservation                                                                       // one per draft; nil for a draft that is not inserted with a lease
	at           time.Time                                                                           // time of the insert
	watched      bool                                                                                // this process sees the end of the transaction itself, without a report from the caller
	told         atomic.Bool                                                                         // the caller has reported the commit
	poller       CommitPoller
	once         sync.Once
}

// Of attaches the recording to engine e.
func (r *Recording) Of(e *Engine) {
	r.engine, r.intake, r.poller = e, e.intake, e.poller
	r.reservations = make([]Reservation, len(r.Drafts))
}

// Reserve reserves slots for the drafts that can be inserted with a lease. These are due at once, and their type runs
// here. Call it only if this process sees the end of the transaction. Otherwise the slots could not be released after a
// rollback.
func (r *Recording) Reserve() {
	r.watched = true
	if r.intake.settler.behind() {
		return
	}
	for i := range r.Drafts {
		d := &r.Drafts[i]
		t := r.intake.types.accepting(d.BusinessType)
		if t == nil || t.finder() != nil || d.Done || d.Delay > 0 || t.wait() > 0 {
			continue
		}
		// An entry inserted with a lease runs alone. Several entries recorded together are claimed together instead, so
		// that they share a batch.
		if len(r.Drafts) > 1 && t.Seats() > 1 {
			t.slots.Recorded()
			continue
		}
		if reservation := t.slots.Reserve(1); reservation != nil {
			r.reservations[i], d.Lease = reservation, t.Lease
		}
	}
}

// Prepare calls the recorders before anything is written. Its errors name the draft that is wrong and the reason.
func (r *Recording) Prepare() error {
	for _, prepare := range r.engine.recorders {
		write, err := prepare(r.Drafts)
		if err != nil {
			return err
		}
		if write != nil {
			r.writes = append(r.writes, write)
		}
	}
	return nil
}

// WriteMore runs the recorders' writes in the same transaction, after the insert.
func (r *Recording) WriteMore(ctx context.Context, tx processlog.Tx) error {
	for _, write := range r.writes {
		if err := write(ctx, tx, r.Inserted); err != nil {
			return err
		}
	}
	r.writes = nil
	return nil
}

// Watched reports whether this process sees the end of the transaction itself.
func (r *Recording) Watched() bool { return r.watched }

// Written stores the result of the insert.
func (r *Recording) Written(inserted []processlog.Inserted) { r.Inserted, r.at = inserted, time.Now() }

// NotifyRecorded calls Observer.Recorded for each new entry.
func (r *Recording) NotifyRecorded(ctx context.Context) {
	b := r.intake.Base
	if b.Observer.Recorded == nil {
		return
	}
	for i := range r.Drafts {
		if d := &r.Drafts[i]; !r.Inserted[i].Duplicate {
			Tell(b, b.Observer.Recorded, observe.RecordedEvent{
				Context: ctx, ID: r.Inserted[i].ID, IdempotencyKey: d.IdempotencyKey, BusinessType: d.BusinessType, BusinessID: d.BusinessID})
		}
	}
}

// Unseen starts polling for the commit, because this process does not see the end of the transaction. It does not poll
// if the reconciler will enqueue all entries in time. It drops the contents and headers, because a poller may keep the
// recording for a minute after a rollback.
func (r *Recording) Unseen() {
	for i := range r.Drafts {
		r.Drafts[i].Content, r.Drafts[i].Headers = nil, nil
	}
	for i := range r.Drafts {
		d, in := &r.Drafts[i], &r.Inserted[i]
		if in.Duplicate || d.Done || d.Delay > r.intake.near() || !r.intake.source.Wants(d.BusinessType, d.Delay) {
			continue
		}
		// All entries of one Record call commit together, so polling for one is enough.
		r.poller.Add(UnseenCommit{Key: d.IdempotencyKey, ID: in.ID, Committed: r.found, Told: &r.told})
		return
	}
}

// near returns how long before its due time the reconciler finds an entry at the latest. An entry that is due later
// than near from now needs no poll.
func (in *intake) near() time.Duration {
	if in.source.Reach() == ReachAll {
		return 4 * in.ReconcileInterval
	}
	return 2 * in.PollInterval
}

// found routes the entries after a poll has found their commit.
func (r *Recording) found() {
	r.once.Do(func() { r.intake.route(r.fresh(0)) })
}

// Committed routes the entries after the caller or the connection has reported the commit.
func (r *Recording) Committed() {
	r.told.Store(true)
	r.once.Do(func() {
		failpoint.Reach(failpoint.CommitReported)
		r.intake.route(r.fresh(0))
	})
}

// Unknown handles a transaction whose result is unknown. It releases the reserved slots and enqueues the entries to be
// due in one second or later. A claim then finds out whether they exist.
func (r *Recording) Unknown() {
	r.once.Do(func() {
		r.giveBack()
		clear(r.reservations)
		r.intake.enqueueFresh(r.fresh(time.Second))
	})
}

// RolledBack releases the reserved slots.
func (r *Recording) RolledBack() { r.once.Do(r.giveBack) }

func (r *Recording) giveBack() {
	for i, reservation := range r.reservations {
		if reservation != nil {
			r.intake.claimSchedule.cancel(r.Drafts[i].BusinessType, reservation)
		}
	}
}

// fresh returns the entries that were inserted and must run. If atLeast is positive, none is due sooner than atLeast
// from now. fresh releases the reservations of duplicates.
func (r *Recording) fresh(atLeast time.Duration) []freshEntry {
	earliest := time.Now().Add(atLeast)
	list := make([]freshEntry, 0, len(r.Drafts))
	for i := range r.Drafts {
		d, in := &r.Drafts[i], &r.Inserted[i]
		if in.Duplicate {
			if reservation := r.reservations[i]; reservation != nil {
				r.intake.claimSchedule.cancel(d.BusinessType, reservation)
			}
			continue
		}
		if d.Done {
			continue
		}
		due := r.at.Add(processlog.DueIn(d.Delay))
		if due.Before(earliest) && atLeast > 0 {
			due = earliest
		}
		list = append(list, freshEntry{id: in.ID, key: d.IdempotencyKey, businessType: d.BusinessType, token: d.Token, watched: r.watched, reservation: r.reservations[i], due: due})
	}
	return list
}
