package compensator

import (
	"context"
	"fmt"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/features"
	"github.com/compensator-go/compensator/processlog"
)

// Schedule computes the slots of a periodic type: the times at which an entry is due. Next returns the first slot after
// a time, in UTC, or the zero time if there is none. The result must depend on the argument only, and must be the same
// in every process. Next must return quickly, because all periodic types and the end of Run wait for it. Module cron
// makes a Schedule from a cron expression.
type Schedule interface {
	// Next returns the first slot after a time, or the zero time if there is none.
	Next(after time.Time) time.Time
}

// Every returns the schedule whose slots are the multiples of d in UTC. For example, Every(time.Hour) has a slot at
// each full hour.
func Every(d time.Duration) Schedule { return every(d) }

type every time.Duration

func (d every) Next(after time.Time) time.Time {
	return after.Truncate(time.Duration(d)).Add(time.Duration(d))
}

// PeriodicConfig configures a periodic type. The zero value works.
type PeriodicConfig struct {
	// CatchUp is the number of missed slots whose entries the library records later. A slot is missed if, at its time,
	// no process runs, or the database is down, refuses the entry or is too slow. The library records entries for the
	// newest missed slots. The library skips all other missed slots, and normally logs them. Default 1, at most 500.
	CatchUp int
}

func (cfg PeriodicConfig) validate() error {
	if cfg.CatchUp < 1 || cfg.CatchUp > processlog.MaxRows {
		return &FieldError{Field: "CatchUp", Reason: fmt.Sprintf("%d: want 1 to %d", cfg.CatchUp, processlog.MaxRows)}
	}
	return nil
}

// Periodic records one entry of t for each slot of schedule. It records the entry when the database's clock has reached
// the slot, never earlier. Any process in Run may record it. The idempotency key is SlotKey, and the value is the slot,
// in UTC. Each process must call Periodic before Run. Periodic also works for a type that is only declared.
//
// A type starts with the next slot after the time at which a process first called Periodic for this type. The database
// stores the latest recorded slot under the type's name, and no purge removes it. A type with a new name has no stored
// slot, so it starts like a new type. If you change the schedule, the type continues after the stored slot. The type
// also continues after that slot if no process has registered the type for a while.
//
// cfg may be nil. A missing table is a *FieldError: see Migrate. While Run runs, Periodic returns ErrRunning.
func Periodic(ctx context.Context, t *Type[time.Time], schedule Schedule, cfg *PeriodicConfig) error {
	var filled PeriodicConfig
	if cfg != nil {
		filled = *cfg
	}
	setDefault(&filled.CatchUp, 1)
	if err := filled.validate(); err != nil {
		return err
	}
	if schedule == nil {
		return &FieldError{Field: "schedule", Reason: "is nil"}
	}
	return t.c.features.Recur(ctx, features.Period{Name: t.name, Schedule: schedule.Next, CatchUp: filled.CatchUp,
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

// SlotKey returns the idempotency key of a slot's entry, for example "settle_day@2026-03-29T01:00:00Z".
func SlotKey(businessType string, slot time.Time) IdempotencyKey {
	return IdempotencyKey(businessType + "@" + slot.UTC().Format("2006-01-02T15:04:05.999Z07:00"))
}

// recordSlots records one entry for each slot. An entry of another type may already have the key of a slot. recordSlots
// then skips this slot, and adds an *OtherTypeError to the result taken. It does not return this error as err, because
// err rolls the transaction back. The mark would then stay before this slot, and no later slot would get an entry.
func recordSlots(ctx context.Context, tx *ScopedTx, t *Type[time.Time], slots []time.Time) (taken []error, err error) {
	entries := make([]NewEntry, len(slots))
	for i, slot := range slots {
		entries[i] = t.Entry(slot, Options{IdempotencyKey: SlotKey(t.name, slot)})
		entries[i].forPeriodicSlot = true
	}
	receipt, err := t.c.Record(ctx, tx, entries...)
	if err != nil {
		return nil, err
	}
	for i, in := range receipt.rec.Inserted {
		if in.Duplicate && in.BusinessType != t.name {
			taken = append(taken, &OtherTypeError{IdempotencyKey: receipt.Entries[i].IdempotencyKey, Recorded: in.BusinessType, Asked: t.name})
		}
	}
	return taken, nil
}

// slotTimeout limits the transaction that moves a mark. A mark is a row in the database with the latest slot of a
// periodic type. One goroutine moves the marks of all types. Without the limit, a connection that stops answering would
// block this goroutine, and no mark would move.
const slotTimeout = 10 * time.Second

// atSlot calls fn in the transaction that moves the mark of a periodic type to its latest slot. If another process
// moves the mark, atSlot does nothing and returns false.
func (c *Compensator) atSlot(ctx context.Context, name string, from, to time.Time, fn func(context.Context, *ScopedTx) error) (moved bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, slotTimeout)
	defer cancel()
	err = c.InTx(ctx, func(ctx context.Context, tx *ScopedTx) (err error) {
		if moved, err = c.store.MoveMark(ctx, tx, name, from, to); err != nil || !moved {
			return err
		}
		failpoint.Reach(failpoint.MarkMoved)
		return fn(ctx, tx)
	})
	return moved && err == nil, err
}
