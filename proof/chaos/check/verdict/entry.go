package verdict

import (
	"slices"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

type Entry struct {
	ID   uint64
	Key  string
	Type string

	steps       []step
	attempts    []attempt
	effects     []history.EffectRow
	row         *history.Row // row of the entry in the log at the end of the run (nil: deleted or never there)
	rowPlace    Place
	result      *history.ResultRow // row of the entry in the table of results at the end of the run (nil: none)
	resultPlace Place
	deleted     bool
	torn        []Place // audit rows that do not start from the result of the audit row before
}

type image struct {
	version, token                               uint64
	nextAt, leaseUntil                           int64 // in ms of the database's clock
	epoch                                        uint32
	processCount, compensateCount, deliveryCount int32
	state                                        int8
	endedBy                                      string // interned
}

type step struct {
	move  string // name of the move (empty: the contract has no such move)
	old   image  // zero for an insert
	new   image  // zero for a delete
	seq   uint64
	now   int64 // the database's clock in µs
	wall  int64 // the same time on the wall clock, as exactly as the Clock lines allow
	place Place
}

func (s *step) nowMS() int64 { return s.now / 1000 }

type attempt struct {
	process      int32
	batch        int32
	number       int32
	epoch        uint32
	state        int8
	compensation bool
	acted        bool // whether the handler reported an effect outside the database as done
	version      uint64
	hash         uint64
	nextAt       int64
	began, ended int64  // wall clock in µs; ended is 0 if the process was killed
	outcome      string // interned
	cause        string // interned
	after        int64  // delay in ms that the handler asked for
	place        Place
	endPlace     Place
}

func (e *Entry) last() (image, bool) {
	if len(e.steps) == 0 || e.deleted {
		return image{}, false
	}
	return e.steps[len(e.steps)-1].new, true
}

func (e *Entry) deletion() *step {
	if !e.deleted {
		return nil
	}
	return &e.steps[len(e.steps)-1]
}

// stepThatWrote ignores renewals, which keep the version.
func (e *Entry) stepThatWrote(version uint64) *step {
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

func (e *Entry) stepThatEnded(version uint64) *step {
	for i := range e.steps {
		s := &e.steps[i]
		if s.move != moveInsert && s.old.version == version && (s.move == moveDelete || s.new.version != version) {
			return s
		}
	}
	return nil
}

// A lease is renewed while the handler runs and while an outcome waits to be stored. If the version has no lease,
// lastLease returns nil.
func (e *Entry) lastLease(version uint64) (last *step, end int64) {
	for i := range e.steps {
		s := &e.steps[i]
		if s.move != moveDelete && s.new.version == version && s.new.leaseUntil != 0 {
			last, end = s, s.wall+s.new.leaseUntil*1000-s.now
		}
	}
	return last, end
}

// A version can have two attempts: when a batch returns no verdict about an entry, the entry runs again alone. The
// outcome of the last attempt is the one that is stored.
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
