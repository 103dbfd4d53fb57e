// Package tutorial tests the tutorials of the documentation: it runs each step as the page prints it.
package tutorial

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// block is one block of code of a page, with the comments above it.
type block struct {
	comments string
	language string
	text     string
}

var (
	fenced  = regexp.MustCompile("(?m)((?:^<!-- [^\n]* -->\n)*)^```(\\w+)\n(?s:(.*?))^```$")
	saved   = regexp.MustCompile(`<!-- save: (\S+) -->`)
	numbers = regexp.MustCompile(`\d+`)
)

// step is a block of commands with what it prints.
type step struct {
	files    map[string]string // files to write before
	commands string
	prints   *string
	numbers  bool // numbers differ from run to run
}

// stepsOf returns the steps of a page. Blocks that need Docker are left out.
func stepsOf(t *testing.T, page string) (steps []step) {
	text, err := os.ReadFile(filepath.Join("../../docs/tutorials", page))
	require.NoError(t, err)
	files := make(map[string]string)
	for _, match := range fenced.FindAllStringSubmatch(string(text), -1) {
		b := block{comments: match[1], language: match[2], text: match[3]}
		name := saved.FindStringSubmatch(b.comments)
		switch {
		case strings.Contains(b.comments, "<!-- not run: "):
		case name != nil:
			files[name[1]] = b.text
		case b.language == "sh":
			steps = append(steps, step{files: files, commands: b.text})
			files = make(map[string]string)
		case b.language == "text" && len(steps) > 0 && steps[len(steps)-1].prints == nil:
			steps[len(steps)-1].prints = &b.text
			steps[len(steps)-1].numbers = strings.Contains(b.comments, "<!-- numbers differ -->")
		}
	}
	require.NotEmpty(t, steps)
	return steps
}

// run runs the steps in one shell, in a new folder, and compares what they print. replace has pairs of texts.
func run(t *testing.T, steps []step, replace ...string) {
	tree, err := filepath.Abs("../..")
	require.NoError(t, err)
	dir, outputs := t.TempDir(), t.TempDir()
	replacer := strings.NewReplacer(append(replace, "git clone -q https://github.com/compensator-go/compensator", "ln -s "+tree+" compensator")...)
	var script strings.Builder
	for i, s := range steps {
		for name, text := range s.files {
			fmt.Fprintf(&script, "cat >%s <<'END OF FILE'\n%sEND OF FILE\n", name, text)
		}
		fmt.Fprintf(&script, "{\n%s} >%s/%d.out 2>>%s/errors\n", replacer.Replace(s.commands), outputs, i, outputs)
	}
	shell := exec.Command("bash", "-c", script.String())
	shell.Dir = dir
	shell.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off", "GORACE=")
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, shell.Start())
	t.Cleanup(func() { _ = syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) }) // servers of a page that was left early
	late := time.AfterFunc(10*time.Minute, func() { _ = syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) })
	ended := shell.Wait()
	late.Stop()
	problems, _ := os.ReadFile(filepath.Join(outputs, "errors"))
	for i, s := range steps {
		if s.prints == nil {
			continue
		}
		printed, err := os.ReadFile(filepath.Join(outputs, fmt.Sprint(i)+".out"))
		require.NoErrorf(t, err, "%s\n%s", s.commands, problems)
		want, got := *s.prints, string(printed)
		if s.numbers {
			want, got = numbers.ReplaceAllString(want, "N"), numbers.ReplaceAllString(got, "N")
		}
		require.Equalf(t, want, got, "%s\n%s", s.commands, problems)
	}
	require.NoErrorf(t, ended, "%s", problems)
}

func TestEachStepOfTheFirstTutorialPrintsWhatThePageShows(t *testing.T) {
	t.Parallel()
	run(t, stepsOf(t, "sqlite.md"))
}

func TestEachStepOfTheSecondTutorialPrintsWhatThePageShows(t *testing.T) {
	t.Parallel()
	run(t, stepsOf(t, "mysql-redis.md"), "3307", freePort(t), "6380", freePort(t))
}

// freePort returns a port that nobody listens on.
func freePort(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	return port
}
