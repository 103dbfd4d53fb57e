package ui

import (
	"net/http"
	"slices"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/desk"
)

// entryData is an entry, and what may be done about it.
type entryData struct {
	desk.EntryView
	Actions  []string
	Reveal   bool
	Note     bool
	OnCase   []string     // what may be done about whose the case is
	Unsure   bool         // an attempt's effect may have happened
	Paused   *desk.Paused // why it does not run
	Breaker  *desk.OpenBreaker
	Late     time.Duration // by how much it should have run
	Revealed *revealed
}

// Seen names the entry as the page shows it.
func (d entryData) Seen() string { return seenText(d.Entry.ID, d.Entry.Version, d.Case) }

func (s *server) entry(rq *request) {
	id, err := compensator.ParseEntryID(rq.r.PathValue("id"))
	if err != nil {
		rq.fail(http.StatusNotFound, "error.not_found")
		return
	}
	s.showEntry(rq, id, nil)
}

// showEntry shows an entry, with its content once that is revealed.
func (s *server) showEntry(rq *request, id compensator.EntryID, content *revealed) {
	view, err := s.desk.Entry(rq.ctx, rq.Actor, id)
	if err != nil {
		rq.failed(err)
		return
	}
	on := desk.Subject{Type: view.Entry.BusinessType, Amount: view.Amount, Count: 1}
	data := entryData{EntryView: view, Revealed: content, Unsure: unsure(view.Case),
		Reveal: content == nil && view.ContentSize > 0 && !rq.ReadOnly() && rq.May(desk.SeeContent, on), Note: rq.May(desk.NoteCase, on)}
	if err := s.waiting(rq, &data); err != nil {
		rq.failed(err)
		return
	}
	line := []desk.Line{{Entry: view.Entry, Amount: view.Amount, Case: view.Case}}
	data.Actions, data.OnCase = rq.actionsOn(line), rq.onCases(line)
	rq.show(http.StatusOK, "entry", data)
}

// lateAfter is how late an entry may be before a page says so: claims come in rounds.
const lateAfter = time.Minute

// waiting finds what keeps an entry that has not ended from running.
func (s *server) waiting(rq *request, data *entryData) error {
	if data.Entry.State.Terminal() {
		return nil
	}
	if late := time.Since(data.Entry.NextAt); late > lateAfter {
		data.Late = late
	}
	paused, err := s.desk.Paused(rq.ctx, rq.Actor)
	if at := slices.IndexFunc(paused, func(p desk.Paused) bool { return p.Type == data.Entry.BusinessType }); at >= 0 {
		data.Paused = &paused[at]
	}
	breakers := s.desk.OpenBreakers(rq.ctx, rq.Actor)
	if at := slices.IndexFunc(breakers, func(b desk.OpenBreaker) bool { return b.Type == data.Entry.BusinessType }); at >= 0 {
		data.Breaker = &breakers[at]
	}
	return err
}

// open reports whether there is a case, and it is open.
func open(c *desk.Case) bool { return c != nil && c.ClosedAt.IsZero() }

// unsure reports whether nobody knows what an entry's attempts have done.
func unsure(c *desk.Case) bool {
	return open(c) && c.Kind == desk.CaseUnknown
}

// changes are what may be done to entries, what is done most first.
var changes = []desk.Right{desk.Requeue, desk.SettleByHand, desk.Compensate, desk.Reschedule, desk.Cancel, desk.Complete}

// allowed are the states from which an action leads anywhere, so that a page shows no button in vain; the log decides.
var allowed = map[desk.Right][]compensator.State{
	desk.Requeue: {compensator.Dead, compensator.Retrying, compensator.Succeeded, compensator.Compensated, compensator.Cancelled, compensator.SettledByHand},
	desk.Compensate: {compensator.Dead, compensator.Retrying, compensator.Succeeded, compensator.Compensated, compensator.Cancelled,
		compensator.SettledByHand},
	desk.SettleByHand: {compensator.Dead, compensator.Retrying, compensator.Compensating},
	desk.Cancel:       {compensator.Pending, compensator.Retrying, compensator.Dead},
	desk.Complete:     {compensator.Pending, compensator.Retrying, compensator.Dead},
	desk.Reschedule:   {compensator.Pending, compensator.Retrying},
}

// actionsOn are the actions that lead somewhere for any of these, and that somebody may do to it.
func (rq *request) actionsOn(lines []desk.Line) []string {
	var may []string
	for _, right := range changes {
		if slices.ContainsFunc(lines, func(l desk.Line) bool {
			return slices.Contains(allowed[right], l.Entry.State) && !l.Entry.Erased && rq.May(right, desk.Subject{Type: l.Entry.BusinessType, Amount: l.Amount, Count: 1})
		}) {
			may = append(may, string(right))
		}
	}
	return may
}

// onCases are what somebody may do about whose the open cases of any of these are.
func (rq *request) onCases(lines []desk.Line) []string {
	var take, giveBack, assign bool
	for _, l := range lines {
		if !open(l.Case) {
			continue
		}
		on := desk.Subject{Type: l.Entry.BusinessType, Amount: l.Amount, Count: 1}
		mine := l.Case.Owner == rq.Actor.ID
		take = take || !mine && rq.May(desk.TakeCase, on) // what is known is not asked again, of hundreds of rows
		giveBack = giveBack || mine && (rq.May(desk.TakeCase, on) || rq.May(desk.AssignCase, on))
		assign = assign || rq.May(desk.AssignCase, on)
	}
	var may []string
	for _, do := range []struct {
		name string
		may  bool
	}{{doTake, take}, {doGiveBack, giveBack}, {doAssign, assign}} {
		if do.may {
			may = append(may, do.name)
		}
	}
	return may
}
