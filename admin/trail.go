package admin

import (
	"context"

	"github.com/compensator-go/compensator/processlog"
)

// What people did, what selects it, and a page of it, newest first.
type (
	TrailRecord = processlog.TrailRecord
	TrailFilter = processlog.TrailFilter
	TrailPage   = processlog.TrailPage
)

// Trail reads what people did: changes of entries, and operations, refused ones too. It wants SeeTrail, asked for each
// type; for what is of no type, or of an entry that was purged, or was not to be seen by whom it was refused, with none. To who may
// not see all, what was done to a type that the log has no entry of is told where that was among the newest 1,000 operations, or
// where the type has ever been paused.
func (d *Admin) Trail(ctx context.Context, a Actor, filter TrailFilter) (TrailPage, error) {
	sees, inFull := d.sight(a, SeeTrail), d.sight(a, SeeErrors)
	types, some, err := d.within(ctx, sees, "", filter.BusinessTypes, "")
	if err != nil || !some {
		return TrailPage{}, err
	}
	filter.BusinessTypes = types
	page, err := read(ctx, d, func(ctx context.Context) (TrailPage, error) { return d.log.Operations().Trail(ctx, filter) })
	page.Records = shown(page.Records, func(r *TrailRecord) bool {
		*r = d.maskedRecord(*r, inFull.sees(ctx, r.BusinessType))
		return sees.sees(ctx, r.BusinessType)
	})
	return page, err
}

// maskedRecord shows the entry's errors as masked does.
func (d *Admin) maskedRecord(r TrailRecord, errorInFull bool) TrailRecord {
	for _, state := range []**processlog.AuditState{&r.Before, &r.After} {
		if *state != nil {
			blank := **state
			blank.LastError = d.told(blank.LastError, errorInFull)
			*state = &blank
		}
	}
	return r
}
