package intake

import (
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/harness"
)

var (
	messages = flag.Int("messages", 5000, "how many messages flow while intakes are killed")
	kills    = flag.Int("kills", 5, "how many intakes are killed, with -9, while they flow")
	seed     = flag.Uint64("seed", 0, "seed of the faults; 0: random")
)

// kill ends the process as a power failure would, and waits for its end.
func (r *rig) child(p program) (kill func(), ended <-chan struct{}) {
	r.T.Helper()
	text, err := json.Marshal(p)
	require.NoError(r.T, err)
	binary, err := os.Executable()
	require.NoError(r.T, err)
	cmd := exec.Command(binary)
	cmd.Env, cmd.Stderr = append(os.Environ(), childEnv+"="+string(text)), os.Stderr
	_, err = cmd.StdinPipe() // The child ends when this process ends.
	require.NoError(r.T, err)
	require.NoError(r.T, cmd.Start())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait()
	}()
	kill = func() {
		_ = cmd.Process.Kill()
		<-done
	}
	r.T.Cleanup(kill)
	return kill, done
}

// Two processes are killed and restarted, and their connections to the database and to Redis are cut.
// Failure: F96
func TestNoMessageIsLostOrDoubledWhileIntakesAreKilled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	drawn := *seed
	if drawn == 0 {
		drawn = rand.Uint64()
	}
	t.Logf("-seed=%d", drawn)
	draw := rand.New(rand.NewPCG(drawn, 1))
	database, _ := r.OpenProxied(false)
	cache, err := faultproxy.NewTCP(r.Redis.Options().Addr)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, cache.Close()) })
	p := program{DSN: harness.ThroughProxy(t, r.DSN, database), Redis: cache.Addr(), Stream: r.stream}
	var killers [2]func()
	for i := range killers {
		killers[i], _ = r.child(p)
	}
	poison := *messages / 1000
	go func() {
		for first := 1; first <= *messages; first += 100 {
			r.add(first, min(100, *messages-first+1))
			if first%1000 == 1 && first/1000 < poison {
				r.addRaw("order", "poison")
			}
			harness.Elapse(time.Millisecond)
		}
	}()
	done := func() int { return r.Count("common_process_log") }
	for k := 1; k <= *kills; k++ {
		at := *messages*k/(*kills+2) + draw.IntN(max(1, *messages/(*kills+2)))
		r.Eventually(func() bool { return done() >= at }, "the flow goes on")
		harness.Elapse(time.Duration(draw.IntN(20)) * time.Millisecond)
		which := draw.IntN(len(killers))
		killers[which]()
		killers[which], _ = r.child(p)
		switch draw.IntN(3) {
		case 0:
			database.Cut()
		case 1:
			cache.Cut()
		}
	}
	total := *messages + poison
	r.Eventually(func() bool { return done() >= total && r.atRest("shop") }, "all are in the log, and acknowledged")
	failed := (*messages + 500) / 1000
	r.requireBooks(*messages-failed, failed+poison)
}

// Failure: F99
func TestMessageThatKillsItsProcessIsSetAside(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.add(1, 60)
	p := program{DSN: r.DSN, Redis: r.Redis.Options().Addr, Stream: r.stream, Killer: 30}
	lives := 0
	for ended := (<-chan struct{})(nil); !r.atRest("shop"); {
		if ended == nil {
			lives++
			_, ended = r.child(p)
		}
		select {
		case <-ended:
			ended = nil
		case <-time.After(20 * time.Millisecond):
		}
	}
	assert.Equal(t, testConfig().withDefaults().MaxDeliveries+1, lives, "the last one lives")
	r.requireBooks(59, 1)
	require.Equal(t, 0, r.Count("effects WHERE what='order 30'"))
}
