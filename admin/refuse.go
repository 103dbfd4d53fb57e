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

// refusals counts an actor's refusals in the minute that began at since.
type refusals struct {
	since time.Time
	n     int
}

const (
	refusalsKept   = 10     // records per actor and minute; further refusals are not recorded
	refusalsActors = 10_000 // maximum number of actors remembered
)

// refuse records a refusal and returns ErrNotAllowed.
func (d *Admin) refuse(ctx context.Context, a Actor, op processlog.Operation) error {
	if !d.countRefusal(a, time.Now()) {
		return ErrNotAllowed
	}
	op.Actor, op.Refused = processlog.FitActor(a.ID), true
	if err := d.log.Operations().Operate(ctx, op); err != nil {
		return errors.Join(ErrNotAllowed, err)
	}
	return ErrNotAllowed
}

// refuseType refuses an action on a type. The record is of that type if the actor sees it and the log has it. Otherwise
// the name goes into Subject. A record with an invented type would add that type to the log, and to lists of other
// actors. It would also reveal to the actor whether a hidden type exists.
func (d *Admin) refuseType(ctx context.Context, a Actor, named string, op processlog.Operation) error {
	ctx = acting(ctx)
	op.Subject = named
	if d.may(ctx, a, SeeOverview, Subject{Type: named}) || d.may(ctx, a, SeeEntries, Subject{Type: named}) {
		if types, err := d.types(ctx); err == nil && slices.Contains(types, named) {
			op.BusinessType, op.Subject = named, ""
		}
	}
	return d.refuse(ctx, a, op)
}

// hide refuses an action on an entry that does not exist or that the actor may not see. Nothing tells the two apart.
// The answer is the same, and the record has the id that was named and no type. An error while recording has the same
// effect.
func (d *Admin) hide(ctx context.Context, a Actor, op processlog.Operation, ref processlog.Ref) error {
	op.EntryID, _ = ref.(processlog.ID)
	if err := d.refuse(ctx, a, op); err != ErrNotAllowed {
		return err
	}
	return notFound(ref)
}

// rejected counts the refused entries of an action and keeps the first one. A hidden entry has only its id here, as in
// hide.
type rejected struct {
	n, of int
	first struct {
		id           compensator.EntryID
		businessType string
	}
}

func (r *rejected) add(id compensator.EntryID, businessType string) {
	if r.n++; r.n == 1 {
		r.first.id, r.first.businessType = id, businessType
	}
}

// refuseSome records the refusal of some entries of an action, if any was refused. If it returns an error, nothing was
// recorded, and the action must do nothing.
func (d *Admin) refuseSome(ctx context.Context, a Actor, op processlog.Operation, some rejected) error {
	if some.n == 0 {
		return nil
	}
	op.EntryID, op.BusinessType, op.Subject = some.first.id, some.first.businessType, fmt.Sprintf("%d of %d entries", some.n, some.of)
	if err := d.refuse(ctx, a, op); err != ErrNotAllowed {
		return err
	}
	return nil
}

// countRefusal counts a refusal. It reports whether the refusal must be recorded.
func (d *Admin) countRefusal(a Actor, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.refusals[a.ID]
	if now.Sub(r.since) >= time.Minute {
		if len(d.refusals) >= refusalsActors {
			clear(d.refusals)
		}
		r = refusals{since: now}
	}
	r.n++
	d.refusals[a.ID] = r
	return r.n <= refusalsKept
}
