package testservers

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
)

// way is one way to get a server. The package comment lists them.
type way string

const (
	byDSN     way = "dsn"
	byDocker  way = "docker"
	byLocal   way = "local"
	byInstall way = "install"
)

var ways = []way{byDSN, byDocker, byLocal, byInstall}

// allowed returns the ways that COMPENSATOR_SERVERS allows, in their order.
func allowed() ([]way, error) {
	only := way(os.Getenv("COMPENSATOR_SERVERS"))
	switch {
	case only == "":
		return ways, nil
	case slices.Contains(ways, only):
		return []way{only}, nil
	}
	return nil, fmt.Errorf("COMPENSATOR_SERVERS=%s is none of dsn, docker, local, install", only)
}

// source starts servers of one kind. It tries the ways in their order until one works. The whole process then keeps to
// this way. If it fails later, source reports the error and tries no other way.
type source struct {
	kind   string // name in messages, for example "SQL"
	given  string // environment variable that names a running server
	docker func(flags []string) (started machine, description string, err error)
	// local starts an installed server. If it returns errNotInstalled, source tries the way install.
	local    func(flags []string) (started machine, description string, err error)
	packages []string // packages that apt-get installs for local

	mu     sync.Mutex // guards chosen; held while the first server starts
	chosen way
}

// start starts a new server with flags added to the usual ones.
func (s *source) start(flags []string) (machine, error) {
	s.mu.Lock()
	if s.chosen != "" {
		s.mu.Unlock()
		started, _, err := s.startBy(s.chosen, flags)
		return started, err
	}
	defer s.mu.Unlock()
	open, err := allowed()
	if err != nil {
		return nil, err
	}
	failures := make(map[way]error)
	for _, w := range open {
		started, description, err := s.startBy(w, flags)
		if err == nil {
			s.chosen = w
			s.report(w, description)
			return started, nil
		}
		failures[w] = err
	}
	return nil, s.noServer(failures)
}

func (s *source) startBy(w way, flags []string) (machine, string, error) {
	switch w {
	case byDocker:
		return s.docker(flags)
	case byLocal:
		return s.local(flags)
	case byInstall:
		started, description, err := s.local(flags)
		if !errors.Is(err, errNotInstalled) {
			return started, description, err
		}
		if err := aptInstall(s.packages...); err != nil {
			return nil, "", err
		}
		return s.local(flags)
	}
	if os.Getenv(s.given) == "" {
		return nil, "", fmt.Errorf("%s is not set", s.given)
	}
	return nil, "", fmt.Errorf("%s names a shared server; this test needs one that it may kill", s.given)
}

// report prints the kind of server that the tests use, once per process and kind.
func (s *source) report(w way, description string) {
	fmt.Fprintf(os.Stderr, "testservers: %s by way of %s: %s\n", s.kind, w, description)
}

func (s *source) noServer(failures map[way]error) error {
	describe := map[way]string{
		byDSN:     "dsn, a running server named by " + s.given,
		byDocker:  "docker, a container through testcontainers-go",
		byLocal:   "local, a program on this machine",
		byInstall: "install, apt-get install " + strings.Join(s.packages, " ") + " as root on Debian",
	}
	text := fmt.Sprintf("no %s server to test against; of the four ways to get one none works:", s.kind)
	for i, w := range ways {
		reason := "not allowed by COMPENSATOR_SERVERS=" + os.Getenv("COMPENSATOR_SERVERS")
		if err, tried := failures[w]; tried {
			reason = err.Error()
		}
		text += fmt.Sprintf("\n  %d. %s: %s", i+1, describe[w], reason)
	}
	return errors.New(text)
}
