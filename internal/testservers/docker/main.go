// Command docker runs one server in a container for package testservers, through testcontainers-go.
//
//	docker mysql|redis|redis-on-host port [server flags…]
//	docker rabbitmq port [lines of rabbitmq.conf…]
//
// The server keeps that port of the Docker host across restarts. The first line of standard output holds its address.
// Each line of standard input is a command: kill, stop, restart, pause, resume, log, or rabbitmqctl with a JSON list of
// its arguments. One line answers each command. All output lines are JSON. When the input ends or SIGTERM comes, the
// command removes the container and exits.
//
// COMPENSATOR_MYSQL_IMAGE, COMPENSATOR_REDIS_IMAGE and COMPENSATOR_RABBITMQ_IMAGE replace the official images. For
// MySQL and Redis, an image works if its own command, with flags appended, starts a server that root can reach from
// outside. The root password is MYSQL_ROOT_PASSWORD or empty.
//
// The reaper of testcontainers is off unless TESTCONTAINERS_RYUK_DISABLED=false, because its image would have to be
// pulled.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
)

type answer struct {
	Addr     string `json:"addr,omitempty"`
	Password string `json:"password,omitempty"`
	Image    string `json:"image,omitempty"`
	Log      string `json:"log,omitempty"`
	Error    string `json:"error,omitempty"`
}

func main() {
	// Ignore an interrupt at the terminal. The tests receive the same interrupt, and close this command's input when they have
	// ended.
	signal.Ignore(os.Interrupt, syscall.SIGHUP)
	if os.Getenv("TESTCONTAINERS_RYUK_DISABLED") == "" {
		_ = os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true") // This fails only for an invalid name.
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		tell(answer{Error: err.Error()})
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	commands := readCommands(ctx, cancel)
	server, err := newServer(args)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.remove()) }()
	if err := server.start(ctx); err != nil {
		return err
	}
	tell(answer{Addr: server.addr, Password: server.password, Image: server.image})
	for {
		select {
		case verb := <-commands:
			tell(server.obey(ctx, verb))
		case <-ctx.Done():
			return nil
		}
	}
}

// When the input ends, readCommands cancels the running command.
func readCommands(ctx context.Context, cancel context.CancelFunc) <-chan string {
	commands := make(chan string)
	go func() {
		defer cancel()
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			select {
			case commands <- lines.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	return commands
}

func newServer(args []string) (*server, error) {
	if len(args) < 2 {
		return nil, errors.New("usage: docker mysql|redis|redis-on-host|rabbitmq port [server flags…]")
	}
	port, err := strconv.ParseUint(args[1], 10, 16)
	if err != nil {
		return nil, fmt.Errorf("port %q: %w", args[1], err)
	}
	s := &server{port: int(port), flags: args[2:]}
	switch args[0] {
	case "mysql":
		s.image, s.run, s.ask = imageOr("COMPENSATOR_MYSQL_IMAGE", "mysql:8.4"), runMySQL, s.askSQL
		s.password = os.Getenv("MYSQL_ROOT_PASSWORD")
	case "redis":
		s.image, s.run, s.ask = imageOr("COMPENSATOR_REDIS_IMAGE", "redis:7"), runRedis, s.askRedis
	case "redis-on-host":
		s.image, s.run, s.ask = imageOr("COMPENSATOR_REDIS_IMAGE", "redis:7"), runRedisOnHost, s.askRedis
	case "rabbitmq":
		s.image, s.run, s.ask = imageOr("COMPENSATOR_RABBITMQ_IMAGE", "rabbitmq:4"), runRabbit, s.askRabbit
		s.settings, s.flags = s.flags, nil
	default:
		return nil, fmt.Errorf("%q is none of mysql, redis, redis-on-host, rabbitmq", args[0])
	}
	return s, nil
}

func imageOr(variable, official string) string {
	if image := os.Getenv(variable); image != "" {
		return image
	}
	return official
}

func tell(a answer) {
	if err := json.NewEncoder(os.Stdout).Encode(a); err != nil {
		os.Exit(1) // The parent has closed the output.
	}
}
