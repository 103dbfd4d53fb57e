package chaos

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	soakDuration = flag.Duration("soak.duration", 0, "how long to soak; 0: not at all")
	soakRate     = flag.Float64("soak.rate", 300, "entries recorded a second")
	soakSeed     = flag.Uint64("soak.seed", 1, "draws faults and load")
	soakJudged   = flag.Bool("soak.judged", false, "have the history checked, too")
)

// mildFaults leave every process and the database alive, so that what a process uses can be followed.
var mildFaults = []string{
	"redis connections cut", "sql connections cut", "commit reply dropped", "redis latency", "redis flushed", "rows locked", "redis killed",
	"app paused", "connections killed", "redis replies swallowed", "statement hung", "commit delayed", "database paused", "redis partition",
}

// TestSoak watches what a service uses over a long time of load in which little goes wrong. It is a measurement:
// on a busy machine its figures mean little. make soak runs it.
func TestSoak(t *testing.T) {
	if *soakDuration == 0 {
		t.Skip("a measurement; see make soak")
	}
	dir, err := filepath.Abs("../../build/soak")
	require.NoError(t, err)
	t.Setenv(soakEnv, dir)
	removeUsage(t, dir)
	s := new(soak)
	cfg := soakConfig(*soakDuration, dir)
	cfg.Sample = s.sample
	Run(t, cfg)
	if s.purger != nil {
		assert.NoError(t, s.purger.Close())
	}
	require.NotEmpty(t, s.series, "the apps never came up")
	s.readDir(t, dir)
	gates := s.gates()
	s.report(t, cfg, gates)
	for _, g := range gates {
		assert.True(t, g.passed || g.figure, "%s: got %s, want %s", g.what, g.got, g.want)
	}
	if *soakJudged {
		judge(t, dir)
	}
}

// soakConfig has a fault every minute and a half, more often in a short run. Nobody kills processes,
// producers are careful, and few people interfere.
func soakConfig(d time.Duration, dir string) Config {
	calm := min(90*time.Second, d/5)
	rounds := int(d / (calm + 5*time.Second))
	return Config{
		Seed: *soakSeed, Duration: d, Dir: dir, Rate: *soakRate, People: 0.2, KillEvery: -1, Failing: 0.05, Poison: 0.01, Careful: true,
		Faults:      Faults{Kinds: mildFaults[:min(max(rounds/2, 1), len(mildFaults))], Most: 1, Calm: calm},
		SampleEvery: soakEvery,
	}
}

func removeUsage(t *testing.T, dir string) {
	t.Helper()
	old, err := filepath.Glob(filepath.Join(dir, "*"+usageSuffix))
	require.NoError(t, err)
	for _, name := range old {
		require.NoError(t, os.Remove(name))
	}
}
