package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

// fault is one kind of problem. What it needs and shares decides which faults may go on at once.
type fault struct {
	kind    string
	touches []string // for the checker
	needs   string   // what it has for itself while it lasts; some there is one of for each app
	shares  string   // what must be there, for others, too
	strike  func(*strike) error

	// How long it takes, at most as a rule: a time of its own, and so many times what the run's faults last.
	takes time.Duration
	holds float64
}

// need names what the fault has for itself.
func (s planned) need() string {
	if perApp(s.needs) {
		return fmt.Sprint(s.needs, " of ", s.victim)
	}
	return s.needs
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

// nemesis carries out a plan.
type nemesis struct {
	*stage
	plan *plan

	mu    sync.Mutex     // guards the fields below
	left  map[string]int // the kinds that have not struck yet, and how often they were tried
	tried []fault        // came to nothing in this round
}

// mostTries is how often a kind of fault may come to nothing.
const mostTries = 10

func (st *stage) newNemesis() *nemesis {
	kinds, _ := st.available()
	n := &nemesis{stage: st, plan: newPlan(st.cfg, kinds, len(st.apps)), left: make(map[string]int)}
	for _, f := range kinds {
		n.left[f.kind] = 0
	}
	return n
}

// run strikes until over is closed and every kind has struck; but not when the test has failed.
func (n *nemesis) run(ctx context.Context, over <-chan struct{}) {
	if len(n.plan.kinds) == 0 {
		<-over
		return
	}
	wait(ctx, opening)
	for number := uint64(1); ctx.Err() == nil && !n.tb.Failed() && !(isClosed(over) && n.allStruck()); number++ {
		r := n.plan.next()
		n.round(ctx, number, r)
		n.tryAgain()
		wait(ctx, r.calm)
	}
}

func (n *nemesis) allStruck() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.left) == 0
}

// round lets a few faults go on at once.
func (n *nemesis) round(ctx context.Context, number uint64, r round) {
	var strikes sync.WaitGroup
	for i, s := range r.strikes {
		k := &strike{stage: n.stage, nemesis: n, ctx: ctx, planned: s, rand: rand.New(rand.NewPCG(n.cfg.Seed, number<<8|uint64(i)<<4|2))}
		if perApp(s.needs) {
			k.app = n.apps[s.victim]
		}
		strikes.Go(k.run)
	}
	strikes.Wait()
}

// struck notes what came of a strike.
func (n *nemesis) struck(f fault, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	tries, first := n.left[f.kind]
	switch {
	case err == nil:
		delete(n.left, f.kind)
	case !errors.Is(err, errNothingHit):
		n.tb.Errorf("nemesis: %s: %v", f.kind, err)
	case first && tries+1 == mostTries:
		n.tb.Errorf("nemesis: %s, %d times: %v", f.kind, mostTries, err)
	case first:
		n.left[f.kind]++
		n.tried = append(n.tried, f)
	}
}

// tryAgain gives the kinds that came to nothing another turn, until they have struck once.
func (n *nemesis) tryAgain() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, f := range n.tried {
		n.plan.again(f)
	}
	n.tried = nil
}

// strike is one fault under way.
type strike struct {
	*stage
	nemesis *nemesis
	ctx     context.Context
	planned
	app  *app // the victim, of a fault that has one
	rand *rand.Rand
	n    uint64 // 0: not begun
}

// errNothingHit: the fault lay in wait and nothing came by, or it did not get the locks it needs.
var errNothingHit = errors.New("nothing was hit")

func (k *strike) run() {
	wait(k.ctx, k.after)
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
	if k.ctx.Err() == nil {
		k.nemesis.struck(k.fault, err)
	}
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

// hold lets the fault last, by scale times what its plan gives it.
func (k *strike) hold(scale float64) { wait(k.ctx, k.lasting(scale)) }

// lasting is how long something of the fault lasts: a quarter to one and three quarters of scale times what the run's
// faults last on average, less where all of them have to fit into a short run.
func (k *strike) lasting(scale float64) time.Duration {
	return time.Duration(k.held * scale * float64(k.cfg.Faults.Hold))
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
