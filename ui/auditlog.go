package ui

import (
	"errors"
	"net/http"
	"strings"
	"time"

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
	for _, limit := range []struct {
		name, text string
		target     *time.Time
	}{{"from", data.From, &filter.From}, {"to", data.To, &filter.To}} {
		if err == nil {
			*limit.target, err = parseDay(limit.name, limit.text)
		}
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
