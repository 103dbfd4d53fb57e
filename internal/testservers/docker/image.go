package main

import (
	"context"
	"fmt"
	"net"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/mysql"
	"github.com/testcontainers/testcontainers-go/modules/redis"
	"github.com/testcontainers/testcontainers-go/wait"
)

type (
	running    = testcontainers.Container
	customizer = testcontainers.ContainerCustomizer
)

// officialPassword is the root password in images that set one.
const officialPassword = "compensator"

// waitLater makes testcontainers return a container as soon as it is started. awaitReady waits for the server.
var waitLater = testcontainers.WithWaitStrategy(wait.ForNop(func(context.Context, wait.StrategyTarget) error { return nil }))

func runMySQL(ctx context.Context, s *server, options ...customizer) (running, error) {
	password := s.password
	if password == "" {
		password = officialPassword
	}
	options = append([]customizer{
		mysql.WithUsername("root"), mysql.WithPassword(password), mysql.WithDatabase(""),
		exposeOnly("3306/tcp"), s.publish("3306/tcp"), waitLater,
	}, options...)
	created, err := mysql.Run(ctx, s.image, options...)
	if created == nil {
		return nil, err
	}
	return created.Container, err
}

// exposeOnly removes the module's other ports, which Docker would publish on all interfaces.
func exposeOnly(port string) testcontainers.CustomizeRequestOption {
	return func(request *testcontainers.GenericContainerRequest) error {
		request.ExposedPorts = []string{port}
		return nil
	}
}

func runRedis(ctx context.Context, s *server, options ...customizer) (running, error) {
	return startRedis(ctx, s, append(options, s.publish("6379/tcp"))...)
}

// The flags choose the port. The server announces the address at which the tests reach the Docker host.
func runRedisOnHost(ctx context.Context, s *server, options ...customizer) (running, error) {
	host, _, err := net.SplitHostPort(s.addr)
	if err != nil {
		return nil, err
	}
	onHost := testcontainers.WithHostConfigModifier(func(config *container.HostConfig) { config.NetworkMode = "host" })
	return startRedis(ctx, s, append(options, onHost, moreFlags("--bind", host, "--cluster-announce-ip", host))...)
}

func moreFlags(flags ...string) testcontainers.CustomizeRequestOption {
	return func(request *testcontainers.GenericContainerRequest) error {
		request.Cmd = withFlags(request.Cmd, flags)
		return nil
	}
}

func startRedis(ctx context.Context, s *server, options ...customizer) (running, error) {
	created, err := redis.Run(ctx, s.image, append(options, waitLater)...)
	if created == nil {
		return nil, err
	}
	return created.Container, err
}

func runRabbit(ctx context.Context, s *server, options ...customizer) (running, error) {
	file := testcontainers.ContainerFile{
		Reader:            strings.NewReader(strings.Join(s.settings, "\n") + "\n"),
		ContainerFilePath: "/etc/rabbitmq/conf.d/90-test.conf", FileMode: 0o644,
	}
	created, err := testcontainers.Run(ctx, s.image, append(options, testcontainers.WithFiles(file), exposeOnly("5672/tcp"), s.publish("5672/tcp"), waitLater)...)
	if created == nil {
		return nil, err
	}
	return created, err
}

// command pulls the image if it is not present.
func (s *server) command(ctx context.Context) ([]string, error) {
	image, err := s.provider.Client().ImageInspect(ctx, s.image)
	if err != nil {
		if err := s.provider.PullImage(ctx, s.image); err != nil {
			return nil, fmt.Errorf("image %s is not here: %w", s.image, err)
		}
		image, err = s.provider.Client().ImageInspect(ctx, s.image)
	}
	if err != nil {
		return nil, fmt.Errorf("inspect image %s: %w", s.image, err)
	}
	if image.Config == nil {
		return s.flags, nil
	}
	return withFlags(image.Config.Cmd, s.flags), nil
}

// If the command is a shell script, withFlags appends to the end of the script, where the script starts the server.
func withFlags(command, flags []string) []string {
	if len(command) == 3 && strings.HasSuffix(command[0], "sh") && command[1] == "-c" {
		script := command[2]
		for _, flag := range flags {
			script += " '" + strings.ReplaceAll(flag, "'", `'\''`) + "'"
		}
		return []string{command[0], command[1], script}
	}
	return append(append([]string{}, command...), flags...)
}
