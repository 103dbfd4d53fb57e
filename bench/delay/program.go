package delay

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/compensator-go/compensator/bench/internal/child"
)

// childAttributes lets no child outlive the benchmark, however that ends.
func childAttributes() *syscall.SysProcAttr { return child.Attributes(nil, syscall.SIGKILL) }

// serve runs a server in dir, in a process group of its own, until the test ends, and returns when ask is content.
func serve(tb testing.TB, cmd *exec.Cmd, dir string, ask func() error) error {
	cmd.Dir, cmd.SysProcAttr = dir, childAttributes()
	return child.Serve(tb, cmd, ask, func(process *os.Process, _ <-chan struct{}) {
		_ = syscall.Kill(-process.Pid, syscall.SIGKILL) // its data is thrown away: nothing is gained by an end in order
	})
}

// findProgram looks where an ordinary PATH does not lead, too, and there first.
func findProgram(name string, elsewhere ...string) (string, error) {
	for _, file := range append(elsewhere, name) {
		if path, err := exec.LookPath(file); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: no %s", errNotHere, name)
}
