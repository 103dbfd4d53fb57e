package verdict

import (
	"fmt"
	"maps"
	"slices"

	"github.com/compensator-go/compensator/internal/chaos/history"
)

// Ledger is a run, as its history tells it.
type Ledger struct {
	Run       history.Run
	Entries   map[uint64]*Entry
	IDs       []uint64 // of Entries, ascending
	Faults    []Fault  // by their beginning
	Stalls    []Stall
	Deadlocks []history.Deadlock
	Members   []history.Member
	Lines     int // read

	files     []string
	types     map[string]*history.Type
	processes []process
	txs       []*transaction
	inserts   []insert
	keys      map[string][]int32 // inserts by idempotent id
	resolved  []resolved
	actions   []action
	events    []history.Event
	marks     map[string]int64 // the last of each, wall µs
	clock     clock
	felt      int64 // how long a stall is felt after its end, µs
}

// Place is a line of the history.
type Place struct{ file, line int32 }

// process is one incarnation of an app.
type process struct {
	app     string
	started int64
	last    int64 // At of its last line
	ended   bool  // in order: MarkExit
	killed  bool  // it left no mark of its end, and its app was started again
}

// diedBefore reports whether the process was killed before a moment.
func (p process) diedBefore(at int64) bool { return p.killed && p.last < at }

// transaction is a caller's.
type transaction struct {
	process    int32
	inserts    []int32
	actions    []int32
	savepoints []savepoint
	asked      int64 // At of its Commit line; 0: never asked for
	answered   int64
	outcome    string
	rolledBack bool
	aborted    bool // the server rolled it back under a statement
	seen       bool // a row of its own is in the table
}

type savepoint struct {
	name             string
	inserts, actions int // made before it
}

// insert is one entry's way into the table.
type insert struct {
	history.Insert
	tx       *transaction
	answered bool
	id       uint64
	dup      bool
	err      string
	undone   bool // by a rollback to a savepoint
	place    Place
}

// resolved is what was found out about an insert whose commit came out unknown.
type resolved struct {
	history.Resolved
	tx    *transaction
	place Place
}

// certainty is what is known of something that was asked of the database.
type certainty int

const (
	never certainty = iota
	maybe
	surely
)

// came is how a transaction ended.
func (tx *transaction) came() certainty {
	switch {
	case tx.aborted, tx.rolledBack, tx.asked == 0, tx.outcome == history.CommitFail:
		return never
	case tx.outcome == history.CommitOK, tx.seen:
		return surely
	}
	return maybe
}

// findSeen finds the transactions of which a row is in the table: then all of each is, whatever its COMMIT answered.
func (l *Ledger) findSeen() {
	for i := range l.inserts {
		in := &l.inserts[i]
		if in.id == 0 || in.dup || in.undone {
			continue
		}
		e := l.Entries[in.id]
		in.tx.seen = in.tx.seen || e != nil && len(e.steps) > 0 && e.Key == in.Key && e.Type == in.Type
	}
}

// wrote tells whether an insert made a row.
func (in *insert) wrote() certainty {
	switch {
	case in.undone, in.dup:
		return never
	case in.err != "":
		return min(failed(in.err), in.tx.came())
	case !in.answered:
		return min(maybe, in.tx.came())
	}
	return in.tx.came()
}

// failed is what a statement may have done all the same, by the class of its error.
func failed(class string) certainty {
	switch class {
	case "":
		return surely
	case history.ErrConnection, history.ErrContext, history.ErrOther:
		return maybe
	}
	return never
}

// action is a person's or a service's call.
type action struct {
	history.Action
	tx       *transaction // nil: its own
	answered int64        // At of its ActionEnd; 0: never
	err      string
	undone   bool
	place    Place
}

// took tells whether an action changed its entry.
func (a *action) took() certainty {
	did := failed(a.err)
	switch {
	case a.undone:
		return never
	case a.answered == 0:
		did = maybe
	}
	if a.tx != nil {
		did = min(did, a.tx.came())
	}
	return did
}

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

// Fault is a fault with its end.
type Fault struct {
	history.Fault
	End   int64 // wall µs; the run's end when it has none
	Fired bool
}

