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
	list := func(cursor string) ([]TrailRecord, string, error) {
		filter.Cursor = cursor
		page, err := d.log.Operations().Trail(ctx, filter)
		return page.Records, page.Next, err
	}
	may := func(r TrailRecord) bool { return sees.sees(ctx, r.BusinessType) }
	records, next, err := shown(filter.Cursor, list, may, func(r TrailRecord) TrailRecord { return d.maskedRecord(r, inFull.sees(ctx, r.BusinessType)) })
	return TrailPage{Records: records, Next: next}, err
}

// maskedRecord shows the entry's errors as masked does.
func (d *Desk) maskedRecord(r TrailRecord, errorInFull bool) TrailRecord {
	for _, state := range []**processlog.AuditState{&r.Before, &r.After} {
		if *state != nil {
			blank := **state
			blank.LastError = d.told(blank.LastError, errorInFull)
			*state = &blank
		}
	}
	return r
}
