package testservers

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
)

// The package comment lists the ways.
type way string

const (
	wayDSN     way = "dsn"
	wayDocker  way = "docker"
	wayLocal   way = "local"
	wayInstall way = "install"
)

var ways = []way{wayDSN, wayDocker, wayLocal, wayInstall}

func allowedWays() ([]way, error) {
	onlyWay := way(os.Getenv("COMPENSATOR_SERVERS"))
	switch {
	case onlyWay == "":
		return ways, nil
	case slices.Contains(ways, onlyWay):
		return []way{onlyWay}, nil
	}
	return nil, fmt.Errorf("COMPENSATOR_SERVERS=%s is none of dsn, docker, local, install", onlyWay)
}

// source starts servers. It tries the elements of the slice ways in their order until a server starts. The process then
// keeps to this way. If the way fails later, start returns its error.
type source struct {
	kind     string // name in messages, for example "SQL"
	variable string // environment variable that names a running server
	docker   func(flags []string) (newServer machine, description string, err error)
	// local starts a server that is installed on this machine. If the server is not installed, local returns
	// errNotInstalled. For wayInstall, source then installs the packages and calls local again.
	local    func(flags []string) (newServer machine, description string, err error)
	packages []string // packages that apt-get installs for wayInstall

	mu        sync.Mutex // guards chosenWay; held while the first server starts
	chosenWay way
}

func (s *source) start(flags []string) (machine, error) {
	s.mu.Lock()
	if s.chosenWay != "" {
		s.mu.Unlock()
		newServer, _, err := s.startBy(s.chosenWay, flags)
		return newServer, err
	}
	defer s.mu.Unlock()
	usableWays, err := allowedWays()
	if err != nil {
		return nil, err
	}
	failures := make(map[way]error)
	for _, w := range usableWays {
		newServer, description, err := s.startBy(w, flags)
		if err == nil {
			s.chosenWay = w
			s.report(w, description)
			return newServer, nil
		}
		failures[w] = err
	}
	return nil, s.newNoServerError(failures)
}

func (s *source) startBy(w way, flags []string) (machine, string, error) {
	switch w {
	case wayDocker:
		return s.docker(flags)
	case wayLocal:
		return s.local(flags)
	case wayInstall:
		newServer, description, err := s.local(flags)
		if !errors.Is(err, errNotInstalled) {
			return newServer, description, err
		}
		if err := aptInstall(s.packages...); err != nil {
			return nil, "", err
		}
		return s.local(flags)
	}
	if os.Getenv(s.variable) == "" {
		return nil, "", fmt.Errorf("%s is not set", s.variable)
	}
	return nil, "", fmt.Errorf("%s names a shared server; this test needs one that it may kill", s.variable)
}

// report prints the kind of server that the tests use, once per process and kind.
func (s *source) report(w way, description string) {
	fmt.Fprintf(os.Stderr, "testservers: %s by way of %s: %s\n", s.kind, w, description)
}

func (s *source) newNoServerError(failures map[way]error) error {
	describe := map[way]string{
		wayDSN:     "dsn, a running server named by " + s.variable,
		wayDocker:  "docker, a container through testcontainers-go",
		wayLocal:   "local, a program on this machine",
		wayInstall: "install, apt-get install " + strings.Join(s.packages, " ") + " as root on Debian",
	}
	text := fmt.Sprintf("no %s server to test against; of the four ways to get one none works:", s.kind)
	for i, w := range ways {
		reason := "not allowed by COMPENSATOR_SERVERS=" + os.Getenv("COMPENSATOR_SERVERS")
		if err, isTried := failures[w]; isTried {
			reason = err.Error()
		}
		text += fmt.Sprintf("\n  %d. %s: %s", i+1, describe[w], reason)
	}
	return errors.New(text)
}
