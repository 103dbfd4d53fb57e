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

// fault is one kind of fault. The fields needs and shares decide which faults may run at the same time.
type fault struct {
	kind    string
	touches []string // parts of the system in which the checker excuses deviations
	needs   string   // resource that only this fault may use; some resources exist once per app
	shares  string   // resource that other faults may use at the same time
	strike  func(*strike) error

	// takes is the usual duration of a fault. If holds is set, a fault lasts longer by holds times the mean duration of
	// the run's faults.
	takes time.Duration
	holds float64
}

// need returns the resource that only this fault may use. The text includes the app if every app has such a resource.
func (s planned) need() string {
	if perApp(s.needs) {
		return fmt.Sprint(s.needs, " of ", s.victim)
	}
	return s.needs
}

// These are the resources that faults need.
const (
	anApp      = "app"
	sqlProxy   = "sql proxy"
	redisProxy = "redis proxy"
	sqlServer  = "sql server"
	redisPair  = "redis servers"
)

func perApp(need string) bool { return need == anApp || need == sqlProxy || need == redisProxy }

// faultKinds returns all kinds of faults.
func faultKinds() []fault { return slices.Concat(appFaults, proxyFaults, sqlFaults, redisFaults) }

// available returns the requested faults that this machine can make. missing holds the reasons for all others.
func (st *stage) available() (kinds []fault, missing map[string]string) {
	missing = make(map[string]string)
	for _, f := range faultKinds() {
		switch {
		case st.cfg.Faults.None || len(st.cfg.Faults.Kinds) > 0 && !slices.Contains(st.cfg.Faults.Kinds, f.kind):
			missing[f.kind] = "not requested"
		case st.clocks == nil && (f.kind == sqlClockMoved || f.kind == redisClockMoved):
			missing[f.kind] = st.clocksWhy.Error()
		default:
			kinds = append(kinds, f)
		}
	}
	return kinds, missing
}

// nemesis carries out a plan.
type nemesis struct {
	*stage
	plan *plan

	mu    sync.Mutex     // guards the fields below it
	left  map[string]int // kinds that have not struck yet, with the number of their failed tries
	tried []fault        // faults that hit nothing in this round
}

// mostTries is how many times a kind of fault may run without a hit.
const mostTries = 10

func (st *stage) newNemesis() *nemesis {
	kinds, _ := st.available()
	n := &nemesis{stage: st, plan: newPlan(st.cfg, kinds, len(st.apps)), left: make(map[string]int)}
	for _, f := range kinds {
		n.left[f.kind] = 0
	}
	return n
}

// run makes faults until the channel over is closed and every kind has hit something. It stops early if the test has
// failed.
func (n *nemesis) run(ctx context.Context, over <-chan struct{}) {
	if len(n.plan.kinds) == 0 {
		<-over
		return
	}
	wait(ctx, calmStart)
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

// round makes the faults of one round at the same time.
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

// noteStrike notes whether a fault hit something.
func (n *nemesis) noteStrike(f fault, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	tries, first := n.left[f.kind]
	switch {
	case err == nil:
		delete(n.left, f.kind)
	case !errors.Is(err, errNothingHit):
		n.tb.Errorf("nemesis: fault %s failed: %v", f.kind, err)
	case first && tries+1 == mostTries:
		n.tb.Errorf("nemesis: fault %s hit nothing %d times: %v", f.kind, mostTries, err)
	case first:
		n.left[f.kind]++
		n.tried = append(n.tried, f)
	}
}

// tryAgain schedules the kinds of faults again that hit nothing in this round and have never hit anything before.
func (n *nemesis) tryAgain() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, f := range n.tried {
		n.plan.putBack(f)
	}
	n.tried = nil
}

// strike is one fault in progress.
type strike struct {
	*stage
	nemesis *nemesis
	ctx     context.Context
	planned
	app  *app // app that the fault hits (nil: none)
	rand *rand.Rand
	n    uint64 // number of the fault (0: the fault has not begun)
}

// errNothingHit means that no statement matched the fault, or that the fault did not get its locks.
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
		k.nemesis.noteStrike(k.fault, err)
	}
}

// begin writes the Fault record. target is what the fault hits. If the fault has a victim app, begin writes that app as
// the target.
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

// hold lets the fault last for scale times its planned duration.
func (k *strike) hold(scale float64) { wait(k.ctx, k.lasting(scale)) }

// lasting returns how long a part of the fault lasts. The result is the mean duration of the run's faults, times scale,
// times a random factor from 0.25 to 1.75. A short run shortens all faults further.
func (k *strike) lasting(scale float64) time.Duration {
	return time.Duration(k.held * scale * float64(k.cfg.Faults.Hold))
}

// between returns a random duration from low to high seconds, multiplied by scale.
func (k *strike) between(low, high, scale float64) time.Duration {
	return time.Duration((low + k.rand.Float64()*(high-low)) * scale * float64(time.Second))
}

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
