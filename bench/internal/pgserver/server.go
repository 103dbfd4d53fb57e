// Package pgserver starts a PostgreSQL server that is removed when the test ends.
package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/compensator-go/compensator/bench/internal/child"
)

// ErrNotHere is the error that Start returns on a machine that cannot run PostgreSQL.
var ErrNotHere = errors.New("no PostgreSQL")

// Server is a running PostgreSQL server.
type Server struct {
	URL     string // connects as a superuser
	Version string

	dir        string
	attributes *syscall.SysProcAttr
}

const dirPrefix = "compensator-bench-postgres-"

// Start starts a server and returns when it answers. settings have the form name=value. All other settings keep their
// defaults, so fsync and synchronous_commit are on.
func Start(tb testing.TB, settings ...string) (*Server, error) {
	programs, err := findPrograms()
	if err != nil {
		return nil, err
	}
	owner, err := findOwner()
	if err != nil {
		return nil, err
	}
	dir, err := makeDir(tb, owner)
	if err != nil {
		return nil, err
	}
	// On SIGQUIT the postmaster ends at once with all its children. SIGKILL would leave the children running.
	s := &Server{dir: dir, attributes: child.Attributes(owner, syscall.SIGQUIT)}
	if err := s.initialize(filepath.Join(programs, "initdb")); err != nil {
		return nil, err
	}
	return s, s.serve(tb, filepath.Join(programs, "postgres"), settings)
}

// findPrograms returns the directory that contains the programs of PostgreSQL. In Debian, this directory is not in
// PATH.
func findPrograms() (string, error) {
	if path, err := exec.LookPath("postgres"); err == nil {
		return filepath.Dir(path), nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		return "", ErrNotHere
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(strings.Split(path, "/")[4])
		return n
	}
	return filepath.Dir(slices.MaxFunc(found, func(x, y string) int { return version(x) - version(y) })), nil
}

// findOwner returns the user that must run the server, because PostgreSQL refuses to run as root. nil means this
// process's user.
func findOwner() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(found.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(found.Gid, 10, 32)
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(err1, err2)
	}
	return nil, fmt.Errorf("%w: it does not run as root, and this machine has neither a user postgres nor a user nobody", ErrNotHere)
}

// makeDir creates a directory that owner can enter, unlike TempDir.
func makeDir(tb testing.TB, owner *syscall.Credential) (string, error) {
	sweepDirs()
	dir, err := os.MkdirTemp("", dirPrefix)
	if err != nil {
		return "", err
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	if owner == nil {
		return dir, nil
	}
	return dir, os.Chown(dir, int(owner.Uid), int(owner.Gid))
}

// sweepDirs removes directories that killed benchmarks have left. It skips directories that changed within the last
// minute, because a server that starts may not have written its lock file yet.
func sweepDirs() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), dirPrefix+"*"))
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err == nil && time.Since(info.ModTime()) > time.Minute && !served(dir) {
			_ = os.RemoveAll(dir)
		}
	}
}

// served reports whether the process in the server's lock file is running.
func served(dir string) bool {
	lock, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if err != nil {
		return false
	}
	first, _, _ := strings.Cut(string(lock), "\n")
	pid, err := strconv.Atoi(first)
	return err == nil && !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) initialize(initdb string) error {
	cmd := exec.Command(initdb, "--pgdata="+s.data(), "--username=bench", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync")
	cmd.Dir, cmd.SysProcAttr = s.dir, s.attributes
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w:\n%s", initdb, err, output)
	}
	return nil
}

func (s *Server) serve(tb testing.TB, postgres string, settings []string) error {
	ports, err := child.FreePorts(1)
	if err != nil {
		return err
	}
	args := []string{"-D", s.data(), "-h", "127.0.0.1", "-p", strconv.Itoa(ports[0]), "-c", "unix_socket_directories="}
	for _, setting := range settings {
		args = append(args, "-c", setting)
	}
	s.URL = fmt.Sprintf("postgres://bench@127.0.0.1:%d/postgres?sslmode=disable", ports[0])
	cmd := exec.Command(postgres, args...)
	cmd.Dir, cmd.SysProcAttr = s.dir, s.attributes
	return child.Serve(tb, cmd, func() error { return s.ask(tb.Context()) }, end)
}

// end requests a fast shutdown, which does not wait for clients. After 15 s it requests an immediate shutdown.
func end(process *os.Process, ended <-chan struct{}) {
	_ = process.Signal(syscall.SIGINT)
	select {
	case <-ended:
	case <-time.After(15 * time.Second):
		_ = process.Signal(syscall.SIGQUIT)
		<-ended
	}
}

func (s *Server) ask(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.URL)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return conn.QueryRow(ctx, "SHOW server_version").Scan(&s.Version)
}
