package delay

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/compensator-go/compensator/bench/internal/child"
)

// childAttributes returns attributes with which no child outlives the benchmark, even if the benchmark is killed.
func childAttributes() *syscall.SysProcAttr { return child.Attributes(nil, syscall.SIGKILL) }

// serve runs a server in dir, in its own process group, until the test ends.
func serve(tb testing.TB, cmd *exec.Cmd, dir string, ask func() error) error {
	cmd.Dir, cmd.SysProcAttr = dir, childAttributes()
	return child.Serve(tb, cmd, ask, func(process *os.Process, _ <-chan struct{}) {
		_ = syscall.Kill(-process.Pid, syscall.SIGKILL) // Kill the server, because its data is thrown away.
	})
}

func findProgram(name string, elsewhere ...string) (string, error) {
	for _, file := range append(elsewhere, name) {
		if path, err := exec.LookPath(file); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: no %s", errNotHere, name)
}
