package verdict

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

func describe(s *step) string {
	switch s.move {
	case moveInsert:
		return "insert " + s.new.String()
	case moveDelete:
		return "delete of " + s.old.String()
	}
	return fmt.Sprintf("%s → %s at db %d ms", s.old, s.new, s.nowMS())
}

func (i image) String() string {
	text := fmt.Sprintf("{state %d v%d e%d pc%d cc%d dc%d next %d lease %d", i.state, i.version, i.epoch,
		i.processCount, i.compensateCount, i.deliveryCount, i.nextAt, i.leaseUntil)
	if i.endedBy != "" {
		text += " by " + i.endedBy
	}
	return text + "}"
}

func (l *Ledger) SumStalls() string {
	var total int64
	for _, s := range l.Stalls {
		total += s.Until - s.At
	}
	return fmt.Sprintf("overloaded %d times, for %v over all processes; leases and outcomes may be late then", len(l.Stalls),
		time.Duration(total*1000).Round(time.Millisecond))
}

type moment struct {
	at   int64
	text string
}

func (l *Ledger) EntryHistory(id uint64) []string {
	e := l.Entries[id]
	if e == nil {
		return nil
	}
	var life []moment
	for _, n := range l.keys[e.Key] {
		in := &l.inserts[n]
		life = append(life, moment{in.At, fmt.Sprintf("insert in a transaction of %s, commit %q", l.processes[in.tx.process].app, in.tx.outcome)})
	}
	for i := range e.steps {
		s := &e.steps[i]
		name := s.move
		if name == "" {
			name = "NO MOVE"
		}
		life = append(life, moment{s.wall, fmt.Sprintf("%s: %s (seq %d)", name, describe(s), s.seq)})
	}
	for i := range e.attempts {
		a := &e.attempts[i]
		app := l.processes[a.process].app
		life = append(life, moment{a.began, fmt.Sprintf("%s runs v%d e%d, compensation %v", app, a.version, a.epoch, a.compensation)})
		if a.ended != 0 {
			life = append(life, moment{a.ended, fmt.Sprintf("%s returns from v%d: %s %s", app, a.version, a.outcome, a.cause)})
		}
	}
	slices.SortStableFunc(life, func(a, b moment) int { return int(a.at - b.at) })
	var lines []string
	for _, m := range life {
		lines = append(lines, time.UnixMicro(m.at).UTC().Format("15:04:05.000000 ")+strings.TrimSpace(m.text))
	}
	return lines
}
