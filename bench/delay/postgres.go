package delay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

// startPostgres runs a server of the benchmark's own, with its defaults: fsync and synchronous_commit are on.
func startPostgres(tb testing.TB) (place, error) {
	server, err := findProgram("postgres", "/usr/lib/postgresql/*/bin/postgres")
	if err != nil {
		return place{}, err
	}
	ports, err := freePorts(1)
	if err != nil {
		return place{}, err
	}
	dir, attributes, err := postgresHome(tb)
	if err != nil {
		return place{}, err
	}
	data := filepath.Join(dir, "data")
	initdb := exec.Command(filepath.Join(filepath.Dir(server), "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	initdb.Dir, initdb.SysProcAttr = dir, attributes
	if said, err := initdb.CombinedOutput(); err != nil {
		return place{}, fmt.Errorf("initdb: %w:\n%s", err, said)
	}
	url := fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", ports[0])
	postgres := exec.Command(server, "-D", data, "-p", strconv.Itoa(ports[0]), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=")
	postgres.SysProcAttr = attributes
	var version string
	err = startProgram(tb, postgres, dir, func() error { return askPostgres(tb.Context(), url, &version) })
	return place{Postgres: url, Versions: "PostgreSQL " + version}, err
}

// postgresHome is a directory of the user PostgreSQL is to run as, who must not be root.
func postgresHome(tb testing.TB) (string, *syscall.SysProcAttr, error) {
	dir, err := os.MkdirTemp("", "delay-postgres-") // an ordinary user may not enter tb.TempDir of root's
	if err != nil {
		return "", nil, err
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	attributes := childAttributes()
	if os.Geteuid() != 0 {
		return dir, attributes, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		account, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.Atoi(account.Uid)
		gid, err2 := strconv.Atoi(account.Gid)
		if err := errors.Join(err1, err2); err != nil {
			return "", nil, err
		}
		attributes.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		return dir, attributes, os.Chown(dir, uid, gid)
	}
	return "", nil, fmt.Errorf("%w: no user for postgres to run as", errNotHere)
}

func askPostgres(ctx context.Context, url string, version *string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return conn.QueryRow(ctx, "SHOW server_version").Scan(version)
}
