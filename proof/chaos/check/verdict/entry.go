package verdict

import (
	"slices"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

// Entry is one row of the process log.
type Entry struct {
	ID   uint64
	Key  string
	Type string

	steps    []step
	attempts []attempt
	effects  []history.EffectRow
	row      *history.Row // at the end; nil: there is none
	rowPlace Place
	deleted  bool
	torn     []Place // audit rows whose old image is not what the row before left
}

// image is the moved columns of a row.
type image struct {
	version, token                               uint64
	nextAt, leaseUntil                           int64 // ms of the database's clock
	epoch                                        uint32
	processCount, compensateCount, deliveryCount int32
	state                                        int8
	endedBy                                      string // interned
}

// step is one change of a row.
type step struct {
	move  string // the move it is; "" when it is none
	old   image  // zero for an insert
	new   image  // zero for a delete
	seq   uint64
	now   int64 // of the database's clock, µs
	wall  int64 // the same on the wall clock, as well as the clock lines tell
	place Place
}

func (s *step) nowMS() int64 { return s.now / 1000 }

// attempt is one run of a handler.
type attempt struct {
	process      int32
	batch        int32
	number       int32
	epoch        uint32
	state        int8
	compensation bool
	acted        bool // an effect outside is recorded as done
	version      uint64
	hash         uint64
	nextAt       int64
	began, ended int64  // wall µs; ended 0: killed
	outcome      string // interned
	cause        string // interned
	after        int64  // ms
	place        Place
	endPlace     Place
}

// last returns the row's image now, and whether there is one.
func (e *Entry) last() (image, bool) {
	if len(e.steps) == 0 || e.deleted {
		return image{}, false
	}
	return e.steps[len(e.steps)-1].new, true
}

// deletion is the step that deleted the row; nil when it is there.
func (e *Entry) deletion() *step {
	if !e.deleted {
		return nil
	}
	return &e.steps[len(e.steps)-1]
}

// at finds the step that wrote a version: a claim or the insert, not its renewals.
func (e *Entry) at(version uint64) *step {
	i, ok := slices.BinarySearchFunc(e.steps, version, func(s step, v uint64) int {
		switch {
		case s.move == moveDelete, s.new.version > v:
			return 1
		case s.new.version < v:
			return -1
		}
		return 0
	})
	if !ok {
		return nil
	}
	for i > 0 && e.steps[i-1].new.version == version {
		i--
	}
	return &e.steps[i]
}

// after finds the step that ended a version; nil when nothing has.
func (e *Entry) after(version uint64) *step {
	for i := range e.steps {
		s := &e.steps[i]
		if s.move != moveInsert && s.old.version == version && (s.move == moveDelete || s.new.version != version) {
			return s
		}
	}
	return nil
}

// leased finds the step that leased a version last, and the wall clock's moment at which that lease ends: it is renewed
// while an outcome waits to be stored. nil: no lease.
func (e *Entry) leased(version uint64) (last *step, end int64) {
	for i := range e.steps {
		s := &e.steps[i]
		if s.move != moveDelete && s.new.version == version && s.new.leaseUntil != 0 {
			last, end = s, s.wall+s.new.leaseUntil*1000-s.now
		}
	}
	return last, end
}

// lastAttempt is the attempt at a version whose verdict counts: the last, as the entries of a batch that came to no
// verdict run again alone.
func (e *Entry) lastAttempt(version uint64) *attempt {
	for i := len(e.attempts) - 1; i >= 0; i-- {
		if e.attempts[i].version == version {
			return &e.attempts[i]
		}
	}
	return nil
}

func (e *Entry) firstAttempt(version uint64) *attempt {
	for i := range e.attempts {
		if e.attempts[i].version == version {
			return &e.attempts[i]
		}
	}
	return nil
}

// lines are the places of everything known about an entry's version.
func (e *Entry) lines(version uint64) []Place {
	var found []Place
	for i := range e.steps {
		if s := &e.steps[i]; s.new.version == version || s.old.version == version && s.move != moveInsert {
			found = append(found, s.place)
		}
	}
	for _, a := range e.attempts {
		if a.version == version {
			found = append(found, a.places()...)
		}
	}
	return found
}

func (e *Entry) allLines() (found []Place) {
	for i := range e.steps {
		found = append(found, e.steps[i].place)
	}
	for i := range e.attempts {
		found = append(found, e.attempts[i].places()...)
	}
	return found
}

func (a *attempt) places() []Place {
	if a.ended == 0 {
		return []Place{a.place}
	}
	return []Place{a.place, a.endPlace}
}
