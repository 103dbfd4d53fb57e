package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/chaos/history"
)

// fault is one kind of trouble. What it needs and shares decides which faults may go on at once.
type fault struct {
	kind    string
	touches []string // for the checker
	needs   string   // what it has for itself while it lasts; some there is one of for each app
	shares  string   // what must be there, for others, too
	strike  func(*strike) error
}

// The things that faults need.
const (
	anApp      = "app"
	sqlProxy   = "sql proxy"
	redisProxy = "redis proxy"
	sqlServer  = "sql server"
	redisPair  = "redis servers"
)

func perApp(need string) bool { return need == anApp || need == sqlProxy || need == redisProxy }

// faultKinds are all the faults there are.
func faultKinds() []fault { return slices.Concat(appFaults, proxyFaults, sqlFaults, redisFaults) }

// available are the faults of this run: those asked for that this machine can do. why tells of the others.
func (st *stage) available() (can []fault, why map[string]string) {
	why = make(map[string]string)
	for _, f := range faultKinds() {
		switch {
		case st.cfg.Faults.None || len(st.cfg.Faults.Kinds) > 0 && !slices.Contains(st.cfg.Faults.Kinds, f.kind):
			why[f.kind] = "not asked for"
		case st.clocks == nil && (f.kind == sqlClockMoved || f.kind == redisClockMoved):
			why[f.kind] = st.clocksWhy.Error()
		default:
			can = append(can, f)
		}
	}
	return can, why
}

// nemesis deals faults from a shuffled deck, so that every kind has its turn.
type nemesis struct {
	*stage
	kinds []fault
	rand  *rand.Rand
	deck  []fault

	mu   sync.Mutex      // guards left
	left map[string]bool // the kinds that have not had their turn
}

func (st *stage) newNemesis() *nemesis {
	n := &nemesis{stage: st, rand: rand.New(rand.NewPCG(st.cfg.Seed, 1)), left: make(map[string]bool)}
	n.kinds, _ = st.available()
	for _, f := range n.kinds {
		n.left[f.kind] = true
	}
	return n
}

// run strikes until over is closed and every kind has had its turn; but not when the test has failed.
func (n *nemesis) run(ctx context.Context, over <-chan struct{}) {
	if len(n.kinds) == 0 {
		<-over
		return
	}
	for round := uint64(1); ctx.Err() == nil && !n.tb.Failed() && !(isClosed(over) && n.allStruck()); round++ {
		n.round(ctx, round)
		wait(ctx, time.Duration(n.rand.ExpFloat64()*float64(n.cfg.Faults.Calm)))
	}
}

func (n *nemesis) allStruck() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.left) == 0
}

// round lets a few faults go on at once.
func (n *nemesis) round(ctx context.Context, number uint64) {
	taken := &resources{needed: make(map[string]bool), shared: make(map[string]bool)}
	var strikes sync.WaitGroup
	for i := range 1 + n.rand.IntN(n.cfg.Faults.Most) {
		f, victim, ok := n.deal(taken)
		if !ok {
			break
		}
		k := &strike{stage: n.stage, nemesis: n, ctx: ctx, fault: f, app: victim, rand: rand.New(rand.NewPCG(n.cfg.Seed, number<<8|uint64(i)<<4|2))}
		strikes.Go(k.run)
	}
	strikes.Wait()
}

// deal takes the next fault of the deck that goes with those of this round.
func (n *nemesis) deal(taken *resources) (f fault, victim *app, ok bool) {
	if len(n.deck) == 0 {
		n.deck = slices.Clone(n.kinds)
		n.rand.Shuffle(len(n.deck), func(i, j int) { n.deck[i], n.deck[j] = n.deck[j], n.deck[i] })
	}
	for i, f := range n.deck {
		need, victim := f.needs, (*app)(nil)
		if perApp(need) {
			victim = n.apps[n.rand.IntN(len(n.apps))]
			need += " of " + victim.name
		}
		if taken.take(need, f.shares) {
			n.deck = slices.Delete(n.deck, i, i+1)
			return f, victim, true
		}
	}
	return fault{}, nil, false
}

// resources are what the faults of a round hold.
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

// strike is one fault under way.
type strike struct {
	*stage
	nemesis *nemesis
	ctx     context.Context
	fault   fault
	app     *app // the victim, of a fault that has one
	rand    *rand.Rand
	n       uint64 // 0: not begun
}

// errNothingHit: the fault lay in wait and nothing came by.
var errNothingHit = errors.New("nothing was hit")

func (k *strike) run() {
	wait(k.ctx, k.between(0, 0.5, 1))
	if k.ctx.Err() != nil {
		return
	}
	err := k.fault.strike(k)
	if k.n > 0 {
		end := &history.FaultEnd{At: history.Now(), N: k.n}
		if err != nil {
			end.Err = err.Error()
		}
		k.write(end)
	}
	switch {
	case err == nil:
		k.nemesis.struck(k.fault.kind)
	case err != errNothingHit && k.ctx.Err() == nil:
		k.tb.Errorf("nemesis: %s: %v", k.fault.kind, err)
	}
}

func (n *nemesis) struck(kind string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.left, kind)
}

// begin writes down that the fault begins. target tells what it hits, unless that is an app.
func (k *strike) begin(target string, params ...any) {
	if k.app != nil {
		target = k.app.name
	}
	k.n = k.faults.Add(1)
	f := &history.Fault{At: history.Now(), N: k.n, Fault: k.fault.kind, Target: target, Touches: k.fault.touches}
	if len(params) > 0 {
		f.Params = fmt.Sprint(params...)
	}
	k.write(f)
}

// hold lets the fault last: a random time around scale times what the run's faults last on average.
func (k *strike) hold(scale float64) {
	wait(k.ctx, k.between(0.25, 1.75, scale*k.cfg.Faults.Hold.Seconds()))
}

// between draws a time from low to high, in units of scale seconds.
func (k *strike) between(low, high, scale float64) time.Duration {
	return time.Duration((low + k.rand.Float64()*(high-low)) * scale * float64(time.Second))
}

// wait lets d pass, or less when ctx ends.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
