package testservers

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// rabbitNode is a broker from this machine's packages with separate data, ports and port mapper. It does not touch the
// system's broker.
type rabbitNode struct {
	*program
	scripts string   // directory of rabbitmq-server and rabbitmqctl
	env     []string // environment of both scripts
	mapper  *process // epmd. A node needs one to start, and would leave behind an epmd that it started itself.
}

func startLocalRabbit(settings []string) (machine, string, error) {
	script, err := findRabbit()
	if err != nil {
		return nil, "", err
	}
	dir, err := serverDir()
	if err != nil {
		return nil, "", err
	}
	name := newPrefix()
	n := &rabbitNode{scripts: filepath.Dir(script)}
	if err := n.startMapper(dir); err != nil {
		_ = os.RemoveAll(dir)
		return nil, "", err
	}
	if err := n.prepare(dir, name); err != nil {
		n.discardMapper(dir)
		return nil, "", err
	}
	n.program = &program{
		path: "/usr/bin/env", dir: dir,
		args:  func(port int) ([]string, error) { return n.argv(dir, name, port, script, settings) },
		probe: func(address string, _ int) error { return probeRabbit(address, name) },
	}
	if err := n.launch(); err != nil {
		n.discardMapper(dir)
		return nil, "", err
	}
	return n, n.version(), nil
}

// Debian's wrapper switches to the user rabbitmq and drops the environment.
func findRabbit() (string, error) {
	if found, err := findProgram("/usr/lib/rabbitmq/bin/rabbitmq-server"); err == nil {
		return found, nil
	}
	return findProgram("rabbitmq-server")
}

func (n *rabbitNode) startMapper(dir string) error {
	path, err := findProgram("epmd")
	if err != nil {
		return err
	}
	for range 10 {
		port, err := freePort()
		if err != nil {
			return err
		}
		cmd := exec.Command(path, "-port", strconv.Itoa(port))
		cmd.Env = append(cmd.Environ(), "ERL_EPMD_ADDRESS=127.0.0.1")
		cmd.Dir = dir
		if n.mapper, err = startProcess(cmd); err != nil {
			return err
		}
		n.env = []string{"ERL_EPMD_PORT=" + strconv.Itoa(port), "ERL_EPMD_ADDRESS=127.0.0.1"}
		waitUntil(startLimit, func() bool { return n.mapper.exited() || answers(localAddr(port)) })
		if !n.mapper.exited() {
			return nil
		}
	}
	return fmt.Errorf("%s ends at its start", path)
}

func answers(address string) bool {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// prepare writes the configuration that the scripts would otherwise read from /etc/rabbitmq.
func (n *rabbitNode) prepare(dir, name string) error {
	pathOf := func(file string) string { return filepath.Join(dir, file) }
	n.env = append(n.env,
		"HOME="+dir, // directory of the cookie
		// Every erl process of the scripts reads this flag. Without the flag, a process starts an epmd of its own if
		// n.mapper does not answer. Nobody would end that epmd.
		"ERL_AFLAGS=-start_epmd false",
		"RABBITMQ_NODENAME="+name+"@localhost",
		"RABBITMQ_BASE="+dir, "RABBITMQ_MNESIA_BASE="+pathOf("mnesia"), "RABBITMQ_LOG_BASE="+dir, "RABBITMQ_LOGS=-",
		"RABBITMQ_PID_FILE="+pathOf("pid"), "RABBITMQ_ENABLED_PLUGINS_FILE="+pathOf("enabled_plugins"),
		"RABBITMQ_CONF_ENV_FILE="+pathOf("env.conf"), "RABBITMQ_CONFIG_FILE="+pathOf("rabbitmq.conf"),
		"RABBITMQ_CONFIG_FILES="+pathOf("conf.d"), "RABBITMQ_ADVANCED_CONFIG_FILE="+pathOf("advanced.config"),
		"RABBITMQ_ALLOW_INPUT=1", // The script executes the broker directly instead of as a child.
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none", // Idle threads do not spin.
	)
	home, err := n.lendHome(dir)
	if err != nil {
		return err
	}
	for file, text := range map[string]string{"enabled_plugins": "[].\n", "env.conf": "RABBITMQ_HOME='" + home + "'\n"} {
		if err := os.WriteFile(pathOf(file), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return os.Mkdir(pathOf("conf.d"), 0o700)
}

// lendHome creates a home directory for the broker that has all installed libraries except the plugins. The broker
// starts faster there: Erlang searches all libraries for each of hundreds of modules, and half of the libraries are
// plugins.
func (n *rabbitNode) lendHome(dir string) (home string, err error) {
	home = filepath.Join(dir, "home")
	plugins := filepath.Join(home, "plugins") // RabbitMQ uses this name for plugins and libraries.
	if err := os.MkdirAll(plugins, 0o700); err != nil {
		return "", err
	}
	libraries, err := filepath.Glob(filepath.Join(n.installedVersion(), "plugins", "*"))
	if err != nil {
		return "", err
	}
	for _, library := range libraries {
		if name := filepath.Base(library); !isPlugin(name) {
			if err := os.Symlink(library, filepath.Join(plugins, name)); err != nil {
				return "", err
			}
		}
	}
	n.env = append(n.env, "RABBITMQ_PLUGINS_DIR="+plugins)
	return home, nil
}

// isPlugin reports whether a library is a plugin, such as rabbitmq_shovel-3.10.8. Two rabbitmq libraries that a broker
// or its scripts need at the start are no plugins.
func isPlugin(library string) bool {
	name, _, _ := strings.Cut(library, "-")
	return strings.HasPrefix(name, "rabbitmq_") && name != "rabbitmq_prelaunch" && name != "rabbitmq_cli"
}

// argv writes the configuration first.
func (n *rabbitNode) argv(dir, name string, port int, script string, settings []string) ([]string, error) {
	other, err := freePort()
	if err != nil {
		return nil, err
	}
	conf := slices.Concat([]string{
		"listeners.tcp.1 = " + localAddr(port), "cluster_name = " + name, "disk_free_limit.absolute = 1MB", "log.console.level = warning",
	}, settings)
	if err := os.WriteFile(filepath.Join(dir, "rabbitmq.conf"), []byte(strings.Join(conf, "\n")+"\n"), 0o600); err != nil {
		return nil, err
	}
	ports := []string{"RABBITMQ_NODE_IP_ADDRESS=127.0.0.1", "RABBITMQ_NODE_PORT=" + strconv.Itoa(port), "RABBITMQ_DIST_PORT=" + strconv.Itoa(other)}
	return slices.Concat(n.env, ports, []string{script, "-noinput", "-kernel", "inet_dist_use_interface", "{127,0,0,1}"}), nil
}

func (n *rabbitNode) runControl(args []string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(n.scripts, "rabbitmqctl"), args...)
	cmd.Env = append(cmd.Environ(), n.env...)
	output, err := cmd.CombinedOutput()
	return string(output), err
}

func (n *rabbitNode) version() string { return filepath.Base(n.installedVersion()) }

// The name of the returned directory contains the version.
func (n *rabbitNode) installedVersion() string {
	target, err := filepath.EvalSymlinks(n.scripts + "/rabbitmq-server")
	if err != nil {
		return n.scripts
	}
	return filepath.Dir(filepath.Dir(target))
}

func (n *rabbitNode) discard() {
	n.program.discard()
	_ = n.mapper.kill()
}

func (n *rabbitNode) discardMapper(dir string) {
	_ = n.mapper.kill()
	_ = os.RemoveAll(dir)
}
