package chaos

import (
	"context"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/proof/chaos/history"
)

var appFaults = []fault{
	{kind: "app killed", takes: 4 * time.Second, touches: []string{history.TouchesApp}, needs: anApp, strike: (*strike).killApp},
	{kind: "app paused", takes: 6 * time.Second, touches: []string{history.TouchesApp}, needs: anApp, strike: (*strike).pauseApp},
}

func (k *strike) killApp() error {
	k.begin("")
	k.app.kill()
	return k.app.await(k.ctx)
}

func (k *strike) pauseApp() error {
	d := k.between(0.2, 3, lease.Seconds())
	k.begin("", d)
	k.app.signal(syscall.SIGSTOP)
	wait(k.ctx, d)
	k.app.signal(syscall.SIGCONT)
	return nil
}

var (
	oneAppsDatabase = []string{history.TouchesAppToDB}
	oneAppsQueue    = []string{history.TouchesQueue}
)

var proxyFaults = []fault{
	{kind: "commit request dropped", takes: 2 * time.Second, holds: 1, touches: oneAppsDatabase, needs: sqlProxy, strike: func(k *strike) error {
		return k.breakStatements(0.5, faultproxy.Rule{Match: faultproxy.Commit(), Fault: faultproxy.DropRequest})
	}},
	{kind: "commit reply dropped", takes: 2 * time.Second, holds: 1, touches: oneAppsDatabase, needs: sqlProxy, strike: func(k *strike) error {
		return k.breakStatements(0.5, faultproxy.Rule{Match: faultproxy.Commit(), Fault: faultproxy.DropReply})
	}},
	{kind: "commit delayed", takes: 2 * time.Second, holds: 1, touches: oneAppsDatabase, needs: sqlProxy, strike: func(k *strike) error {
		delay := []faultproxy.Fault{faultproxy.DelayRequest, faultproxy.DelayReply}[k.rand.IntN(2)]
		return k.breakStatements(0.5, faultproxy.Rule{Match: faultproxy.Commit(), Fault: delay, Delay: k.between(0.2, 1.5, lease.Seconds())})
	}},
	{kind: "statement hung", takes: 2 * time.Second, holds: 1, touches: oneAppsDatabase, needs: sqlProxy, strike: func(k *strike) error {
		drop := []faultproxy.Fault{faultproxy.DropRequest, faultproxy.DropReply}[k.rand.IntN(2)]
		return k.breakStatements(0.02, faultproxy.Rule{Match: faultproxy.Request.Runs, Fault: drop, Hang: true})
	}},
	{kind: "sql connections cut", touches: oneAppsDatabase, needs: sqlProxy, strike: func(k *strike) error {
		k.begin("")
		k.app.proxies.sql.Cut()
		return nil
	}},
	{kind: "sql partition", holds: 1, touches: oneAppsDatabase, needs: sqlProxy, strike: func(k *strike) error {
		k.begin("")
		k.app.proxies.sql.Refuse()
		k.hold(1)
		k.app.proxies.sql.Heal()
		return nil
	}},
	{kind: "redis connections cut", touches: oneAppsQueue, needs: redisProxy, strike: func(k *strike) error {
		k.begin("")
		k.app.proxies.redis.Cut()
		return nil
	}},
	{kind: "redis partition", holds: 1, touches: oneAppsQueue, needs: redisProxy, strike: func(k *strike) error {
		k.begin("")
		k.app.proxies.redis.Refuse()
		return k.healRedisProxy()
	}},
	{kind: "redis replies swallowed", holds: 1, touches: oneAppsQueue, needs: redisProxy, strike: func(k *strike) error {
		k.begin("")
		k.app.proxies.redis.SwallowReplies()
		return k.healRedisProxy()
	}},
	{kind: "redis latency", holds: 1, touches: oneAppsQueue, needs: redisProxy, strike: func(k *strike) error {
		d := k.between(0.05, 1, 1)
		k.begin("", d)
		k.app.proxies.redis.Latency(d)
		return k.healRedisProxy()
	}},
}

func (k *strike) healRedisProxy() error {
	k.hold(1)
	k.app.proxies.redis.Heal()
	return nil
}

func (k *strike) breakStatements(share float64, rule faultproxy.Rule) error {
	match, draw := rule.Match, chance(k.rand, share)
	rule.Match = func(r faultproxy.Request) bool { return match(r) && draw() }
	k.begin("", "share ", share, " delay ", rule.Delay)
	trap := k.app.proxies.sql.Arm(rule)
	defer trap.Disarm()
	ctx, cancel := context.WithTimeout(k.ctx, 10*time.Second)
	defer cancel()
	if trap.Await(ctx) != nil {
		return errNothingHit
	}
	k.hold(1)
	defer k.app.proxies.sql.HangUp()
	for trap.Fired() < statementsToHit && ctx.Err() == nil {
		wait(ctx, 10*time.Millisecond)
	}
	return nil
}

// statementsToHit is the number of an app's statements that a fault hits before the fault ends. A fault that cannot hit
// so many ends after ten seconds.
const statementsToHit = 25

func chance(from *rand.Rand, share float64) func() bool {
	var mu sync.Mutex
	own := rand.New(rand.NewPCG(from.Uint64(), 0))
	return func() bool {
		mu.Lock()
		defer mu.Unlock()
		return own.Float64() < share
	}
}
