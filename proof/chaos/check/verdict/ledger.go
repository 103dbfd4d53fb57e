package verdict

import (
	"fmt"
	"maps"
	"slices"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

type Ledger struct {
	Run       history.Run
	Entries   map[uint64]*Entry
	IDs       []uint64
	Faults    []Fault // ordered by their start
	Stalls    []Stall
	Deadlocks []history.Deadlock
	Members   []history.Member
	Lines     int

	files     []string
	types     map[string]*history.Type
	processes []process
	txs       []*transaction
	inserts   []insert
	keys      map[string][]int32
	resolved  []resolved
	waits     []waited
	actions   []action
	events    []history.Event
	marks     map[string]int64
	clock     clock
	felt      int64 // time in µs for which a stall still has effects after its end
}

type Place struct{ file, line int32 }

type process struct {
	app     string
	started int64
	last    int64 // time of the last line that the process wrote
	ended   bool  // whether the process ended normally, with MarkExit
	killed  bool  // whether the process ended without MarkExit, and its app was started again
}

func (p process) diedBefore(at int64) bool { return p.killed && p.last < at }

func (l *Ledger) typeOf(e *Entry) *history.Type { return l.types[e.Type] }

func (l *Ledger) served(e *Entry) bool {
	t := l.typeOf(e)
	return t != nil && t.Handler != history.HandlerNone
}

func (l *Ledger) eachEntry(visit func(e *Entry)) {
	for _, id := range l.IDs {
		visit(l.Entries[id])
	}
}

func (l *Ledger) placeName(p Place) string {
	return history.Line{File: l.files[p.file], Number: int(p.line)}.String()
}

// finish is called once all files are read.
func (l *Ledger) finish() error {
	if len(l.types) == 0 {
		return fmt.Errorf("the history has no Run line, or its Run line has no types")
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
	l.eachEntry(func(e *Entry) {
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

// findSeen sets the field seen of each transaction whose insert is in the audit. The audit proves that this transaction
// has committed, even if the COMMIT returned an error.
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

func (l *Ledger) endOfRun() int64 {
	var end int64
	for _, p := range l.processes {
		end = max(end, p.last)
	}
	return end
}
