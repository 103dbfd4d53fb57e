package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// refusals counts the refusals of one actor in the minute that begins at startedAt.
type refusals struct {
	startedAt time.Time
	n         int
}

const (
	maxRefusals      = 10     // maximum number of records per actor and minute; further refusals are not recorded
	maxRefusalActors = 10_000 // maximum number of actors whose refusals are counted
)

// recordRefusal records a refusal and returns ErrNotAllowed.
func (d *Admin) recordRefusal(ctx context.Context, a Actor, op processlog.Operation) error {
	if !d.countRefusal(a, time.Now()) {
		return ErrNotAllowed
	}
	op.Actor, op.Subject, op.Refused = processlog.FitActor(a.ID), processlog.FitActor(op.Subject), true // The request decides the length of both.
	if err := d.log.Operations().Operate(ctx, op); err != nil {
		return errors.Join(ErrNotAllowed, err)
	}
	return ErrNotAllowed
}

// recordTypeRefusal refuses an action on a type, and writes an audit record of the refusal. The record has the type only if the
// actor sees the type and the log has it. Otherwise the name is in the record's Subject. So an actor who invents a name
// adds no type to the lists of other actors, and does not learn whether a hidden type exists.
func (d *Admin) recordTypeRefusal(ctx context.Context, a Actor, named string, op processlog.Operation) error {
	ctx = withAction(ctx)
	op.Subject = named
	if d.mayDo(ctx, a, SeeOverview, Subject{Type: named}) || d.mayDo(ctx, a, SeeEntries, Subject{Type: named}) {
		if types, err := d.readTypes(ctx); err == nil && slices.Contains(types, named) {
			op.BusinessType, op.Subject = named, ""
		}
	}
	return d.recordRefusal(ctx, a, op)
}

// refuseHidden refuses an action on an entry that does not exist or that the actor may not see. The actor cannot distinguish
// the two cases. The answer is the same, and the record holds the id from the request and no type. If the record cannot
// be written, the actor gets the same error in both cases.
func (d *Admin) refuseHidden(ctx context.Context, a Actor, op processlog.Operation, ref processlog.Ref) error {
	op.EntryID, _ = ref.(processlog.ID)
	if err := d.recordRefusal(ctx, a, op); err != ErrNotAllowed {
		return err
	}
	return newNotFoundError(ref)
}

// refusedEntries counts the refused entries of one action, and keeps the first one for the record. If the first one is
// hidden, it keeps only the id.
type refusedEntries struct {
	n, total     int
	firstRefusal struct {
		id           compensator.EntryID
		businessType string
	}
}

func (r *refusedEntries) addRefusal(id compensator.EntryID, businessType string) {
	if r.n++; r.n == 1 {
		r.firstRefusal.id, r.firstRefusal.businessType = id, businessType
	}
}

// recordRefusals records the refusal of some entries of an action, if any was refused. If recordRefusals returns an
// error, nothing was recorded, and the action must do nothing.
func (d *Admin) recordRefusals(ctx context.Context, a Actor, op processlog.Operation, refused refusedEntries) error {
	if refused.n == 0 {
		return nil
	}
	op.EntryID, op.BusinessType, op.Subject = refused.firstRefusal.id, refused.firstRefusal.businessType, refusedCount(refused.n, refused.total)
	if err := d.recordRefusal(ctx, a, op); err != ErrNotAllowed {
		return err
	}
	return nil
}

// refusedCount returns the subject of a refusal of several entries in the audit log. Package ui translates it.
func refusedCount(n, total int) string {
	return fmt.Sprintf("%d of %s", n, processlog.EntryCount(total))
}

// countRefusal counts a refusal. It reports whether the refusal must be recorded.
func (d *Admin) countRefusal(a Actor, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.refusals[a.ID]
	if now.Sub(r.startedAt) >= time.Minute {
		if len(d.refusals) >= maxRefusalActors {
			clear(d.refusals)
		}
		r = refusals{startedAt: now}
	}
	r.n++
	d.refusals[a.ID] = r
	return r.n <= maxRefusals
}
