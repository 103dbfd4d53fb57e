package engine

import (
	"slices"

	"github.com/compensator-go/compensator/processlog"
)

// Settlement is a feature's part in storing outcomes. Settle gives a function that is nil the
// place of one that does nothing. The functions are called by the goroutines that
// store outcomes, and return at once.
type Settlement struct {
	// Prepare is called before an outcome is sent to the database for the first time. It may add to the outcome what is to
	// commit with it.
	Prepare func(a *Attempt, o *processlog.Outcome)

	// Prompt reports whether something waits for the outcome of an attempt. Such an outcome waits less for others to be stored
	// with it.
	Prompt func(a *Attempt) bool

	// Storing is called before prompt outcomes are sent. The returned function is called once they are answered, or once the first
	// try has failed, whichever comes first. It may be nil.
	Storing func(batch []Settling) (answered func())

	// Stored is called when an outcome is stored.
	Stored func(a *Attempt, to processlog.State)

	// Dropped is called when an attempt is over whose outcome is not stored: the entry had moved on, or no handler was called.
	Dropped func(a *Attempt)

	// GivenBack is called when an attempt was given back that ran nothing.
	GivenBack func(a *Attempt)

	// Moved is called when a service or a person has ended an entry.
	Moved func(row *processlog.Row, to processlog.State)
}

// Settling is an outcome that is about to be stored.
type Settling struct {
	Attempt *Attempt
	To      processlog.State
}

// noPart is the Settlement of a feature that has no part.
var noPart = Settlement{
	Prepare:   func(*Attempt, *processlog.Outcome) {},
	Prompt:    func(*Attempt) bool { return false },
	Storing:   func([]Settling) func() { return nil },
	Stored:    func(*Attempt, processlog.State) {},
	Dropped:   func(*Attempt) {},
	GivenBack: func(*Attempt) {},
	Moved:     func(*processlog.Row, processlog.State) {},
}

// Settle attaches a settlement. Call it before Run.
func (e *Engine) Settle(s Settlement) {
	e.settler.settlements = append(e.settler.settlements, complete(s, noPart))
}

func (s *settler) isPrompt(a *Attempt) bool {
	return slices.ContainsFunc(s.settlements, func(f *Settlement) bool { return f.Prompt(a) })
}

// storing tells the settlements of prompt outcomes that are about to be sent. Call the returned function once they are answered,
// and once a try has failed.
func (s *settler) storing(batch []settlement) (answered func()) {
	var all []func()
	outcomes := make([]Settling, len(batch))
	for i := range batch {
		outcomes[i] = Settling{batch[i].a, batch[i].outcome.To}
	}
	for _, f := range s.settlements {
		if done := f.Storing(outcomes); done != nil {
			all = append(all, done)
		}
	}
	return func() {
		for _, done := range all {
			done()
		}
		all = nil
	}
}

func (s *settler) dropped(a *Attempt) {
	for _, f := range s.settlements {
		f.Dropped(a)
	}
}
