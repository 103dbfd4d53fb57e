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

type refusals struct {
	startedAt time.Time
	n         int
}

const (
	maxRefusals      = 10     // maximum number of records per actor and minute; further refusals are not recorded
	maxRefusalActors = 10_000 // maximum number of actors whose refusals are counted
)

func (d *Admin) recordRefusal(ctx context.Context, a Actor, op processlog.Operation) error {
	if !d.countRefusal(a, time.Now()) {
		return ErrNotAllowed
	}
	// Shorten the actor and the subject, because both come from the request and may be too long.
	op.Actor, op.Subject, op.Refused = processlog.FitActor(a.ID), processlog.FitActor(op.Subject), true
	if err := d.log.Operations().Operate(ctx, op); err != nil {
		return errors.Join(ErrNotAllowed, err)
	}
	return ErrNotAllowed
}

// recordTypeRefusal records that an action on a type was refused. The parameter named is the name of the type in the
// request. The record has this name as its type if the log knows the type and the actor may see it. In all other cases
// the name is only the subject of the record. Otherwise an invented name would appear in lists of types, and a record
// would reveal that a hidden type exists.
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

// refuseHidden gives the same answer for a hidden entry and for an absent one.
func (d *Admin) refuseHidden(ctx context.Context, a Actor, op processlog.Operation, ref processlog.Ref) error {
	op.EntryID, _ = ref.(processlog.ID)
	if err := d.recordRefusal(ctx, a, op); err != ErrNotAllowed {
		return err
	}
	return newNotFoundError(ref)
}

// refusedEntries counts the entries for which an action was refused. It keeps the first refused entry for the audit
// log. If the actor may not see this entry, businessType is empty.
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

// recordRefusals writes an audit record about the refused entries. If it returns an error, nothing was recorded, and
// the action must do nothing.
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

// refusedCount returns a text that package ui recognizes and translates.
func refusedCount(n, total int) string {
	return fmt.Sprintf("%d of %s", n, processlog.EntryCount(total))
}

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
