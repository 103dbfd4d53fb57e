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

type fault struct {
	kind    string
	touches []string // parts of the system in which the checker excuses deviations
	needs   string
	shares  string
	strike  func(*strike) error

	// A fault lasts for the fixed time in the field takes, plus a random time. The mean of the random time is
	// Config.Faults.Hold multiplied by the number in the field holds.
	takes time.Duration
	holds float64
}

func (s planned) need() string {
	if perApp(s.needs) {
		return fmt.Sprint(s.needs, " of ", s.victim)
	}
	return s.needs
}

const (
	anApp      = "app"
	sqlProxy   = "sql proxy"
	redisProxy = "redis proxy"
	sqlServer  = "sql server"
	redisPair  = "redis servers"
)

func perApp(need string) bool { return need == anApp || need == sqlProxy || need == redisProxy }

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

type nemesis struct {
	*stage
	plan *plan

	mu    sync.Mutex     // guards the fields below it
	left  map[string]int // kinds that have not struck yet, with the number of their failed tries
	tried []fault
}

const mostTries = 10

func (st *stage) newNemesis() *nemesis {
	kinds, _ := st.available()
	n := &nemesis{stage: st, plan: newPlan(st.cfg, kinds, len(st.apps)), left: make(map[string]int)}
	for _, f := range kinds {
		n.left[f.kind] = 0
	}
	return n
}

// run stops early if the test has failed.
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

// tryAgain schedules again the kinds of faults that have never hit anything.
func (n *nemesis) tryAgain() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, f := range n.tried {
		n.plan.putBack(f)
	}
	n.tried = nil
}

type strike struct {
	*stage
	nemesis *nemesis
	ctx     context.Context
	planned
	app  *app
	rand *rand.Rand
	n    uint64 // number of the fault (0: the fault has not begun)
}

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

func (k *strike) hold(scale float64) { wait(k.ctx, k.lasting(scale)) }

func (k *strike) lasting(scale float64) time.Duration {
	return time.Duration(k.held * scale * float64(k.cfg.Faults.Hold))
}

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
