package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/exec"
)

const (
	startLimit = 5 * time.Minute // The official MySQL image initializes its data first.
	endLimit   = 30 * time.Second
	askLimit   = 2 * time.Second
	askEvery   = 20 * time.Millisecond
)

type server struct {
	image    string
	port     int // port on the Docker host
	flags    []string
	settings []string // lines of a configuration file (RabbitMQ only)
	run      func(ctx context.Context, s *server, options ...customizer) (running, error)
	ask      func(ctx context.Context) error // returns nil when the server is ready

	provider  *testcontainers.DockerProvider
	container running // nil if not created
	paused    bool
	addr      string
	password  string // root's password, set by the first successful ask
}

func (s *server) start(ctx context.Context) error {
	var err error
	if s.provider, err = testcontainers.NewDockerProvider(); err != nil {
		return fmt.Errorf("reach the Docker engine: %w", err)
	}
	command, err := s.command(ctx)
	if err != nil {
		return err
	}
	host, err := s.host(ctx)
	if err != nil {
		return fmt.Errorf("find the Docker host: %w", err)
	}
	s.addr = net.JoinHostPort(host, strconv.Itoa(s.port))
	s.container, err = s.run(ctx, s, testcontainers.WithCmd(command...))
	if err != nil {
		return fmt.Errorf("run %s: %w", s.image, err)
	}
	return s.awaitReady(ctx)
}

// host resolves names, because a node of a cluster accepts only an address. If the tests run in a container, the
// address is not a loopback address.
func (s *server) host(ctx context.Context) (string, error) {
	name, err := s.provider.DaemonHost(ctx)
	if err != nil {
		return "", err
	}
	if name == "localhost" {
		return "127.0.0.1", nil // Docker may not listen on ::1.
	}
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	if err != nil {
		return "", err
	}
	return addresses[0].Unmap().String(), nil
}

// A port chosen by Docker would change with every restart. If the tests reach the server on a loopback address, publish
// maps only this address, because the server may have no password.
func (s *server) publish(inner string) testcontainers.CustomizeRequestOption {
	return testcontainers.WithHostConfigModifier(func(config *container.HostConfig) {
		binding := network.PortBinding{HostPort: strconv.Itoa(s.port)}
		if host, err := netip.ParseAddrPort(s.addr); err == nil && host.Addr().IsLoopback() {
			binding.HostIP = host.Addr()
		}
		config.PortBindings = network.PortMap{network.MustParsePort(inner): {binding}}
	})
}

// awaitReady waits for no log line, because every image logs differently.
func (s *server) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	ticker := time.NewTicker(askEvery)
	defer ticker.Stop()
	for {
		err := s.ask(ctx)
		if err == nil {
			return nil
		}
		if state, stateErr := s.container.State(ctx); stateErr == nil && !state.Running {
			return fmt.Errorf("%s ended with %d at its start; its log ends:\n%s", s.image, state.ExitCode, s.logEnd())
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer at %s (%w); its log ends:\n%s", s.image, s.addr, err, s.logEnd())
		case <-ticker.C:
		}
	}
}

// obey accepts a command that has already taken effect.
func (s *server) obey(ctx context.Context, verb string) answer {
	actions := map[string]func(context.Context) error{
		"kill": s.kill, "stop": s.stop, "restart": s.restart, "pause": s.pause, "resume": s.resume,
	}
	if verb == "log" {
		log, err := s.log(ctx)
		return answer{Log: log, Error: text(err)}
	}
	if args, isControl := strings.CutPrefix(verb, "rabbitmqctl "); isControl {
		output, err := s.administer(ctx, args)
		return answer{Log: output, Error: text(err)}
	}
	action, known := actions[verb]
	if !known {
		return answer{Error: fmt.Sprintf("%q is none of kill, stop, restart, pause, resume, log, rabbitmqctl", verb)}
	}
	return answer{Error: text(action(ctx))}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (s *server) kill(ctx context.Context) error {
	state, err := s.container.State(ctx)
	if err != nil || !state.Running {
		return err
	}
	if err := s.resume(ctx); err != nil { // Some engines cannot kill a frozen container.
		return err
	}
	_, err = s.provider.Client().ContainerKill(ctx, s.container.GetContainerID(), client.ContainerKillOptions{Signal: "KILL"})
	if err != nil {
		return err
	}
	return s.awaitEnded(ctx)
}

func (s *server) awaitEnded(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, endLimit)
	defer cancel()
	ticker := time.NewTicker(askEvery)
	defer ticker.Stop()
	for {
		if state, err := s.container.State(ctx); err != nil || !state.Running {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.New("the container survives SIGKILL")
		case <-ticker.C:
		}
	}
}

func (s *server) stop(ctx context.Context) error {
	if err := s.resume(ctx); err != nil {
		return err
	}
	limit := endLimit
	return s.container.Stop(ctx, &limit)
}

func (s *server) restart(ctx context.Context) error {
	if err := s.stop(ctx); err != nil {
		return err
	}
	_, err := s.provider.Client().ContainerStart(ctx, s.container.GetContainerID(), client.ContainerStartOptions{})
	if err != nil {
		return err
	}
	return s.awaitReady(ctx)
}

func (s *server) pause(ctx context.Context) error {
	_, err := s.provider.Client().ContainerPause(ctx, s.container.GetContainerID(), client.ContainerPauseOptions{})
	s.paused = s.paused || err == nil
	return err
}

func (s *server) resume(ctx context.Context) error {
	if !s.paused {
		return nil
	}
	_, err := s.provider.Client().ContainerUnpause(ctx, s.container.GetContainerID(), client.ContainerUnpauseOptions{})
	s.paused = err != nil
	return err
}

func (s *server) log(ctx context.Context) (string, error) {
	reader, err := s.container.Logs(ctx)
	if err != nil {
		return "", err
	}
	defer reader.Close()
	log, err := io.ReadAll(bufio.NewReader(reader))
	return string(log), err
}

func (s *server) administer(ctx context.Context, encoded string) (string, error) {
	var args []string
	if err := json.Unmarshal([]byte(encoded), &args); err != nil {
		return "", err
	}
	code, reader, err := s.container.Exec(ctx, append([]string{"rabbitmqctl"}, args...), exec.Multiplexed())
	if err != nil {
		return "", err
	}
	output, err := io.ReadAll(reader)
	if err == nil && code != 0 {
		err = fmt.Errorf("rabbitmqctl ends with %d: %s", code, output)
	}
	return string(output), err
}

func (s *server) logEnd() string {
	ctx, cancel := context.WithTimeout(context.Background(), endLimit)
	defer cancel()
	log, err := s.log(ctx)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(log), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

// remove may be called at any time, also after a start that failed half-way.
func (s *server) remove() error {
	if s.container == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), endLimit)
	defer cancel()
	if err := s.resume(ctx); err != nil {
		return err
	}
	return s.container.Terminate(ctx, testcontainers.StopTimeout(0))
}
