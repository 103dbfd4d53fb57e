package sim

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

const periodicStream = 5820

func (w *world) drawPeriodic() {
	rng := rand.New(rand.NewPCG(w.seed, periodicStream))
	if w.plan.calm || rng.IntN(8) > 0 {
		return
	}
	every := time.Duration(1+rng.IntN(12)) * time.Second
	w.apart.slots = slots{every: every, last: w.began.Add(w.plan.chaos)}
}

type slots struct {
	every time.Duration
	last  time.Time
}

func (s slots) Next(after time.Time) time.Time {
	next := compensator.Every(s.every).Next(after)
	if next.After(s.last) {
		return time.Time{}
	}
	return next
}

// periodic registers the periodic type. The field CatchUp is so large that the instances record every slot that they
// missed during an outage. So every slot must have an entry.
func (n *instance) periodic(c *compensator.Compensator) error {
	if n.w.apart.slots.every == 0 {
		return nil
	}
	t, err := compensator.Declare[time.Time](context.Background(), c, plainType, nil)
	if err != nil {
		return err
	}
	return compensator.Periodic(context.Background(), t, n.w.apart.slots, &compensator.PeriodicConfig{CatchUp: processlog.MaxRows})
}

func (o *oracle) checkSlotLocked(row processlog.Row, fate *keyFate) {
	name, at, found := strings.Cut(string(row.IdempotencyKey), "@")
	if !found || name != plainType {
		return
	}
	o.sights[sawSlots]++
	slot, err := time.Parse(time.RFC3339, at)
	switch {
	case err != nil:
		o.failLocked("G23: the key %q of a slot's entry cannot be parsed: %v", row.IdempotencyKey, err)
	case row.CreatedAt.Before(slot) && !o.w.plan.active[storeJump]:
		o.failLocked("G23: slot %v was recorded at %v", slot, row.CreatedAt)
	case fate.rows > 1:
		o.failLocked("G23: slot %v was recorded %d times", slot, fate.rows)
	}
}

func (w *world) checkSlots() {
	if w.apart.slots.every == 0 {
		return
	}
	var missing time.Time
	all := func() bool {
		missing = w.oracle.missingSlot()
		return missing.IsZero()
	}
	if !w.await(2*time.Minute, all) {
		w.oracle.fail("G23: slot %v has no entry", missing)
	}
}

// After a loss, missingSlot returns the zero time, because the lost slots are unknown.
func (o *oracle) missingSlot() time.Time {
	now := o.w.store.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.losses) > 0 {
		return time.Time{}
	}
	for slot := o.w.apart.slots.Next(o.w.began); !slot.IsZero() && !slot.After(now); slot = o.w.apart.slots.Next(slot) {
		if fate := o.orders[string(compensator.SlotKey(plainType, slot))]; fate == nil || fate.rows == 0 {
			return slot
		}
	}
	return time.Time{}
}
