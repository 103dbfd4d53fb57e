package ui

import (
	"net/http"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
)

// entryData is the data of the page of one entry.
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
}

// Seen returns the value that forms use for the entry; see seenText.
func (d entryData) Seen() string { return seenText(d.Entry.ID, d.Entry.Version, d.Case) }

func (s *server) entry(rq *request) {
	id, err := compensator.ParseEntryID(rq.r.PathValue("id"))
	if err != nil {
		rq.fail(http.StatusNotFound, "error.not_found")
		return
	}
	s.showEntry(rq, id, nil)
}

// showEntry shows an entry. content is nil unless the person has revealed it.
func (s *server) showEntry(rq *request, id compensator.EntryID, content *revealed) {
	view, err := s.admin.Entry(rq.ctx, rq.Actor, id)
	if err != nil {
		rq.failed(err)
		return
	}
	on := admin.Subject{Type: view.Entry.BusinessType, Amount: view.Amount, Count: 1}
	data := entryData{EntryView: view, Revealed: content, Unsure: unsure(view.Case),
		Reveal: content == nil && (view.ContentSize > 0 || view.HasResult) && !rq.ReadOnly() && rq.May(admin.SeeContent, on), Note: rq.May(admin.NoteCase, on)}
	if data.Now, err = s.admin.Explain(rq.ctx, rq.Actor, id); err != nil {
		rq.failed(err)
		return
	}
	if late := time.Since(view.Entry.NextAt); late > lateAfter && !view.Entry.State.Terminal() {
		data.Late = late
	}
	line := []admin.Line{{Entry: view.Entry, Amount: view.Amount, Case: view.Case}}
	data.Actions, data.OnCase = rq.actionsOn(line), rq.onCases(line)
	rq.show(http.StatusOK, "entry", data)
}

// lateAfter is how late an entry may be before the page reports it. Claims come in rounds, so a short delay is normal.
const lateAfter = time.Minute
