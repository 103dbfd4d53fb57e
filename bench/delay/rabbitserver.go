package delay

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/compensator-go/compensator/bench/internal/child"
)

// Erlang's name service starts first, on a separate port, because otherwise it would outlive the server.
func startRabbitMQ(tb testing.TB) (string, error) {
	// Debian's wrapper in PATH requires the user rabbitmq.
	server, err := findProgram("rabbitmq-server", "/usr/lib/rabbitmq/bin/rabbitmq-server")
	if err != nil {
		return "", err
	}
	names, err := findProgram("epmd")
	if err != nil {
		return "", err
	}
	ports, err := child.FreePorts(3)
	if err != nil {
		return "", err
	}
	dir := tb.TempDir()
	env := rabbitEnv(dir, ports[0], ports[1], ports[2])
	epmd := exec.Command(names, "-port", fmt.Sprint(ports[0]), "-address", "127.0.0.1")
	if err := serve(tb, epmd, dir, func() error { return dial(ports[0]) }); err != nil {
		return "", err
	}
	broker := exec.Command(server, "-noinput")
	broker.Env = env
	url := fmt.Sprintf("amqp://guest:guest@127.0.0.1:%d/", ports[1])
	return url, serve(tb, broker, dir, func() error {
		conn, err := amqp.Dial(url)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// rabbitEnv returns an environment that keeps all files in dir. With RABBITMQ_ALLOW_INPUT the start script replaces
// itself with the server. Otherwise it would start the server as a child, which could outlive the benchmark.
func rabbitEnv(dir string, names, port, distribution int) []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir,
		fmt.Sprintf("ERL_EPMD_PORT=%d", names), "ERL_EPMD_ADDRESS=127.0.0.1",
		"RABBITMQ_ALLOW_INPUT=1",
		"RABBITMQ_CONF_ENV_FILE=/dev/null", "RABBITMQ_CONFIG_FILE=" + filepath.Join(dir, "none"),
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + filepath.Join(dir, "plugins"),
		"RABBITMQ_MNESIA_BASE=" + filepath.Join(dir, "mnesia"), "RABBITMQ_LOG_BASE=" + filepath.Join(dir, "log"), "RABBITMQ_LOGS=-",
		"RABBITMQ_PID_FILE=" + filepath.Join(dir, "pid"),
		fmt.Sprintf("RABBITMQ_NODENAME=delay%d@localhost", port), "RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
		fmt.Sprintf("RABBITMQ_NODE_PORT=%d", port), fmt.Sprintf("RABBITMQ_DIST_PORT=%d", distribution),
	}
}

func dial(port int) error {
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	return conn.Close()
}
