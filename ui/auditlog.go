package ui

import (
	"errors"
	"net/http"
	"strings"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
)

type auditLogData struct {
	Actor, Action, Entry, From, To string
	Actions                        []string
	Records                        []admin.AuditLogRecord
	pager
	Refused string
}

// Times returns the fields for times.
func (d auditLogData) Times() []timeField {
	return []timeField{{"from", "from", d.From}, {"to", "to", d.To}}
}

// Narrowed reports whether the person has set a filter.
func (d auditLogData) Narrowed() bool {
	return d.Actor+d.Action+d.Entry+d.From+d.To != ""
}

// auditLogActions lists the actions that the audit log may contain.
var auditLogActions = []string{"requeue", "settle by hand", "cancel", "complete", "reschedule", "compensate", "erase", "take case", "assign case", "note", "see content",
	"export", "pause", "resume", "purge", "accept loss", "set policy"}

func (s *server) showAuditLog(rq *request) {
	q := rq.r.URL.Query()
	data := auditLogData{Actor: q.Get("actor"), Action: q.Get("action"), Entry: strings.TrimPrefix(strings.TrimSpace(q.Get("entry")), "#"), From: q.Get("from"), To: q.Get("to"),
		Actions: auditLogActions}
	filter := admin.AuditLogFilter{Actor: data.Actor, Action: data.Action, Limit: pageSize, Cursor: cursor(q)}
	var err error
	if data.Entry != "" {
		filter.EntryID, err = compensator.ParseEntryID(data.Entry)
	}
	if err == nil {
		err = rq.readTimes(q.Get("zone"), []timeLimit{{"from", &data.From, &filter.From}, {"to", &data.To, &filter.To}})
	}
	var page admin.AuditLogPage
	if err == nil {
		page, err = s.admin.AuditLog(rq.ctx, rq.Actor, filter)
	}
	var field *compensator.FieldError
	status := http.StatusOK
	switch {
	case errors.As(err, &field):
		status, data.Refused = http.StatusUnprocessableEntity, rq.explainField(field)
	case err != nil:
		rq.showFailure(err)
		return
	}
	data.Records, data.pager = page.Records, newPager(rq.r.URL, page.Next)
	rq.showPage(status, "trail", data)
}
