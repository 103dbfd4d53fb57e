//go:build !failpoints

package failpoint

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An ordinary program must not contain a failpoint. The test also searches a program with the build tag failpoints.
// There the search must find every failpoint, which shows that the search works.
func TestOrdinaryBuildHoldsNoPoint(t *testing.T) {
	ordinary := look(t)
	require.Empty(t, ordinary.names, "names of points in the program")
	require.Empty(t, ordinary.symbols, "symbols of this package")
	require.Zero(t, ordinary.calls, "calls of Reach")

	tagged := look(t, "-tags", "failpoints")
	for _, p := range declared(t) {
		if !p.common() {
			require.Contains(t, tagged.names, p.point)
		}
	}
	require.NotEmpty(t, tagged.symbols)
	require.Equal(t, len(declared(t)), tagged.calls)
}

func (p named) common() bool { return !strings.Contains(string(p.point), "-") }

type findings struct {
	names   []Point
	symbols []string
	calls   int
}

// The flag -w leaves out debugging information, because only code and data of the running program count.
func look(t *testing.T, flags ...string) (f findings) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "engine")
	run(t, append([]string{"build", "-ldflags=-w", "-o", program}, append(flags, "./testdata/engine")...)...)
	text, err := os.ReadFile(program)
	require.NoError(t, err)
	for _, p := range declared(t) {
		if !p.common() && bytes.Contains(text, []byte(p.point)) {
			f.names = append(f.names, p.point)
		}
	}
	for line := range strings.Lines(run(t, "tool", "nm", program)) {
		if strings.Contains(line, "internal/failpoint") {
			f.symbols = append(f.symbols, strings.TrimSpace(line))
		}
	}
	code := run(t, "tool", "objdump", "-s", "compensator-go/compensator", program)
	f.calls = strings.Count(code, "CALL github.com/compensator-go/compensator/internal/failpoint.Reach(SB)")
	return f
}

func run(t *testing.T, args ...string) string {
	t.Helper()
	output, err := exec.Command("go", args...).Output()
	require.NoError(t, err, "go %s", strings.Join(args, " "))
	return string(output)
}
