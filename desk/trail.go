package desk

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
// type; for what is of no type, or of an entry that was purged, with none.
func (d *Desk) Trail(ctx context.Context, a Actor, filter TrailFilter) (TrailPage, error) {
	sees, inFull := d.sight(a, SeeTrail), d.sight(a, SeeErrors)
	var page TrailPage
	for range listRounds {
		found, err := d.log.Operations().Trail(ctx, filter)
		if err != nil {
			return TrailPage{}, err
		}
		for _, r := range found.Records {
			if sees.sees(ctx, r.BusinessType) {
				page.Records = append(page.Records, maskedRecord(r, inFull.sees(ctx, r.BusinessType)))
			}
		}
		page.Next, filter.Cursor = found.Next, found.Next
		if len(page.Records) > 0 || found.Next == "" {
			break
		}
	}
	return page, nil
}

// maskedRecord shows the entry's errors as masked does.
func maskedRecord(r TrailRecord, errorInFull bool) TrailRecord {
	for _, state := range []**processlog.AuditState{&r.Before, &r.After} {
		if *state != nil && !errorInFull {
			blank := **state
			blank.LastError = shape(blank.LastError)
			*state = &blank
		}
	}
	return r
}
