package admin

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// PeriodicTypes are the periodic types of a log, as an actor may see them.
type PeriodicTypes struct {
	At    time.Time      `json:"at"`    // when the slots were read, by the database's clock
	Types []PeriodicType `json:"types"` // sorted by name
}

// PeriodicType is a business type for which Periodic was called. The database stores its last slot. Only processes know
// its schedule.
type PeriodicType struct {
	Type string `json:"type"` // business type

	Last  time.Time           `json:"last"`                // the last slot that was recorded; zero if no slot has been recorded yet, as far as this process knows
	Entry compensator.EntryID `json:"entry_id,omitzero"`   // its entry; zero if there is none, or if the actor may not see it
	State compensator.State   `json:"state"`               // state of the entry, if Entry is set
	Ended time.Time           `json:"ended_at,omitzero"`   // when the entry ended; zero if it has not
	Since time.Time           `json:"registered,omitzero"` // time of the first registration, if Last is zero

	// Schedule says from where the schedule is known. With ScheduleUnknown, Next is empty and Missed is 0.
	Schedule ScheduleSource `json:"schedule"`
	Process  string         `json:"process,omitempty"`  // with ScheduleOfProcess: name of the process
	Next     []time.Time    `json:"next"`               // the next slots, at most three. Fewer if the schedule ends, or if the process has not reported later ones
	Missed   int            `json:"missed"`             // slots that have passed and are not recorded, at most MaxMissed. Slots of the last seconds count, too
	MissedAt time.Time      `json:"missed_at,omitzero"` // the first missed slot
}

// ScheduleSource says from where an Admin knows the schedule of a periodic type.
type ScheduleSource string

// The sources of a schedule.
const (
	ScheduleUnknown   ScheduleSource = ""        // no process of the last day has said that it records slots of the type
	ScheduleHere      ScheduleSource = "here"    // the process that serves the Admin records slots of the type
	ScheduleOfProcess ScheduleSource = "process" // another process has stored its next slots in the database. They are up to a minute old, or older if the process has
// ended
)

// MaxMissed is the largest value of PeriodicType.Missed. With ScheduleOfProcess, Missed is at most three: the Admin
// knows only the three slots that were the next ones when the process stored them.
const MaxMissed = 1000

// HasPeriodic reports whether Periodic was called in the process that serves the Admin. It sends no query. HasPeriodic
// returns false for the zero Admin.
func (d *Admin) HasPeriodic() bool { return d.log != nil && len(d.log.Schedules()) > 0 }

// Periodic shows the periodic types for which the actor has SeeOverview. PeriodicType.Entry also needs SeeEntries for
// the type. PeriodicType.Process also needs SeeOverview for the empty type. Periodic sends at most three statements,
// however many types there are.
func (d *Admin) Periodic(ctx context.Context, a Actor) (PeriodicTypes, error) {
	type read struct {
		now   time.Time
		marks map[string]time.Time
	}
	r, err := runQuery(ctx, d, func(ctx context.Context) (r read, err error) {
		r.now, r.marks, err = d.log.Operations().PeriodicMarks(ctx)
		return r, err
	})
	if err != nil {
		return PeriodicTypes{}, err
	}
	found, mayRead := PeriodicTypes{At: r.now}, d.rightsOf(a, SeeOverview)
	marks := make(map[string]time.Time)
	for name, mark := range r.marks {
		if mayRead.holds(ctx, name) {
			found.Types, marks[name] = append(found.Types, PeriodicType{Type: name, Last: mark}), mark
		}
	}
	if len(found.Types) == 0 && !mayRead.holds(ctx, "") {
		if types, err := d.readTypes(ctx); err != nil || !slices.ContainsFunc(types, func(name string) bool { return mayRead.holds(ctx, name) }) {
			return PeriodicTypes{}, cmp.Or(err, ErrNotAllowed)
		}
	}
	slices.SortFunc(found.Types, func(a, b PeriodicType) int { return strings.Compare(a.Type, b.Type) })
	if err := d.addSlotEntries(ctx, a, found.Types); err != nil {
		return PeriodicTypes{}, err
	}
	d.addSchedules(ctx, mayRead, r.now, found.Types)
	return found, nil
}

