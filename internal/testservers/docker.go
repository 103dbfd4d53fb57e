package testservers

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A start may have to build the command and pull an image.
const containerLimit = 10 * time.Minute

// container is a machine in a Docker container. A child process runs it: the command of the nested module docker, so
// that only that module imports testcontainers-go. The command removes the container when its input is closed.
type container struct {
	address  string
	password string // root's password (SQL only)

	mu       sync.Mutex // guards the fields below; held during a command
	child    *process
	commands *os.File
	answers  *os.File
	lines    *bufio.Reader
	stderr   string // path of the file
}

// containerAnswer is one output line of the command. docker/main.go writes it.
type containerAnswer struct {
	Addr     string `json:"addr,omitempty"`
	Password string `json:"password,omitempty"`
	Image    string `json:"image,omitempty"`
	Log      string `json:"log,omitempty"`
	Error    string `json:"error,omitempty"`
}

var _ machine = (*container)(nil)

func startSQLContainer(flags []string) (machine, string, error) {
	if path := os.Getenv("COMPENSATOR_MYSQLD"); path != "" {
		return nil, "", fmt.Errorf("COMPENSATOR_MYSQLD=%s asks for a local server", path)
	}
	// Clients connect from outside the container. Without --skip-name-resolve, the server would look up the name of
	// each client.
	defaults := append([]string{"--skip-name-resolve"}, usualSQLFlags...)
	return startContainer("mysql", func(int) ([]string, error) { return slices.Concat(defaults, flags), nil })
}

func startRedisContainer(flags []string) (machine, string, error) {
	return startContainer("redis", func(int) ([]string, error) { return slices.Concat(openRedisFlags, flags), nil })
}

// openRedisFlags allow clients that connect from outside the container.
var openRedisFlags = append([]string{"--protected-mode", "no"}, usualRedisFlags...)

// The nodes use the host's network. A node announces one address to the other nodes and to clients, so both must reach
// it in one network.
func startClusterContainer(flags []string) (machine, string, error) {
	return startContainer("redis-on-host", func(port int) ([]string, error) {
		moreFlags, err := clusterFlags(flags)
		return slices.Concat([]string{"--port", strconv.Itoa(port)}, openRedisFlags, moreFlags), err
	})
}

// The replica uses the host's network. In a separate one, 127.0.0.1 would be the replica's own container and not the
// master.
func startReplicaContainer(flags []string) (machine, string, error) {
	return startContainer("redis-on-host", func(port int) ([]string, error) {
		return slices.Concat([]string{"--port", strconv.Itoa(port)}, openRedisFlags, flags), nil
	})
}

// The child process writes the settings into a configuration file of the broker.
func startRabbitContainer(settings []string) (machine, string, error) {
	return startContainer("rabbitmq", func(int) ([]string, error) { return settings, nil })
}

func startContainer(kind string, flags func(port int) ([]string, error)) (machine, string, error) {
	if err := pingDocker(); err != nil {
		return nil, "", err
	}
	for range 9 {
		c, image, err := tryContainer(kind, flags)
		if err == nil || !isPortTaken(err) {
			return c, image, err
		}
	}
	return tryContainer(kind, flags)
}

// tryContainer fails if the port is taken on the Docker host, which may be another machine.
func tryContainer(kind string, flags func(port int) ([]string, error)) (machine, string, error) {
	port, err := freePort()
	if err != nil {
		return nil, "", err
	}
	argv, err := flags(port)
	if err != nil {
		return nil, "", err
	}
	c := &container{}
	image, err := c.launch(append([]string{kind, strconv.Itoa(port)}, argv...))
	if err != nil {
		return nil, "", err
	}
	return c, image, nil
}

// isPortTaken recognizes the error texts of Docker, of its proxy and of Redis.
func isPortTaken(err error) bool {
	text := strings.ToLower(err.Error())
	return strings.Contains(text, "port is already allocated") || strings.Contains(text, "address already in use")
}

// On failure launch removes everything.
func (c *container) launch(args []string) (string, error) {
	if err := c.spawn(args); err != nil {
		return "", err
	}
	hello, err := c.answer(containerLimit)
	if err != nil {
		c.discard()
		return "", err
	}
	c.address, c.password = hello.Addr, hello.Password
	return hello.Image, nil
}

func (c *container) spawn(args []string) error {
	module, err := dockerModule()
	if err != nil {
		return err
	}
	dir, err := serverDir()
	if err != nil {
		return err
	}
	c.stderr = filepath.Join(dir, "log")
	stderr, err := os.Create(c.stderr)
	if err != nil {
		return err
	}
	defer stderr.Close()
	stdin, commands, err := os.Pipe()
	if err != nil {
		return err
	}
	defer stdin.Close()
	answers, stdout, err := os.Pipe()
	if err != nil {
		return errors.Join(err, commands.Close())
	}
	defer stdout.Close()
	cmd := exec.Command("go", append([]string{"run", "-C", module, "."}, args...)...)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	c.commands, c.answers, c.lines = commands, answers, bufio.NewReader(answers)
	if c.child, err = startProcess(cmd); err != nil {
		return errors.Join(err, commands.Close(), answers.Close())
	}
	return nil
}

func dockerModule() (string, error) {
	_, file, _, _ := runtime.Caller(0)
	dir := filepath.Join(filepath.Dir(file), "docker")
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		return "", fmt.Errorf("the source of the container command is not here (built with -trimpath?): %w", err)
	}
	return dir, nil
}

func (c *container) answer(limit time.Duration) (containerAnswer, error) {
	var answer containerAnswer
	if err := c.answers.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return answer, err
	}
	line, err := c.lines.ReadBytes('\n')
	if err != nil {
		output, _ := os.ReadFile(c.stderr)
		return answer, fmt.Errorf("the container command says nothing (%w); its log ends:\n%s", err, lastLines(string(output), 15))
	}
	if err := json.Unmarshal(line, &answer); err != nil {
		return answer, fmt.Errorf("the container command says %q: %w", line, err)
	}
	if answer.Error != "" {
		return answer, errors.New(answer.Error)
	}
	return answer, nil
}

func (c *container) command(verb string) (containerAnswer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.commands.WriteString(verb + "\n"); err != nil {
		return containerAnswer{}, err
	}
	return c.answer(2 * startLimit)
}

func (c *container) do(verb string) error {
	_, err := c.command(verb)
	return err
}

func (c *container) addr() string   { return c.address }
func (c *container) kill() error    { return c.do("kill") }
func (c *container) stop() error    { return c.do("stop") }
func (c *container) restart() error { return c.do("restart") }
func (c *container) pause() error   { return c.do("pause") }
func (c *container) resume() error  { return c.do("resume") }

func (c *container) errorLog() string {
	answer, err := c.command("log")
	if err != nil {
		return err.Error()
	}
	return answer.Log
}

func (c *container) runControl(args []string) (string, error) {
	encoded, err := json.Marshal(args)
	if err != nil {
		return "", err
	}
	answer, err := c.command("rabbitmqctl " + string(encoded))
	return answer.Log, err
}

// When its input is closed, the command removes the container and exits.
func (c *container) discard() {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.commands.Close()
	if !waitUntil(startLimit, c.child.exited) {
		_ = c.child.kill()
	}
	_ = c.answers.Close()
	_ = os.RemoveAll(filepath.Dir(c.stderr))
}
