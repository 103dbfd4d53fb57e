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

// refusals is what an actor was refused in the minute that began then.
type refusals struct {
	since time.Time
	n     int
}

const (
	refusalsKept   = 10     // of an actor a minute on record; further ones are refused all the same
	refusalsActors = 10_000 // that are remembered at a time
)

// refuse puts a refusal on record, and returns ErrNotAllowed.
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

// refuseType refuses what names a type. What is on record is of that type where the actor sees it and the log has it: any other
// name stands beside what was tried, for of a name that somebody has made up there would be a type from then on, in what others are
// listed, and who may not see a type could tell by the record whether there is one.
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

// hide refuses what is done to an entry that may not be seen, or is not there: nobody can tell one from the other, by the
// answer, by what is put on record, which is of no type and has the id that was named, or by what becomes of it when that fails.
func (d *Admin) hide(ctx context.Context, a Actor, op processlog.Operation, ref processlog.Ref) error {
	op.EntryID, _ = ref.(processlog.ID)
	if err := d.refuse(ctx, a, op); err != ErrNotAllowed {
		return err
	}
	return notFound(ref)
}

// rejected are those of the entries named by an action that are refused: of those that may not be seen the id alone, as hide
// does.
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

// refuseSome puts on record what an action refuses, if anything. An error: it could not, and nothing of the action is to be done.
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

// countRefusal reports whether one more of an actor is put on record.
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