func (d *Admin) addSlotEntries(ctx context.Context, a Actor, types []PeriodicType) error {
	var keys []string
	byKey := make(map[string]*PeriodicType, len(types))
	mayRead := d.rightsOf(a, SeeEntries)
	for i := range types {
		key := d.log.SlotKey(types[i].Type, types[i].Last)
		if byKey[key] = &types[i]; mayRead.holds(ctx, types[i].Type) {
			keys = append(keys, key)
		}
	}
	rows, err := runQuery(ctx, d, func(ctx context.Context) ([]processlog.Row, error) {
		return d.log.Operations().OutlinesByKey(ctx, keys)
	})
	for i := range rows {
		if t := byKey[string(rows[i].IdempotencyKey)]; t.Type == rows[i].BusinessType { // An entry of another type may have the key.
			if t.Entry, t.State = rows[i].ID, rows[i].State; t.State.Terminal() {
				t.Ended = rows[i].NextAt
			}
		}
	}
	return err
}

func (d *Admin) addSchedules(ctx context.Context, mayRead *typeRights, now time.Time, types []PeriodicType) {
	byName := make(map[string]func(after time.Time) (time.Time, error))
	for _, s := range d.log.Schedules() {
		byName[s.Name] = s.Next
	}
	var instances []Instance
	if slices.ContainsFunc(types, func(t PeriodicType) bool { return byName[t.Type] == nil }) && d.hasInstances {
		instances, _, _ = d.readInstances(ctx) // Ignore an error. Without the instances, only the schedules of other processes are unknown.
	}
	for i := range types {
		t := &types[i]
		if next := byName[t.Type]; next != nil {
			t.Schedule = ScheduleHere
			t.addSlots(ctx, now, next)
		} else if process, next := lastSchedule(instances, t.Type); next != nil {
			if t.Schedule = ScheduleOfProcess; mayRead.holds(ctx, "") {
				t.Process = process
			}
			t.addSlots(ctx, now, next)
		}
	}
}

// lastSchedule looks for the other process that has a schedule of the type and was seen last. It returns the name of
// that process. The result next is a function that returns the slots that the process has reported, and then the zero
// time. If no process has a schedule of the type, next is nil.
func lastSchedule(instances []Instance, businessType string) (process string, next func(after time.Time) (time.Time, error)) {
	var seenAt time.Time
	for _, i := range instances {
		at := slices.IndexFunc(i.Types, func(t InstanceType) bool { return t.Name == businessType && t.Schedule != nil })
		if at < 0 || !seenAt.Before(i.SeenAt) {
			continue
		}
		slots := i.Types[at].Schedule.Next
		seenAt, process, next = i.SeenAt, i.Name, func(after time.Time) (time.Time, error) {
			for _, slot := range slots {
				if slot.After(after) {
					return slot, nil
				}
			}
			return time.Time{}, nil
		}
	}
	return process, next
}

// addSlots adds the slots after t.Last to t.Next and t.Missed. The parameter next is the schedule, and may be code of
// the user. If next returns an error, addSlots stops.
func (t *PeriodicType) addSlots(ctx context.Context, now time.Time, next func(after time.Time) (time.Time, error)) {
	mark := t.Last
	if t.Entry.IsZero() && t.Schedule == ScheduleHere {
		if slot, err := next(mark.Add(-time.Millisecond)); err == nil && !slot.Equal(mark) {
			t.Last, t.Since = time.Time{}, mark // The mark is the time of the registration, and not a slot.
		}
	}
	for slot := mark; len(t.Next) < processlog.InstanceSlots && ctx.Err() == nil; {
		var err error
		switch slot, err = next(slot); {
		case err != nil || slot.IsZero():
			return
		case slot.After(now):
			t.Next = append(t.Next, slot)
		case t.Missed == 0:
			t.Missed, t.MissedAt = 1, slot
		case t.Missed < MaxMissed:
			t.Missed++
		default:
			slot = now // Count no more, and go on with the slots to come.
		}
	}
}
