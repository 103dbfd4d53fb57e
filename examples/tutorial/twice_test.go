package tutorial

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/testservers"
)

// The second run finds the rows and the idempotency keys of the first one, and must print the same.
func TestEachProgramMayRunTwice(t *testing.T) {
	t.Parallel()
	for folder, commands := range map[string][][]string{
		"first":           {{}},
		"firstgorm":       {{}},
		"tutorial/sqlite": {{"place", "41"}, {"list"}},
		"tutorial/mysql":  {{"create"}, {"place", "3"}, {"pay", "2"}, {"books"}},
		"tutorial/dead":   {{"refund", "42"}},
	} {
		t.Run(folder, func(t *testing.T) {
			t.Parallel()
			program := built(t, folder)
			for _, command := range commands {
				first, second := program(command...), program(command...)
				assert.Equalf(t, numbers.ReplaceAllString(first, "N"), numbers.ReplaceAllString(second, "N"), "%v", command)
			}
		})
	}
}

// The program gets a separate database, Redis and folder.
func built(t *testing.T, folder string) func(arguments ...string) string {
	where := t.TempDir()
	program := filepath.Join(where, "program")
	build := exec.Command("go", "build", "-o", program, "../"+folder)
	output, err := build.CombinedOutput()
	require.NoErrorf(t, err, "%s", output)
	env := append(os.Environ(), "SHOP_DSN="+testservers.Database(t), "SHOP_REDIS="+testservers.NewRedis(t).Addr())
	return func(arguments ...string) string {
		var problems bytes.Buffer
		run := exec.Command(program, arguments...)
		run.Dir, run.Env, run.Stderr = where, env, &problems
		printed, err := run.Output()
		require.NoErrorf(t, err, "%s %v: %s", folder, arguments, &problems)
		return string(printed)
	}
}
