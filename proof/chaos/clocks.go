package chaos

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// clockSource is the source of a C library that moves the clocks of the database server and of Redis. LD_PRELOAD loads
// this library into the servers. The library cannot move the apps' clocks, because Go programs read the clock without
// the standard C library.
//
//go:embed testdata/clock.c
var clockSource []byte

type clocks struct{ dir string }

const preload = "LD_PRELOAD"

// newClocks returns an error if the system has no C compiler or no glibc.
func newClocks(tb testing.TB) (*clocks, error) {
	c := &clocks{dir: tb.TempDir()}
	source, library := filepath.Join(c.dir, "clock.c"), filepath.Join(c.dir, "clock.so")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		return nil, err
	}
	if output, err := exec.Command("cc", "-shared", "-fPIC", "-O2", "-o", library, source, "-pthread", "-ldl").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cc: %w %s", err, output)
	}
	for _, server := range []string{sqlClock, redisClock} {
		if err := c.set(server, 0); err != nil {
			return nil, err
		}
	}
	tb.Setenv("CHAOS_CLOCKS", c.dir)
	tb.Setenv(preload, library)
	return c, nil
}

const (
	sqlClock   = "sql"
	redisClock = "redis"
)

func (c *clocks) set(clock string, offset time.Duration) error {
	file, err := os.OpenFile(filepath.Join(c.dir, clock), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(offset.Microseconds())), 0)
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	return err
}
