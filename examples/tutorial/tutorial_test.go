// Package tutorial tests the pages that a newcomer follows: the README, the tutorials and the page about installing. It
// runs each step as the page prints it.
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

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/examples/internal/browser"
	"github.com/compensator-go/compensator/internal/testservers"
)

type block struct {
	comments string
	language string
	text     string
}

var (
	fenced  = regexp.MustCompile("(?m)(?:^<!-- (browser) -->$|((?:^<!-- [^\n]* -->\n)*)^```(\\w+)\n(?s:(.*?))^```$)")
	saved   = regexp.MustCompile(`<!-- save: (\S+) -->`)
	numbers = regexp.MustCompile(` *\d+`) // a table pads its numbers with spaces
)

type step struct {
	browser  bool              // whether a person uses the browser before the commands run
	files    map[string]string // contents of the files to write before the commands run, by name
	commands string
	prints   *string
	numbers  bool // whether the printed numbers differ from run to run
}

// stepsOf returns the steps of a page for a machine without Docker. It leaves out the blocks marked with "with Docker"
// or "not run".
func stepsOf(t *testing.T, page string) []step { return stepsFor(t, page, "<!-- with Docker -->") }

func stepsFor(t *testing.T, page, leftOut string) (steps []step) {
	text, err := os.ReadFile(filepath.Join("../..", page))
	require.NoError(t, err)
	files, browser := make(map[string]string), false
	for _, match := range fenced.FindAllStringSubmatch(string(text), -1) {
		if match[1] != "" {
			browser = true
			continue
		}
		b := block{comments: match[2], language: match[3], text: match[4]}
		name := saved.FindStringSubmatch(b.comments)
		switch {
		case strings.Contains(b.comments, "<!-- not run: "), strings.Contains(b.comments, leftOut):
		case name != nil:
			files[name[1]] = b.text
		case b.language == "sh":
			steps = append(steps, step{browser: browser, files: files, commands: b.text})
			files, browser = make(map[string]string), false
		case b.language == "text" && len(steps) > 0 && steps[len(steps)-1].prints == nil:
			steps[len(steps)-1].prints = &b.text
			steps[len(steps)-1].numbers = strings.Contains(b.comments, "<!-- numbers differ -->")
		}
	}
	require.NotEmpty(t, steps)
	return steps
}

// run calls the function person where the page asks for a browser. The argument replace holds pairs: a text of the
// page, and the text that replaces it.
func run(t *testing.T, steps []step, person func(), replace ...string) {
	tree, err := filepath.Abs("../..")
	require.NoError(t, err)
	dir, outputs := t.TempDir(), t.TempDir()
	replacer := strings.NewReplacer(append(replace, "git clone -q https://github.com/compensator-go/compensator", "ln -s "+tree+" compensator")...)
	var script strings.Builder
	for i, s := range steps {
		if s.browser {
			fmt.Fprintf(&script, "touch %[1]s/begin; until [ -e %[1]s/done ]; do sleep 0.1; done\n", outputs)
		}
		for name, text := range s.files {
			fmt.Fprintf(&script, "mkdir -p %s\ncat >%s <<'END OF FILE'\n%sEND OF FILE\n", filepath.Dir(name), name, text)
		}
		fmt.Fprintf(&script, "{\n%s} >%s/%d.out 2>>%s/errors\n", replacer.Replace(s.commands), outputs, i, outputs)
	}
	shell := exec.Command("bash", "-c", script.String())
	shell.Dir = dir
	shell.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "GORACE=")
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, shell.Start())
	t.Cleanup(func() { _ = syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) }) // Kill the servers that the page has started and not stopped, because a step has failed.
	late := time.AfterFunc(10*time.Minute, func() { _ = syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) })
	wait := make(chan error, 1)
	go func() { wait <- shell.Wait() }()
	ended, left := untilBrowser(outputs, wait)
	if !left {
		person()
		require.NoError(t, os.WriteFile(filepath.Join(outputs, "done"), nil, 0o644))
		ended = <-wait
	}
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

func untilBrowser(outputs string, wait <-chan error) (ended error, left bool) {
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case err := <-wait:
			return err, true
		case <-look.C:
			if _, err := os.Stat(filepath.Join(outputs, "begin")); err == nil {
				return nil, false
			}
		}
	}
}

func TestMain(m *testing.M) { os.Exit(testservers.Main(m)) }

func TestEachStepOfTheFirstTutorialPrintsWhatThePageShows(t *testing.T) {
	t.Parallel()
	run(t, stepsOf(t, "docs/tutorials/sqlite.md"), nil)
}

func TestEachStepOfTheSecondTutorialPrintsWhatThePageShows(t *testing.T) {
	t.Parallel()
	run(t, stepsOf(t, "docs/tutorials/mysql-redis.md"), nil, "3307", freePort(t), "6380", freePort(t))
}

// TestEachDockerStepOfTheSecondTutorialPrintsWhatThePageShows needs `docker compose` and the images of the page.
func TestEachDockerStepOfTheSecondTutorialPrintsWhatThePageShows(t *testing.T) {
	t.Parallel()
	steps := stepsFor(t, "docs/tutorials/mysql-redis.md", "<!-- without Docker -->")
	require.Contains(t, steps[1].files, "compose.yaml")
	require.Contains(t, steps[len(steps)-1].commands, "docker compose down")
	if os.Getenv("COMPENSATOR_SERVERS") == "docker" {
		run(t, steps, nil, "3307", freePort(t), "6380", freePort(t))
	}
}

func TestSecondTutorialShowsTheLogOfAServerThatDoesNotStart(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	require.NoError(t, err)
	steps := stepsOf(t, "docs/tutorials/mysql-redis.md")[:2]
	require.Contains(t, steps[1].commands, "mariadbd")
	steps[1].commands += "kill $redis\n"
	one := "1\n"
	steps[1].prints = &one
	run(t, steps, nil, "3307", port, "6380", freePort(t), "tail run/*.log", "tail run/*.log | grep -c 'Address already in use'")
}

func TestEachStepOfTheThirdTutorialPrintsWhatThePageShows(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	reads := func() {
		p := &person{tab: browser.Open(t, 1200, 900)}
		p.follow(t, sentencesOf(t, "dead-entry.md"), strings.NewReplacer("8090", port))
	}
	run(t, stepsOf(t, "docs/tutorials/dead-entry.md"), reads, "8090", port)
}

func TestReadmesProgramsAreBuiltAndPrintAsTheReadmeShows(t *testing.T) {
	t.Parallel()
	steps := stepsOf(t, "README.md")
	steps[0].commands = fmt.Sprintf("export SHOP_DSN='%s' SHOP_REDIS=%s\n", testservers.Database(t), testservers.NewRedis(t).Addr()) + steps[0].commands
	run(t, steps, nil)
}

// shown waits until the page shows a text. It does not use Poll of chromedp, because the pages forbid the evaluation of
// text as script, which Poll needs.
func shown(text string) chromedp.Action {
	return chromedp.WaitReady(`//main//*[contains(text(), "`+text+`")]`, chromedp.BySearch)
}

func freePort(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	return port
}
