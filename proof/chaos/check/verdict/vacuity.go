package verdict

import (
	"fmt"
	"slices"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

// A key of Run.Excused is one of these names, or "fault: " with a kind of fault, or "check: " with the name of a check.
const (
	ShowsEntries           = "enough entries"
	ShowsUnknownHappened   = "unknown commit that happened"
	ShowsUnknownNever      = "unknown commit that did not"
	ShowsRollback          = "rollback"
	ShowsSavepoint         = "rollback to a savepoint"
	ShowsDuplicate         = "duplicate"
	ShowsInsertedWithLease = "born claimed"
	ShowsLostLease         = "lost lease"
	ShowsDropped           = "stale outcome dropped"
	ShowsEnqueued          = "announced again after a loss"
	ShowsPolled            = "polled claim"
	ShowsQuarantine        = "quarantine"
	ShowsCompensated       = "compensated"
	ShowsDead              = "dead"
	ShowsTimeAsked         = "time that a handler asked for"
)

func (v *Verdict) judgeVacuity(l *Ledger) {
	shown := l.shown()
	demand := func(name string, met bool, why string) {
		switch excuse, excused := l.Run.Excused[name]; {
		case met:
		case excused:
			v.Excused = append(v.Excused, fmt.Sprintf("%s: %s", name, excuse))
		default:
			v.Vacuous = append(v.Vacuous, fmt.Sprintf("%s: %s", name, why))
		}
	}
	for _, kind := range l.Run.FaultKinds {
		fired := slices.ContainsFunc(l.Faults, func(f Fault) bool { return f.Fault.Fault == kind && f.Fired })
		demand("fault: "+kind, fired, "it never fired")
	}
	for _, c := range v.Checks {
		if c.Name == "lost success" && c.Looked == 0 && l.overloaded() {
			v.Excused = append(v.Excused, "check: lost success: the machine was overloaded, so every attempt was disturbed")
			continue
		}
		demand("check: "+c.Name, c.Looked > 0 || c.whenAny, "it found no case")
	}
	entries := 0
	l.eachEntry(func(e *Entry) {
		if len(e.steps) > 0 {
			entries++
		}
	})
	demand(ShowsEntries, entries > 0 && entries >= l.Run.MinEntries, fmt.Sprintf("%d entries of %d", entries, l.Run.MinEntries))
	for _, name := range []string{
		ShowsUnknownHappened, ShowsUnknownNever, ShowsRollback, ShowsSavepoint, ShowsDuplicate, ShowsInsertedWithLease, ShowsLostLease,
		ShowsDropped, ShowsEnqueued, ShowsPolled, ShowsQuarantine, ShowsCompensated, ShowsDead, ShowsTimeAsked,
	} {
		demand(name, shown[name] > 0, "it never happened")
	}
	for kind, why := range l.Run.Unavailable {
		v.Excused = append(v.Excused, fmt.Sprintf("fault: %s: not available: %s", kind, why))
	}
	slices.Sort(v.Excused)
}

func (l *Ledger) shown() map[string]int {
	n := make(map[string]int)
	count := func(name string, happened bool) {
		if happened {
			n[name]++
		}
	}
	l.shownByProducers(count)
	l.eachEntry(func(e *Entry) {
		for i := range e.steps {
			s := &e.steps[i]
			count(ShowsInsertedWithLease, s.move == moveInsert && s.new.deliveryCount > 0)
			count(ShowsLostLease, e.foundLapsed(s))
			count(ShowsQuarantine, s.move == moveCrashed || s.move == moveCrashedUndo)
			count(ShowsCompensated, s.move == moveCompensated)
			count(ShowsDead, s.move == moveDead || s.move == moveUndoDead)
		}
		for i := range e.attempts {
			count(ShowsTimeAsked, e.attempts[i].after > 0)
		}
	})
	for i := range l.events {
		ev := &l.events[i]
		count(ShowsDropped, ev.Event == history.EventOutcomeDropped)
		count(ShowsPolled, ev.Event == history.EventReconciled && ev.Polled > 0)
		count(ShowsEnqueued, ev.Event == history.EventReconciled && (ev.Rebuilt || ev.Enqueued > 0) && l.lostBefore(ev.At))
	}
	return n
}

func (l *Ledger) shownByProducers(count func(string, bool)) {
	rows := l.entriesByKey()
	for _, tx := range l.txs {
		count(ShowsRollback, tx.rolledBack && len(tx.inserts) > 0)
	}
	for i := range l.inserts {
		in := &l.inserts[i]
		count(ShowsSavepoint, in.undone && in.tx.committed() == surely)
		count(ShowsDuplicate, in.dup)
		if in.tx.outcome == history.CommitUnknown && in.answered && in.err == "" && !in.dup && !in.undone {
			happened := slices.ContainsFunc(rows[in.Key], in.mayHaveMade)
			count(ShowsUnknownHappened, happened)
			count(ShowsUnknownNever, !happened)
		}
	}
}

const soonAfter = 60_000_000 // in µs

func (l *Ledger) lostBefore(at int64) bool {
	return slices.ContainsFunc(l.Faults, func(f Fault) bool {
		return f.At <= at && at <= f.End+soonAfter && slices.Contains(f.Touches, history.TouchesQueueData)
	})
}
