package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// postgres is a PostgreSQL server of the benchmark's own, as durable as the arena's MariaDB.
type postgres struct {
	a     *arena
	dir   string
	dsn   string
	admin *pgxpool.Pool
}

// postgresSettings are those that differ from the defaults, and the two that durability hangs on. As MariaDB here:
// memory for everything, and no log for replicas. No checkpoint falls into a run.
var postgresSettings = []string{
	"fsync=on", "synchronous_commit=on", "shared_buffers=2GB", "max_wal_size=4GB", "checkpoint_timeout=30min",
	"wal_level=minimal", "max_wal_senders=0", "max_connections=200", "unix_socket_directories=",
}

// startPostgres returns nil, and says why in the log, when the programs are not on this machine.
func startPostgres(a *arena) *postgres {
	a.Helper()
	programs, err := postgresPrograms()
	if err != nil {
		a.Logf("no PostgreSQL: %v", err)
		return nil
	}
	owner, err := postgresOwner()
	if err != nil {
		a.Logf("no PostgreSQL: %v", err)
		return nil
	}
	p := &postgres{a: a, dir: ownDir(a, owner)}
	p.command(owner, filepath.Join(programs, "initdb"), "--pgdata="+p.data(), "--username=bench", "--auth=trust",
		"--encoding=UTF8", "--no-locale", "--no-sync")
	p.serve(owner, filepath.Join(programs, "postgres"))
	p.admin = p.pool(2)
	return p
}

// postgresPrograms returns the directory of the newest server here. Debian keeps it out of PATH.
func postgresPrograms() (string, error) {
	if path, err := exec.LookPath("postgres"); err == nil {
		return filepath.Dir(path), nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		return "", errors.New("the program postgres is not here")
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(strings.Split(path, "/")[4])
		return n
	}
	return filepath.Dir(slices.MaxFunc(found, func(x, y string) int { return version(x) - version(y) })), nil
}

// postgresOwner is whom the server runs as: it refuses to be root's. nil: this process's user.
func postgresOwner() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, _ := strconv.ParseUint(found.Uid, 10, 32)
		gid, _ := strconv.ParseUint(found.Gid, 10, 32)
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("neither postgres nor nobody is a user here, and root may not run it")
}

const dirPrefix = "compensator-bench-postgres-"

// sweepDirs removes what benchmarks that were killed have left: gigabytes. A minute is long enough for a server
// to say that it uses its directory.
func sweepDirs() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), dirPrefix+"*"))
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err == nil && time.Since(info.ModTime()) > time.Minute && !served(dir) {
			_ = os.RemoveAll(dir)
		}
	}
}

// served reports whether the process that the server's lock file names is there.
func served(dir string) bool {
	lock, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if err != nil {
		return false
	}
	first, _, _ := strings.Cut(string(lock), "\n")
	pid, err := strconv.Atoi(first)
	return err == nil && !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// ownDir is no TempDir of the test's, because nobody but this process's user could enter that.
func ownDir(a *arena, owner *syscall.Credential) string {
	a.Helper()
	sweepDirs()
	dir, err := os.MkdirTemp("", dirPrefix)
	a.must(err)
	a.Cleanup(func() { _ = os.RemoveAll(dir) })
	if owner != nil {
		a.must(os.Chown(dir, int(owner.Uid), int(owner.Gid)))
	}
	return dir
}

func (p *postgres) data() string    { return filepath.Join(p.dir, "data") }
func (p *postgres) logPath() string { return filepath.Join(p.dir, "log") }

func (p *postgres) command(owner *syscall.Credential, path string, args ...string) {
	p.a.Helper()
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.SysProcAttr = p.dir, childOf(owner)
	if output, err := cmd.CombinedOutput(); err != nil {
		p.a.Fatalf("%s: %v:\n%s", path, err, output)
	}
}

// serve starts the server and returns when it answers. It ends with the test.
func (p *postgres) serve(owner *syscall.Credential, path string) {
	p.a.Helper()
	port := freePort(p.a)
	args := []string{"-D", p.data(), "-h", "127.0.0.1", "-p", strconv.Itoa(port)}
	for _, setting := range postgresSettings {
		args = append(args, "-c", setting)
	}
	log, err := os.Create(p.logPath())
	p.a.must(err)
	defer log.Close()
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = p.dir, log, log, childOf(owner)
	p.a.must(cmd.Start())
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	p.a.Cleanup(func() { endPostgres(cmd.Process, ended) })
	p.dsn = fmt.Sprintf("postgres://bench@127.0.0.1:%d/postgres?sslmode=disable", port)
	p.await(ended)
}

// endPostgres asks for a fast shutdown, which waits for no client, and kills when that takes too long.
func endPostgres(process *os.Process, ended <-chan struct{}) {
	_ = process.Signal(syscall.SIGINT)
	select {
	case <-ended:
	case <-time.After(15 * time.Second):
		_ = process.Signal(syscall.SIGQUIT) // the postmaster takes its children along, which SIGKILL would leave
		<-ended
	}
}

func (p *postgres) await(ended <-chan struct{}) {
	p.a.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		select {
		case <-ended:
			p.a.Fatalf("PostgreSQL ended at its start:\n%s", p.log())
		default:
		}
		conn, err := pgx.Connect(p.a.Context(), p.dsn)
		if err == nil {
			_ = conn.Close(context.Background())
			return
		}
	}
	p.a.Fatalf("PostgreSQL does not answer after a minute:\n%s", p.log())
}

func (p *postgres) log() string {
	text, _ := os.ReadFile(p.logPath())
	return string(text)
}

// pool opens n connections, of which none is to be made within a measurement.
func (p *postgres) pool(n int32) *pgxpool.Pool {
	p.a.Helper()
	cfg, err := pgxpool.ParseConfig(p.dsn)
	p.a.must(err)
	cfg.MaxConns, cfg.MinConns = n, n
	pool, err := pgxpool.NewWithConfig(p.a.Context(), cfg)
	p.a.must(err)
	p.a.Cleanup(pool.Close)
	p.a.until(func() bool { return pool.Stat().IdleConns() == n })
	return pool
}

func (p *postgres) exec(query string) {
	p.a.Helper()
	_, err := p.admin.Exec(p.a.Context(), query)
	p.a.must(err)
}

// freePort returns a port that nobody listens on now.
func freePort(a *arena) int {
	a.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	a.must(err)
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}
