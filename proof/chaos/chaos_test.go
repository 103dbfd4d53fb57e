package chaos

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	duration = flag.Duration("chaos.duration", time.Minute, "how long load and faults last")
	seed     = flag.Uint64("chaos.seed", 1, "seed of the faults and the load")
	dir      = flag.String("chaos.dir", "", "directory of the history; default build/chaos/<seed> in the module's root, or <seed>-2 and so on while another run uses it")
	rate     = flag.Float64("chaos.rate", 0, "entries recorded per second; 0: the default")
	kinds    = flag.String("chaos.kinds", "", "only these faults, separated by semicolons")
)

func TestChaos(t *testing.T) {
	cfg := Config{Seed: *seed, Duration: *duration, Rate: *rate, Dir: historyDir(t, fmt.Sprint(*seed))}
	if *kinds != "" {
		cfg.Faults.Kinds = strings.Split(*kinds, ";")
	}
	Run(t, cfg)
	judge(t, cfg.Dir)
}

func historyDir(t *testing.T, name string) string {
	if *dir != "" {
		return *dir
	}
	root, err := filepath.Abs("../../build/chaos")
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(root, 0o755))
	for n := 1; ; n++ {
		path := filepath.Join(root, name)
		if n > 1 {
			path += fmt.Sprint("-", n)
		}
		lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o644)
		require.NoError(t, err)
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			t.Cleanup(func() { _ = lock.Close() })
			return path
		}
		require.NoError(t, lock.Close())
	}
}

func judge(t *testing.T, dir string) {
	t.Helper()
	verdict := run(t, "./check", dir)
	require.NoError(t, run(t, "./report", dir), "the report on %s", dir)
	require.NoError(t, verdict, "the checker's verdict on %s", dir)
}

func run(t *testing.T, program, dir string) error {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "program")
	output, err := exec.Command("go", "build", "-o", binary, program).CombinedOutput()
	require.NoError(t, err, string(output))
	cmd := exec.Command(binary, dir)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}
