package testservers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const pingLimit = 2 * time.Second

// An installed client alone is not enough.
func pingDocker() error {
	if host := os.Getenv("DOCKER_HOST"); host != "" {
		return pingDockerHost(host)
	}
	sockets := []string{"/var/run/docker.sock"}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		sockets = append(sockets, filepath.Join(dir, "docker.sock"))
	}
	if home, err := os.UserHomeDir(); err == nil {
		sockets = append(sockets, filepath.Join(home, ".docker/run/docker.sock"))
	}
	var timeoutErr error
	for _, socket := range sockets {
		err := pingDockerAt("unix", socket)
		if err == nil {
			return nil
		}
		if timeoutErr == nil || !errors.Is(err, os.ErrNotExist) {
			timeoutErr = err
		}
	}
	return timeoutErr
}

func pingDockerHost(host string) error {
	address, err := url.Parse(host)
	if err != nil {
		return fmt.Errorf("DOCKER_HOST: %w", err)
	}
	switch isPlain := os.Getenv("DOCKER_TLS_VERIFY") == ""; {
	case address.Scheme == "unix":
		return pingDockerAt("unix", address.Path)
	case (address.Scheme == "tcp" || address.Scheme == "http") && isPlain:
		return pingDockerAt("tcp", address.Host)
	}
	return pingDockerByClient(host)
}

func pingDockerAt(network, address string) error {
	client := http.Client{Timeout: pingLimit, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}}
	response, err := client.Get("http://docker/_ping")
	if err != nil {
		return fmt.Errorf("no Docker engine: %w", errors.Unwrap(err))
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("no Docker engine: %s answers %s", address, response.Status)
	}
	return nil
}

// pingDockerByClient uses the docker command, which handles certificates and ssh.
func pingDockerByClient(host string) error {
	ctx, cancel := context.WithTimeout(context.Background(), pingLimit)
	defer cancel()
	if err := exec.CommandContext(ctx, "docker", "version", "--format", "{{.Server.Version}}").Run(); err != nil {
		return fmt.Errorf("no Docker engine at %s: docker version: %w", host, err)
	}
	return nil
}
