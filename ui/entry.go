package ui

import (
	"net/http"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
)

type entryData struct {
	admin.EntryView
	Actions  []string
	Reveal   bool
	Note     bool
	OnCase   []string          // actions that concern the owner of the case
	Unsure   bool              // whether an attempt may have had an effect that the log does not know
	Now      admin.Explanation // why the entry does not run now
	Late     time.Duration     // how long the entry has been due
	Revealed *revealed
	OfUser   string // address of the user's entries of this type; empty if the actor may not filter by user
}

// IsUrged reports whether the page recommends its first action: for unfinished and dead entries of known outcome.
func (d entryData) IsUrged() bool {
	return !d.Unsure && (d.Entry.State == compensator.Dead || !d.Entry.State.Terminal())
}

// Seen returns the value that forms use for the entry; see formatSeen.
func (d entryData) Seen() string { return formatSeen(d.Entry.ID, d.Entry.Version, d.Case) }

func (s *server) showEntryPage(rq *request) {
	id, err := compensator.ParseEntryID(rq.r.PathValue("id"))
	if err != nil {
		rq.showError(http.StatusNotFound, "error.not_found")
		return
	}
	s.showEntry(rq, id, nil)
}

// showEntry gets content only after a reveal.
func (s *server) showEntry(rq *request, id compensator.EntryID, content *revealed) {
	view, explanation, err := s.admin.ExplainedEntry(rq.ctx, rq.Actor, id)
	if err != nil {
		rq.showFailure(err)
		return
	}
	subject := admin.Subject{Type: view.Entry.BusinessType, Amount: view.Amount, Count: 1}
	data := entryData{EntryView: view, Now: explanation, Revealed: content, Unsure: isUncertain(view.Case),
		Reveal: content == nil && (view.ContentSize > 0 || view.HasResult) && !rq.ReadOnly() && rq.May(admin.SeeContent, subject), Note: rq.May(admin.NoteCase, subject)}
	if delay := time.Since(view.Entry.NextAt); delay > lateGrace && !view.Entry.State.Terminal() {
		data.Late = delay
	}
	if view.Entry.UserID != "" && rq.May(admin.SeeContent, subject) {
		data.OfUser, _ = rq.Link("entries", "type", view.Entry.BusinessType, "user", view.Entry.UserID)
	}
	lines := []admin.Line{{Entry: view.Entry, Amount: view.Amount, Case: view.Case}}
	data.Actions, data.OnCase = rq.offeredActions(lines), rq.caseActions(lines)
	rq.showPage(http.StatusOK, "entry", data)
}

// Claims come in rounds, so a short delay is normal.
const lateGrace = time.Minute
