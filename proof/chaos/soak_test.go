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
	soakDuration = flag.Duration("soak.duration", 0, "duration of the soak; 0: skip it")
	soakRate     = flag.Float64("soak.rate", 300, "entries recorded per second")
	soakSeed     = flag.Uint64("soak.seed", 1, "seed of the faults and the load")
	soakJudged   = flag.Bool("soak.judged", false, "also check the history")
)

var mildFaults = []string{
	"redis connections cut", "sql connections cut", "commit reply dropped", "redis latency", "redis flushed", "rows locked", "redis killed",
	"app paused", "connections killed", "redis replies swallowed", "statement hung", "commit delayed", "database paused", "redis partition",
}

// On a busy machine the values of a soak mean little. Run it with make soak.
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
	require.NotEmpty(t, s.series, "no app became ready")
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
