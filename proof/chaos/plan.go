package chaos

import (
	"math/rand/v2"
	"slices"
	"time"
)

// plan is the sequence of faults of a run. The seed alone determines it. A plan consists of rounds. Each round has
// faults that run at the same time, and then a time without faults. The rounds form cycles, and each cycle holds every
// kind of fault once. The first cycle is shortened so that it is over before the run ends.
type plan struct {
	cfg   Config
	rand  *rand.Rand
	kinds []fault
	apps  int // number of apps to choose a victim from

	rounds []round // remaining rounds of the current cycle
}

// round is a set of faults that run at the same time.
type round struct {
	strikes []planned
	calm    time.Duration // time without faults after the round
}

type planned struct {
	fault
	victim int           // index of the app that the fault hits, if it hits an app
	after  time.Duration // time between the beginning of the round and the fault
	held   float64       // relative duration, which strike.lasting uses
}

// calmStart is the time without faults at the start of a run. Some checks judge only times that no fault affects, so
// every run needs such a time. Later in the run there may be none, because a fault has effects for seconds after its
// end.
const calmStart = 5 * time.Second

// firstCycleShare is the share of a run that the first cycle may take. The share is computed from the usual durations
// of the faults. On a slow machine the faults take longer.
const firstCycleShare = 0.9

func newPlan(cfg Config, kinds []fault, apps int) *plan {
	p := &plan{cfg: cfg, rand: rand.New(rand.NewPCG(cfg.Seed, 1)), kinds: kinds, apps: apps}
	p.rounds = p.cycle()
	for scale := 1.0; calmStart+p.takes() > time.Duration(firstCycleShare*float64(cfg.Duration)) && scale > 0.1; scale *= 0.9 {
		p.shorten(0.9)
	}
	return p
}

// next returns the next round. A plan with at least one kind of fault never ends.
func (p *plan) next() round {
	if len(p.rounds) == 0 {
		p.rounds = p.cycle()
	}
	r := p.rounds[0]
	p.rounds = p.rounds[1:]
	return r
}

// putBack puts a fault that hit nothing back into the plan, before all other faults and with a new victim.
func (p *plan) putBack(f fault) {
	p.rounds = append([]round{{strikes: []planned{p.place(f)}}}, p.rounds...)
}

// cycle distributes every kind of fault over rounds of one to Most faults. Two faults of one round never need the same
// resource.
func (p *plan) cycle() (rounds []round) {
	deck := slices.Clone(p.kinds)
	p.rand.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
	for len(deck) > 0 {
		r := round{calm: time.Duration(min(4, p.rand.ExpFloat64()) * float64(p.cfg.Faults.Calm))}
		taken := &resources{needed: make(map[string]bool), shared: make(map[string]bool)}
		for range 1 + p.rand.IntN(p.cfg.Faults.Most) {
			if at, s, ok := p.fitting(deck, taken); ok {
				r.strikes, deck = append(r.strikes, s), slices.Delete(deck, at, at+1)
			}
		}
		rounds = append(rounds, r)
	}
	return rounds
}

// fitting returns the first fault of the deck that can run at the same time as the faults whose resources are in taken,
// and its index in the deck.
func (p *plan) fitting(deck []fault, taken *resources) (at int, s planned, ok bool) {
	for at, f := range deck {
		if s := p.place(f); taken.take(s.need(), f.shares) {
			return at, s, true
		}
	}
	return 0, planned{}, false
}

func (p *plan) place(f fault) planned {
	s := planned{fault: f, after: time.Duration(p.rand.Float64() * 0.5 * float64(time.Second)), held: 0.25 + 1.5*p.rand.Float64()}
	if perApp(f.needs) {
		s.victim = p.rand.IntN(p.apps)
	}
	return s
}

// takes returns how long the remaining rounds take.
func (p *plan) takes() (d time.Duration) {
	for _, r := range p.rounds {
		d += r.takes(p.cfg) + r.calm
	}
	return d
}

func (r round) takes(cfg Config) (d time.Duration) {
	for _, s := range r.strikes {
		d = max(d, s.after+s.takes+time.Duration(s.held*s.holds*float64(cfg.Faults.Hold)))
	}
	return d
}

func (p *plan) shorten(by float64) {
	for i := range p.rounds {
		r := &p.rounds[i]
		r.calm = time.Duration(by * float64(r.calm))
		for j := range r.strikes {
			r.strikes[j].after = time.Duration(by * float64(r.strikes[j].after))
			r.strikes[j].held *= by
		}
	}
}

// resources are the resources that the faults of a round use.
type resources struct{ needed, shared map[string]bool }

func (r *resources) take(needs, shares string) bool {
	if r.needed[needs] || r.shared[needs] || r.needed[shares] {
		return false
	}
	if needs != "" {
		r.needed[needs] = true
	}
	if shares != "" {
		r.shared[shares] = true
	}
	return true
}
