package chaos

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	duration = flag.Duration("chaos.duration", time.Minute, "how long load and faults last")
	seed     = flag.Uint64("chaos.seed", 1, "draws faults and load")
	dir      = flag.String("chaos.dir", "", "where the history goes; default build/chaos/<seed> at the module's root")
	rate     = flag.Float64("chaos.rate", 0, "entries recorded a second; 0: the default")
	kinds    = flag.String("chaos.kinds", "", "only these faults, separated by semicolons")
)

// TestChaos lets faults loose on real servers and processes, and has an independent program judge the history.
func TestChaos(t *testing.T) {
	cfg := Config{Seed: *seed, Duration: *duration, Rate: *rate, Dir: historyDir(t, fmt.Sprint(*seed))}
	if *kinds != "" {
		cfg.Faults.Kinds = strings.Split(*kinds, ";")
	}
	Run(t, cfg)
	if os.Getenv("NOJUDGE") == "" { judge(t, cfg.Dir) }
}

func historyDir(t *testing.T, name string) string {
	if *dir != "" {
		return *dir
	}
	root, err := filepath.Abs("../../build/chaos")
	require.NoError(t, err)
	return filepath.Join(root, name)
}

// judge runs the checker, a program of its own that reads nothing but the history.
func judge(t *testing.T, dir string) {
	t.Helper()
	checker := filepath.Join(t.TempDir(), "check")
	output, err := exec.Command("go", "build", "-o", checker, "./check").CombinedOutput()
	require.NoError(t, err, string(output))
	cmd := exec.Command(checker, dir)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	require.NoError(t, cmd.Run(), "the checker's verdict on %s", dir)
}
