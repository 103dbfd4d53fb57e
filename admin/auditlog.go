package admin

import (
	"context"

	"github.com/compensator-go/compensator/processlog"
)

// What people did, what selects it, and a page of it, newest first.
type (
	AuditLogRecord = processlog.AuditLogRecord
	AuditLogFilter = processlog.AuditLogFilter
	AuditLogPage   = processlog.AuditLogPage
)

// AuditLog reads what people did: changes of entries, and operations, refused ones too. It wants SeeAuditLog, asked for each
// type; for what is of no type, or of an entry that was purged, or was not to be seen by whom it was refused, with none. To who may
// not see all, what was done to a type that the log has no entry of is told where that was among the newest 1,000 operations, or
// where the type has ever been paused.
func (d *Admin) AuditLog(ctx context.Context, a Actor, filter AuditLogFilter) (AuditLogPage, error) {
	sees, inFull := d.sight(a, SeeAuditLog), d.sight(a, SeeErrors)
	types, some, err := d.within(ctx, sees, "", filter.BusinessTypes, "")
	if err != nil || !some {
		return AuditLogPage{}, err
	}
	filter.BusinessTypes = types
	page, err := read(ctx, d, func(ctx context.Context) (AuditLogPage, error) { return d.log.Operations().AuditLog(ctx, filter) })
	page.Records = shown(page.Records, func(r *AuditLogRecord) bool {
		*r = d.maskedRecord(*r, inFull.sees(ctx, r.BusinessType))
		return sees.sees(ctx, r.BusinessType)
	})
	return page, err
}

// maskedRecord shows the entry's errors as masked does.
func (d *Admin) maskedRecord(r AuditLogRecord, errorInFull bool) AuditLogRecord {
	for _, state := range []**processlog.AuditState{&r.Before, &r.After} {
		if *state != nil {
			blank := **state
			blank.LastError = d.told(blank.LastError, errorInFull)
			*state = &blank
		}
	}
	return r
}
