package ui

import (
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
)

type auditLogData struct {
	Actor, Action, Entry, From, To string
	Actions                        []string
	Acts                           []act
	pager
	Refused string
}

// Times returns the fields of the filter that take a time.
func (d auditLogData) Times() []timeField {
	return []timeField{{"from", "from", d.From}, {"to", "to", d.To}}
}

// Narrowed reports whether the person has set a filter.
func (d auditLogData) Narrowed() bool {
	return d.Actor+d.Action+d.Entry+d.From+d.To != ""
}

var auditLogActions = []string{"requeue", "settle by hand", "cancel", "complete", "reschedule", "compensate", "erase", "take case", "assign case", "note", "see content",
	"export", "stop", "pause", "change pause", "resume", "change limit", "purge", "accept loss", "set policy"}

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
	data.Acts, data.pager = groupActs(page.Records), newPager(rq.r.URL, page.Next)
	rq.showPage(status, "trail", data)
}

// act is one line of the page. It combines records that differ only in the entry, or the batches of one bulk action.
type act struct {
	admin.AuditLogRecord                        // the newest record. For a bulk action, N is the sum over its batches on the page
	Others               []admin.AuditLogRecord // all records of this line, newest first; nil for a single record or a bulk action
}

const (
	fewestGrouped = 3           // with fewer records of one kind, each record is a line of its own
	sameAct       = time.Minute // maximum time between two consecutive records of one act
)

// groupActs groups records of one page only.
func groupActs(records []admin.AuditLogRecord) (acts []act) {
	for len(records) > 0 {
		if records[0].Bulk != nil {
			acts = addBatch(acts, records[0])
			records = records[1:]
			continue
		}
		n := 1
		for n < len(records) && isSameAct(&records[n-1], &records[n]) {
			n++
		}
		if n < fewestGrouped {
			n = 1
			acts = append(acts, act{AuditLogRecord: records[0]})
		} else {
			acts = append(acts, act{records[0], records[:n]})
		}
		records = records[n:]
	}
	return acts
}

func addBatch(acts []act, batch admin.AuditLogRecord) []act {
	at := slices.IndexFunc(acts, func(a act) bool {
		return a.Bulk != nil && *a.Bulk == *batch.Bulk && a.Actor == batch.Actor && a.Action == batch.Action
	})
	if at < 0 {
		return append(acts, act{AuditLogRecord: batch})
	}
	acts[at].N += batch.N
	return acts
}

func isSameAct(newer, older *admin.AuditLogRecord) bool {
	return !newer.EntryID.IsZero() && !older.EntryID.IsZero() && newer.At.Sub(older.At) <= sameAct &&
		newer.Actor == older.Actor && newer.Action == older.Action && newer.Refused == older.Refused && newer.BusinessType == older.BusinessType &&
		newer.Subject == older.Subject && newer.Reason == older.Reason && statesOf(newer) == statesOf(older)
}

// The audit log stores numbers of entries in English: "3 of 12 entries".
var countSubject = regexp.MustCompile(`^(?:(\d+) of )?(\d+) entr(?:y|ies)$`)

// SubjectText returns the subject of a record of the audit log for a page. If the subject is a number of entries,
// SubjectText translates the subject. Any other subject stays as it is.
func (w words) SubjectText(subject string) (string, error) {
	count := countSubject.FindStringSubmatch(subject)
	switch {
	case count == nil:
		return subject, nil
	case count[1] == "":
		return w.T("n_entries", count[2])
	}
	return w.T("n_of_entries", count[2], count[1])
}

// statesOf returns the states of the entry before and after the action. It returns zero values for a record that is not
// about one entry, for example the record of a pause.
func statesOf(r *admin.AuditLogRecord) (states [2]compensator.State) {
	if r.Before != nil && r.After != nil {
		states = [2]compensator.State{r.Before.State, r.After.State}
	}
	return states
}
