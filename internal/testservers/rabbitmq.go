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
	variable: "AMQP_URL",
	docker:   startRabbitContainer,
	local:    startLocalRabbit,
	packages: []string{"rabbitmq-server"},
}

// SharedRabbitMQ returns the broker that all tests of this process share, and starts it on first use. Kill and similar
// methods panic on it.
func SharedRabbitMQ(tb testing.TB) *RabbitMQServer {
	tb.Helper()
	sharedServers.mu.Lock()
	defer sharedServers.mu.Unlock()
	if sharedServers.rabbit == nil {
		server, err := sharedRabbit()
		if err != nil {
			tb.Fatalf("testservers: %v", err)
		}
		sharedServers.rabbit = server
	}
	return sharedServers.rabbit
}

func sharedRabbit() (*RabbitMQServer, error) {
	usableWays, err := allowedWays()
	if err != nil {
		return nil, err
	}
	if address := os.Getenv("AMQP_URL"); address != "" && usableWays[0] == wayDSN {
		return givenRabbit(address)
	}
	newServer, err := rabbitServers.start(nil)
	if err != nil {
		return nil, err
	}
	return ownRabbit(newServer, nil), nil
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
	if err := probeRabbit(host, ""); err != nil {
		return nil, fmt.Errorf("AMQP_URL: %w", err)
	}
	rabbitServers.report(wayDSN, host)
	return &RabbitMQServer{control: control{machine: givenServer{host}}, url: address}, nil
}

// NewRabbitMQ starts a broker for this test alone. It ends the broker and deletes its data at the end of the test.
// Restart brings it back with the messages that it has confirmed. settings are lines of rabbitmq.conf, for example
// "max_message_size = 1000".
func NewRabbitMQ(tb testing.TB, settings ...string) *RabbitMQServer {
	tb.Helper()
	newServer, err := rabbitServers.start(settings)
	if err != nil {
		tb.Fatalf("testservers: %v", err)
	}
	server := ownRabbit(newServer, tb)
	server.discardAtEnd()
	return server
}

func ownRabbit(newServer machine, owner testing.TB) *RabbitMQServer {
	return &RabbitMQServer{control: control{machine: newServer, owner: owner}, url: "amqp://guest:guest@" + newServer.addr() + "/"}
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
	s.requireOwn("reconfigure")
	output, err := s.machine.(interface {
		runControl(args []string) (string, error)
	}).runControl(args)
	if err != nil {
		tb.Fatalf("testservers: rabbitmqctl %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	return output
}

// probeRabbit accepts any name if cluster is empty. It reads connection.start, the first frame of the protocol, which
// has the cluster name among its properties.
func probeRabbit(address, cluster string) error {
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
	header := make([]byte, 7)
	reader := bufio.NewReader(conn)
	if _, err := io.ReadFull(reader, header); err != nil {
		return err
	}
	if header[0] != 1 || header[1] != 0 || header[2] != 0 {
		return fmt.Errorf("%s answers no connection.start", address)
	}
	frame := make([]byte, int(header[5])<<8|int(header[6])) // A first frame is short.
	if _, err := io.ReadFull(reader, frame); err != nil {
		return err
	}
	if cluster != "" && !bytes.Contains(frame, slices.Concat([]byte("cluster_nameS\x00\x00\x00"), []byte{byte(len(cluster))}, []byte(cluster))) {
		return fmt.Errorf("%s is served by another broker: %w", address, errPortTaken)
	}
	return nil
}
