package ui

import (
	"net/http"
	"slices"
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
	OnCase   []string      // actions that concern the owner of the case
	Unsure   bool          // whether an attempt may have had an effect that the log does not know
	Paused   *admin.Paused // pause of the type. As long as it lasts, the entry does not run
	Broken   *admin.Broken
	Late     time.Duration // how long the entry has been due
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
	if err := s.waiting(rq, &data); err != nil {
		rq.failed(err)
		return
	}
	line := []admin.Line{{Entry: view.Entry, Amount: view.Amount, Case: view.Case}}
	data.Actions, data.OnCase = rq.actionsOn(line), rq.onCases(line)
	rq.show(http.StatusOK, "entry", data)
}

// lateAfter is how late an entry may be before the page reports it. Claims come in rounds, so a short delay is normal.
const lateAfter = time.Minute

// waiting finds the reason why an unfinished entry does not run.
func (s *server) waiting(rq *request, data *entryData) error {
	if data.Entry.State.Terminal() {
		return nil
	}
	if late := time.Since(data.Entry.NextAt); late > lateAfter {
		data.Late = late
	}
	paused, err := s.admin.Paused(rq.ctx, rq.Actor)
	if at := slices.IndexFunc(paused, func(p admin.Paused) bool { return p.Type == data.Entry.BusinessType }); at >= 0 {
		data.Paused = &paused[at]
	}
	broken := s.admin.Broken(rq.ctx, rq.Actor)
	if at := slices.IndexFunc(broken, func(b admin.Broken) bool { return b.Type == data.Entry.BusinessType }); at >= 0 {
		data.Broken = &broken[at]
	}
	return err
}
