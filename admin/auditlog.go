package admin

import (
	"context"

	"github.com/compensator-go/compensator/processlog"
)

// These are the types of the audit log. Package processlog describes them in full.

type (
	AuditLogRecord = processlog.AuditLogRecord // a change of an entry, or an operation, for example an export or a refusal
	AuditLogFilter = processlog.AuditLogFilter // selects records; the zero value selects all
	AuditLogPage   = processlog.AuditLogPage   // one page of records, newest first
)

// AuditLog reads the audit log. Its records are changes of entries, and operations, including refused ones. For each
// type, AuditLog asks Access for the right SeeAuditLog.
//
// Some records have no type: records of a purged entry, and refusals on an entry that the actor could not see. For
// these records AuditLog asks for SeeAuditLog with an empty type.
//
// An actor who may not see all types reads only records of types that the Admin knows. The Admin knows a type without
// entries if the type has ever been paused, or if it is among the newest 1,000 operations.
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

// maskedRecord masks the errors in r.Before and r.After, as masked does for an entry.
func (d *Admin) maskedRecord(r AuditLogRecord, errorInFull bool) AuditLogRecord {
	for _, state := range []**processlog.AuditState{&r.Before, &r.After} {
		if *state != nil {
			blank := **state
			blank.LastError = d.scrubbed(blank.LastError, errorInFull)
			*state = &blank
		}
	}
	return r
}
