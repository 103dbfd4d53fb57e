package testservers

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// RabbitMQServer is one broker with the user guest, who has all permissions.
type RabbitMQServer struct {
	control
	url string
}

var rabbitServers = source{
	kind:     "RabbitMQ",
	given:    "AMQP_URL",
	docker:   startRabbitContainer,
	local:    startLocalRabbit,
	packages: []string{"rabbitmq-server"},
}

// SharedRabbitMQ returns the broker that all tests of this process share, and starts it on first use. Kill and similar
// methods panic on it.
func SharedRabbitMQ(tb testing.TB) *RabbitMQServer {
	tb.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.rabbit == nil {
		server, err := sharedRabbit()
		if err != nil {
			tb.Fatalf("testservers: %v", err)
		}
		shared.rabbit = server
	}
	return shared.rabbit
}

func sharedRabbit() (*RabbitMQServer, error) {
	open, err := allowed()
	if err != nil {
		return nil, err
	}
	if address := os.Getenv("AMQP_URL"); address != "" && open[0] == byDSN {
		return givenRabbit(address)
	}
	started, err := rabbitServers.start(nil)
	if err != nil {
		return nil, err
	}
	return ownRabbit(started, nil), nil
}

func givenRabbit(address string) (*RabbitMQServer, error) {
	parsed, err := url.Parse(address)
	if err != nil || parsed.Scheme != "amqp" || parsed.Hostname() == "" {
		return nil, fmt.Errorf("AMQP_URL: want amqp://user:password@host:port/vhost")
	}
	host := parsed.Host
	if parsed.Port() == "" {
		host = net.JoinHostPort(parsed.Hostname(), "5672")
	}
	if err := askRabbit(host, ""); err != nil {
		return nil, fmt.Errorf("AMQP_URL: %w", err)
	}
	rabbitServers.report(byDSN, host)
	return &RabbitMQServer{control: control{machine: given{host}}, url: address}, nil
}

// NewRabbitMQ starts a broker for this test alone. It ends the broker and deletes its data at the end of the test.
// Restart brings it back with the messages that it has confirmed. settings are lines of rabbitmq.conf, for example
// "max_message_size = 1000".
func NewRabbitMQ(tb testing.TB, settings ...string) *RabbitMQServer {
	tb.Helper()
	started, err := rabbitServers.start(settings)
	if err != nil {
		tb.Fatalf("testservers: %v", err)
	}
	server := ownRabbit(started, tb)
	server.discardAtEnd()
	return server
}

func ownRabbit(started machine, owner testing.TB) *RabbitMQServer {
	return &RabbitMQServer{control: control{machine: started, owner: owner}, url: "amqp://guest:guest@" + started.addr() + "/"}
}

// URL returns the AMQP URL for clients. On a broker that this package started, it logs in as guest.
func (s *RabbitMQServer) URL() string { return s.url }

// URLAt returns URL with another address, for example a proxy's.
func (s *RabbitMQServer) URLAt(address string) string {
	parsed, err := url.Parse(s.url)
	if err != nil {
		panic(err) // The URL was parsed before.
	}
	parsed.Host = address
	return parsed.String()
}

// Name returns a name for a queue, an exchange or a user that no other test uses.
func (s *RabbitMQServer) Name() string { return newPrefix() }

// Control runs rabbitmqctl on this test's own broker and returns its output.
func (s *RabbitMQServer) Control(tb testing.TB, args ...string) string {
	tb.Helper()
	s.mustOwn("reconfigure")
	output, err := s.machine.(interface {
		administer(args []string) (string, error)
	}).administer(args)
	if err != nil {
		tb.Fatalf("testservers: rabbitmqctl %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	return output
}

// askRabbit returns nil when the broker at the address is ready and belongs to cluster. If cluster is empty, any broker
// is right. It reads connection.start, the first frame of the protocol, which has the cluster name among its
// properties.
func askRabbit(address, cluster string) error {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "AMQP\x00\x00\x09\x01"); err != nil {
		return err
	}
	head := make([]byte, 7)
	in := bufio.NewReader(conn)
	if _, err := io.ReadFull(in, head); err != nil {
		return err
	}
	if head[0] != 1 || head[1] != 0 || head[2] != 0 {
		return fmt.Errorf("%s answers no connection.start", address)
	}
	frame := make([]byte, int(head[5])<<8|int(head[6])) // A first frame is short.
	if _, err := io.ReadFull(in, frame); err != nil {
		return err
	}
	if cluster != "" && !bytes.Contains(frame, slices.Concat([]byte("cluster_nameS\x00\x00\x00"), []byte{byte(len(cluster))}, []byte(cluster))) {
		return fmt.Errorf("%s is served by another broker: %w", address, errPortTaken)
	}
	return nil
}
