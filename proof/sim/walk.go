package sim

import (
	"fmt"
	"strings"
	"time"
)

type walk struct {
	list []decision
	hash uint64
}

type decision struct {
	at    time.Duration // time since the start
	who   int           // number of the instance (0: the step is an event)
	op    string
	args  string
	fault fault
}

func (w *walk) add(at time.Duration, who int, op, args string, f fault) {
	w.list = append(w.list, decision{at, who, op, args, f})
	w.mix(uint64(at))
	w.mix(uint64(who)<<8 | uint64(f))
	w.text(op)
	w.text(args)
}

func (w *walk) mix(v uint64) { w.hash = (w.hash ^ v) * 1099511628211 }

func (w *walk) text(s string) {
	for i := range len(s) {
		w.mix(uint64(s[i]))
	}
}

func (w *walk) describeBefore(place, n int) string {
	var b strings.Builder
	for _, d := range w.list[max(0, place-n):place] {
		fmt.Fprintf(&b, "%14v  %2d  %-10s %s", d.at, d.who, d.op, d.args)
		if d.fault != none {
			fmt.Fprintf(&b, "  [%v]", d.fault)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