// Stall is a time in which the machine was too busy for one app, or for all.
type Stall struct {
	history.Stall
	app string // "driver": all
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

func (a *attempt) places() []Place {
	if a.ended == 0 {
		return []Place{a.place}
	}
	return []Place{a.place, a.endPlace}
}

func (l *Ledger) typeOf(e *Entry) *history.Type { return l.types[e.Type] }

// served reports whether some process has a handler for the entry.
func (l *Ledger) served(e *Entry) bool {
	t := l.typeOf(e)
	return t != nil && t.Handler != history.HandlerNone
}

// each visits the entries in the order of their ids.
func (l *Ledger) each(visit func(e *Entry)) {
	for _, id := range l.IDs {
		visit(l.Entries[id])
	}
}

// recovery is how long a fault is felt after its end.
const recovery = 3_000_000

// hit reports whether a fault of one of these kinds may have been felt by an app between two moments.
func (l *Ledger) hit(from, to int64, app string, touches ...string) bool {
	for i := range l.Faults {
		f := &l.Faults[i]
		if f.At > to {
			return false
		}
		if f.End+recovery < from {
			continue
		}
		for _, t := range f.Touches {
			if slices.Contains(touches, t) && (app == "" || !aimed(t) || f.Target == app) {
				return true
			}
		}
	}
	return false
}

// stalled reports whether the machine was too busy for an app between two moments; "": for any. It is no excuse but
// for what is late.
func (l *Ledger) stalled(from, to int64, app string) bool {
	return slices.ContainsFunc(l.Stalls, func(s Stall) bool {
		return s.At <= to && s.Until+l.felt >= from && (app == "" || s.app == app || s.app == driver)
	})
}

// How long a stall is felt after its end, µs: what has waited comes all at once. On a machine that was too busy for much
// of the run that takes longer.
const (
	stallFelt     = 1_000_000
	stallFeltLong = 10_000_000
)

// overloaded reports whether the machine was too busy for more than a twentieth of the run, by the driver's count:
// then everything is slow, between the stalls as well.
func (l *Ledger) overloaded() bool {
	var total int64
	for _, s := range l.Stalls {
		if s.app == driver && !l.hit(s.At, s.Until, "", history.TouchesDatabase, history.TouchesLocks) {
			total += s.Until - s.At
		}
	}
	return total*20 > l.endOfRun()-l.Run.At
}

// driver is the name of the driver's process.
const driver = "driver"

// aimed reports whether a fault that touches this touches its target alone.
func aimed(touches string) bool {
	return touches == history.TouchesApp || touches == history.TouchesAppToDB
}

// Calm reports whether no fault at all was felt between two moments.
func (l *Ledger) Calm(from, to int64) bool {
	for i := range l.Faults {
		if f := &l.Faults[i]; f.At <= to && f.End+recovery >= from {
			return false
		}
	}
	return !l.stalled(from, to, "")
}

// finish puts everything in order once all files are read.
func (l *Ledger) finish() error {
	if len(l.types) == 0 {
		return fmt.Errorf("the history has no run line, or one without types")
	}
	l.clock.sort()
	l.findKilled()
	l.findSeen()
	slices.SortFunc(l.Faults, func(a, b Fault) int { return int(a.At - b.At) })
	end := l.marks[history.MarkHealed]
	if end == 0 {
		end = l.endOfRun()
	}
	for i := range l.Faults {
		if l.Faults[i].End == 0 {
			l.Faults[i].End = end
		}
	}
	if l.felt = stallFelt; l.overloaded() {
		l.felt = stallFeltLong
	}
	l.IDs = slices.Sorted(maps.Keys(l.Entries))
	l.each(func(e *Entry) {
		slices.SortStableFunc(e.attempts, func(a, b attempt) int { return int(a.began - b.began) })
		for i := range e.steps {
			s := &e.steps[i]
			s.wall = l.clock.wall(s.seq, s.now)
			s.move = classify(s)
		}
	})
	return nil
}

func (l *Ledger) findKilled() {
	latest := make(map[string]int64)
	for _, p := range l.processes {
		latest[p.app] = max(latest[p.app], p.started)
	}
	for i := range l.processes {
		p := &l.processes[i]
		p.killed = !p.ended && p.started < latest[p.app]
	}
}

func (l *Ledger) endOfRun() int64 {
	var end int64
	for _, p := range l.processes {
		end = max(end, p.last)
	}
	return end
}
