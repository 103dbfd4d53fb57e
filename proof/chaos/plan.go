package chaos

import (
	"math/rand/v2"
	"slices"
	"time"
)

// plan is the sequence of faults of a run. The seed alone determines the plan. Each cycle of rounds holds every kind of
// fault once. newPlan shortens the first cycle until the cycle fits into the run, so every kind of fault happens.
type plan struct {
	cfg   Config
	rand  *rand.Rand
	kinds []fault
	apps  int

	rounds []round
}

type round struct {
	strikes []planned
	calm    time.Duration
}

type planned struct {
	fault
	victim int
	after  time.Duration
	held   float64
}

// Some checks judge only times that no fault affects, so every run needs a calm start.
const calmStart = 5 * time.Second

const firstCycleShare = 0.9

func newPlan(cfg Config, kinds []fault, apps int) *plan {
	p := &plan{cfg: cfg, rand: rand.New(rand.NewPCG(cfg.Seed, 1)), kinds: kinds, apps: apps}
	p.rounds = p.cycle()
	for scale := 1.0; calmStart+p.takes() > time.Duration(firstCycleShare*float64(cfg.Duration)) && scale > 0.1; scale *= 0.9 {
		p.shorten(0.9)
	}
	return p
}

func (p *plan) next() round {
	if len(p.rounds) == 0 {
		p.rounds = p.cycle()
	}
	r := p.rounds[0]
	p.rounds = p.rounds[1:]
	return r
}

func (p *plan) putBack(f fault) {
	p.rounds = append([]round{{strikes: []planned{p.place(f)}}}, p.rounds...)
}

// Two faults of one round never need the same resource.
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
