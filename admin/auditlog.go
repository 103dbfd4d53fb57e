package admin

import (
	"context"
	"slices"

	"github.com/compensator-go/compensator/processlog"
)

// These are the types of the audit log. Package processlog describes them in full.

type (
	AuditLogRecord = processlog.AuditLogRecord // a change of an entry, or an operation, for example an export or a refusal
	AuditLogFilter = processlog.AuditLogFilter // selects records; the zero value selects all
	AuditLogPage   = processlog.AuditLogPage   // one page of records, newest first
)

// AuditLog reads the audit log. For each type, AuditLog asks Access for the right SeeAuditLog.
//
// Some records have no type: records of a purged entry, and refusals on an entry that the actor could not see. For
// these records AuditLog asks for SeeAuditLog with an empty type. An actor who may not see all types reads only records
// of types that the Admin knows. The Admin knows types that have entries or were ever paused, and types of the newest
// 1,000 operations.
func (d *Admin) AuditLog(ctx context.Context, a Actor, filter AuditLogFilter) (AuditLogPage, error) {
	mayRead, seesErrors := d.rightsOf(a, SeeAuditLog), d.rightsOf(a, SeeErrors)
	types, hasTypes, err := d.visibleTypes(ctx, mayRead, "", filter.BusinessTypes, "")
	if err != nil || !hasTypes {
		return AuditLogPage{}, err
	}
	filter.BusinessTypes = types
	// The records of batches have no type. An actor who may not see records without a type reads a record of each entry
	// instead.
	filter.EachEntry = filter.EachEntry || types != nil && !slices.Contains(types, "")
	page, err := runQuery(ctx, d, func(ctx context.Context) (AuditLogPage, error) { return d.log.Operations().AuditLog(ctx, filter) })
	page.Records = keepShown(page.Records, func(r *AuditLogRecord) bool {
		*r = d.visibleRecord(*r, seesErrors.holds(ctx, r.BusinessType))
		return mayRead.holds(ctx, r.BusinessType)
	})
	return page, err
}

// visibleRecord always removes secrets. If isErrorFull is false, ids, numbers and quoted words are removed too.
func (d *Admin) visibleRecord(r AuditLogRecord, isErrorFull bool) AuditLogRecord {
	for _, state := range []**processlog.AuditState{&r.Before, &r.After} {
		if *state != nil {
			masked := **state
			masked.LastError = d.scrubText(masked.LastError, isErrorFull)
			*state = &masked
		}
	}
	return r
}
