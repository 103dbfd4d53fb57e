package ui

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/processlog"
)

func TestRecordsOfOneActAreOneLine(t *testing.T) {
	at := time.Date(2026, 11, 27, 14, 3, 0, 0, time.UTC)
	newRecord := func(id uint64, change func(*admin.AuditLogRecord)) admin.AuditLogRecord {
		r := admin.AuditLogRecord{At: at, Actor: "anna", Action: "requeue", EntryID: processlog.RowID(id), BusinessType: "refund", Reason: "PSP is back"}
		if change != nil {
			change(&r)
		}
		return r
	}
	four := []admin.AuditLogRecord{newRecord(4, nil), newRecord(3, nil), newRecord(2, nil), newRecord(1, nil)}
	acts := groupActs(four)
	assert.Len(t, acts, 1)
	assert.Equal(t, four, acts[0].Others)
	assert.Len(t, groupActs(four[:2]), 2, "two records are two lines")
	assert.Empty(t, groupActs(nil))
	for name, change := range map[string]func(*admin.AuditLogRecord){
		"another person":        func(r *admin.AuditLogRecord) { r.Actor = "bob" },
		"another action":        func(r *admin.AuditLogRecord) { r.Action = "cancel" },
		"refused":               func(r *admin.AuditLogRecord) { r.Refused = true },
		"no entry":              func(r *admin.AuditLogRecord) { r.EntryID = compensator.EntryID{} },
		"another type":          func(r *admin.AuditLogRecord) { r.BusinessType = "mail" },
		"another subject":       func(r *admin.AuditLogRecord) { r.Subject = "carol" },
		"another reason":        func(r *admin.AuditLogRecord) { r.Reason = "again" },
		"more than a minute":    func(r *admin.AuditLogRecord) { r.At = at.Add(-61 * time.Second) },
		"from another state":    func(r *admin.AuditLogRecord) { r.Before, r.After = states(compensator.Dead, compensator.Pending) },
		"to a different state ": func(r *admin.AuditLogRecord) { r.Before, r.After = states(0, compensator.Cancelled) },
	} {
		acts := groupActs([]admin.AuditLogRecord{four[0], four[1], four[2], newRecord(1, change)})
		assert.Lenf(t, acts, 2, name)
		assert.Lenf(t, acts[0].Others, 3, name)
	}
}

func TestBatchesOfOneActionAreOneLine(t *testing.T) {
	id, other := admin.BulkID{Record: 7, Secret: "0123456789abcdef"}, admin.BulkID{Record: 9, Secret: "0123456789abcdef"}
	batch := func(of admin.BulkID, actor, action string, n int) admin.AuditLogRecord {
		return admin.AuditLogRecord{Actor: actor, Action: action, Bulk: &of, N: n}
	}
	acts := groupActs([]admin.AuditLogRecord{batch(id, "anna", "stop", 0), batch(id, "anna", "requeue", 300), {Actor: "bob", Action: "note"}, batch(id, "bob", "requeue", 500),
		batch(other, "anna", "requeue", 2), batch(id, "anna", "requeue", 500)})
	var lines []string
	for _, a := range acts {
		lines = append(lines, fmt.Sprint(a.Actor, " ", a.Action, " ", a.N))
	}
	assert.Equal(t, []string{"anna stop 0", "anna requeue 800", "bob note 0", "bob requeue 500", "anna requeue 2"}, lines)
}

func states(before, after compensator.State) (*admin.AuditState, *admin.AuditState) {
	return &admin.AuditState{State: before}, &admin.AuditState{State: after}
}

// A record may say "1 entries".
func TestNumbersOfEntriesAreShownInTheLanguageOfThePerson(t *testing.T) {
	for subject, want := range map[string][2]string{
		"1 entry":         {"1 entry", "1 条"},
		"1 entries":       {"1 entry", "1 条"},
		"37 entries":      {"37 entries", "37 条"},
		"1 of 1 entry":    {"1 of 1 entry", "1 条，共 1 条"},
		"2 of 30 entries": {"2 of 30 entries", "2 条，共 30 条"},
		"for 1h0m0s":      {"for 1h0m0s", "for 1h0m0s"},
		"1 entry of mine": {"1 entry of mine", "1 entry of mine"},
	} {
		for i, w := range languages {
			got, err := w.SubjectText(subject)
			assert.NoError(t, err)
			assert.Equal(t, want[i], got)
		}
	}
}
