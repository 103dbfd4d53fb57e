package compensator

import (
	"context"
	"fmt"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/processlog"
)

// Schedule says when a periodic type has its slots: Next returns the first one after a moment, in UTC, or the zero time:
// there is none. It must depend on nothing but its argument, be the same in every process, and return: all periodic types
// wait for one that does not, and so does the end of Run. Every is one; module cron makes one of a cron expression.
type Schedule interface {
	Next(after time.Time) time.Time
}

// Every is the schedule whose slots are the multiples of d, counted in UTC: with an hour, each full hour.
func Every(d time.Duration) Schedule { return every(d) }

type every time.Duration

func (d every) Next(after time.Time) time.Time {
	return after.Truncate(time.Duration(d)).Add(time.Duration(d))
}

// PeriodicConfig says how a type is periodic. The zero value works.
type PeriodicConfig struct {
	// CatchUp is how many slots are made up for of those that passed while no process ran, or the database was away, refused
	// or too slow: the newest ones. The others are logged, as a rule. Default 1, at most 500.
	CatchUp int
}

func (cfg PeriodicConfig) validate() error {
	if cfg.CatchUp < 1 || cfg.CatchUp > processlog.MaxRows {
		return &FieldError{Field: "CatchUp", Reason: fmt.Sprintf("%d: want 1 to %d", cfg.CatchUp, processlog.MaxRows)}
	}
	return nil
}

// Periodic has one entry of t recorded for each slot of schedule once it is there, by the database's clock, and never
// before: by whichever process is in Run, under SlotID, with the slot as its value, in UTC. Each process registers it,
// before Run, also with a type that is only declared.
//
// Slots count from the first registration in this database on. How far the type has come is kept under its name, whatever
// is purged: another schedule goes on from there, and so does a type that was not registered for a while; another name
// begins afresh. A missing table is a *FieldError: see Migrate.
func Periodic(ctx context.Context, t *Type[time.Time], schedule Schedule, cfg PeriodicConfig) error {
	setDefault(&cfg.CatchUp, 1)
	if err := cfg.validate(); err != nil {
		return err
	}
	if schedule == nil {
		return &FieldError{Field: "schedule", Reason: "is nil"}
	}
	return t.c.engine.Recur(ctx, engine.Period{Name: t.name, Schedule: schedule.Next, CatchUp: cfg.CatchUp,
		Do: func(ctx context.Context, from time.Time, slots []time.Time, _ time.Time) (bool, error) {
			var taken []error
			moved, err := t.c.atSlot(ctx, t.name, from, slots[len(slots)-1], func(ctx context.Context, tx *ScopedTx) (err error) {
				taken, err = recordSlots(ctx, tx, t, slots)
				return err
			})
			if moved && len(taken) > 0 {
				t.c.log.Warn("compensator: slots of a periodic type are not made, for entries of another type have their ids",
					"type", t.name, "slots", len(taken), "first", taken[0])
			}
			return moved, err
		}})
}

// SlotID is the idempotent id of a slot's entry: "settle_day@2026-03-29T01:00:00Z".
func SlotID(businessType string, slot time.Time) IdempotentID {
	return IdempotentID(businessType + "@" + slot.UTC().Format("2006-01-02T15:04:05.999Z07:00"))
}

// recordSlots records the entries of slots. One of t that is there already is its slot's, whatever it holds, for a person has made
// it; the ids that another type has taken are told. A refusal would hold up all later slots for good.
func recordSlots(ctx context.Context, tx *ScopedTx, t *Type[time.Time], slots []time.Time) (taken []error, err error) {
	entries := make([]NewEntry, len(slots))
	for i, slot := range slots {
		entries[i] = t.Entry(slot, Options{IdempotentID: SlotID(t.name, slot)})
		entries[i].slot = true
	}
	receipt, err := t.c.Record(ctx, tx, entries...)
	if err != nil {
		return nil, err
	}
	for i, in := range receipt.rec.Inserted {
		if in.Duplicate && in.BusinessType != t.name {
			taken = append(taken, &OtherTypeError{IdempotentID: receipt.Entries[i].IdempotentID, Recorded: in.BusinessType, Asked: t.name})
		}
	}
	return taken, nil
}

// slotTimeout bounds such a transaction: a connection that has gone silent must not hold up the slots of other types for good.
const slotTimeout = 10 * time.Second

// atSlot runs work in a transaction that moves a mark. It reports false, and has done nothing, where another process has
// moved it, or is about to.
func (c *Compensator) atSlot(ctx context.Context, name string, from, to time.Time, work func(context.Context, *ScopedTx) error) (moved bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, slotTimeout)
	defer cancel()
	err = c.InTx(ctx, func(ctx context.Context, tx *ScopedTx) (err error) {
		if moved, err = c.store.MoveMark(ctx, tx, name, from, to); err != nil || !moved {
			return err
		}
		failpoint.Reach(failpoint.MarkMoved)
		return work(ctx, tx)
	})
	return moved && err == nil, err
}
