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

// Recording is the entries of one Record call: the slots they are born with, and where they go once their transaction has
// ended. Only the first word about that end counts. The zero value with Drafts is ready for Of.
type Recording struct {
	Drafts   []processlog.Draft // unique by idempotency key
	Inserted []processlog.Inserted

	intake       *intake
	engine       *Engine
	writes       []func(ctx context.Context, tx processlog.Tx, inserted []processlog.Inserted) error // of recorders
	reservations []Reservation                                                                       // of the drafts inserted with a lease; nil for the others
	at           time.Time                                                                           // of the insert
	watched      bool                                                                                // the end of the transaction is seen, and not only told
	told         atomic.Bool                                                                         // the caller has reported the commit
	poller       CommitPoller
	once         sync.Once
}

// Of makes the recording e's.
func (r *Recording) Of(e *Engine) {
	r.engine, r.intake, r.poller = e, e.intake, e.poller
	r.reservations = make([]Reservation, len(r.Drafts))
}

// Reserve sets slots aside for the drafts that can be inserted with a lease: due at once, of a type that runs here. It is for
// transactions whose end is seen: in others the slots could not be given back.
func (r *Recording) Reserve() {
	r.watched = true
	if r.intake.settler.behind() {
		return
	}
	for i := range r.Drafts {
		d := &r.Drafts[i]
		t := r.intake.types.accepting(d.BusinessType)
		if t == nil || t.finder() != nil || d.Done || d.Delay > 0 || t.BatchWait > 0 {
			continue
		}
		// Inserted with a lease it would run alone: those that come together are claimed together, for one batch.
		if len(r.Drafts) > 1 && t.Seats() > 1 {
			t.slots.Recorded()
			continue
		}
		if reservation := t.slots.Reserve(1); reservation != nil {
			r.reservations[i], d.Lease = reservation, t.Lease
		}
	}
}

// Prepare asks the recorders before anything is written. Its errors name what is wrong with a draft.
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

// WriteMore writes in the same transaction what the recorders have to write, after the insert.
func (r *Recording) WriteMore(ctx context.Context, tx processlog.Tx) error {
	for _, write := range r.writes {
		if err := write(ctx, tx, r.Inserted); err != nil {
			return err
		}
	}
	r.writes = nil
	return nil
}

// Watched reports whether the end of the transaction is seen.
func (r *Recording) Watched() bool { return r.watched }

// Written tells what the insert has answered.
func (r *Recording) Written(inserted []processlog.Inserted) { r.Inserted, r.at = inserted, time.Now() }

// NotifyRecorded tells the observer of what is new.
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

// Unseen polls for the commit, because this process does not see the end of the transaction. It does not poll for entries that
// the reconciler enqueues in time.
func (r *Recording) Unseen() {
	for i := range r.Drafts {
		d, in := &r.Drafts[i], &r.Inserted[i]
		if in.Duplicate || d.Done || d.Delay > r.intake.near() || !r.intake.source.Wants(d.BusinessType, d.Delay) {
			continue
		}
		// All entries of one Record commit together, so one of them is enough.
		r.poller.Add(UnseenCommit{Key: d.IdempotencyKey, ID: in.ID, Committed: r.found, Told: &r.told})
		return
	}
}

// near is how far ahead of their due times entries are found by the reconciler at the latest.
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

// Committed sends the entries on their way.
func (r *Recording) Committed() {
	r.told.Store(true)
	r.once.Do(func() {
		failpoint.Reach(failpoint.CommitReported)
		r.intake.route(r.fresh(0))
	})
}

// Unknown: perhaps they exist. The queue is told of them, due in a second at the earliest, and a claim finds out.
func (r *Recording) Unknown() {
	r.once.Do(func() {
		r.giveBack()
		clear(r.reservations)
		r.intake.enqueueFresh(r.fresh(time.Second))
	})
}

// RolledBack gives the reserved slots back.
func (r *Recording) RolledBack() { r.once.Do(r.giveBack) }

func (r *Recording) giveBack() {
	for i, reservation := range r.reservations {
		if reservation != nil {
			r.intake.claimSchedule.cancel(r.Drafts[i].BusinessType, reservation)
		}
	}
}

// fresh lists what was really inserted and is to run, due not before atLeast from now.
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
