package testservers

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

type sqlProgram struct {
	path    string
	version string // output of --version
}

// startLocalSQL runs an installed server on a copy of the template.
func startLocalSQL(flags []string) (machine, string, error) {
	serverProgram, err := findSQL()
	if err != nil {
		return nil, "", err
	}
	template, err := serverProgram.template()
	if err != nil {
		return nil, "", err
	}
	dir, err := serverDir()
	if err != nil {
		return nil, "", err
	}
	data := filepath.Join(dir, "data")
	if output, err := exec.Command("cp", "-a", template, data).CombinedOutput(); err != nil {
		return nil, "", fmt.Errorf("copy %s: %w: %s", template, err, output)
	}
	// The file auto.cnf has MySQL's server UUID. Without this file the server makes a new UUID, so no two servers share
	// one.
	if err := os.Remove(filepath.Join(data, "auto.cnf")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, "", err
	}
	server := &program{
		path:  serverProgram.path,
		dir:   dir,
		args:  func(port int) ([]string, error) { return append(serverProgram.flags(data, port), flags...), nil },
		probe: func(address string, _ int) error { return probeSQL(address, data) },
	}
	if err := server.launch(); err != nil {
		return nil, "", err
	}
	return server, serverProgram.version, nil
}

func findSQL() (sqlProgram, error) {
	path := os.Getenv("COMPENSATOR_MYSQLD")
	var err error
	if path == "" {
		path, err = findProgram("mariadbd", "mysqld")
	} else {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return sqlProgram{}, err
	}
	version, err := versionOf(path, "--no-defaults", "--version")
	return sqlProgram{path, version}, err
}

func (p sqlProgram) mariadb() bool { return strings.Contains(p.version, "MariaDB") }

// rootFlags returns the flag that the servers need to run as root.
func rootFlags() []string {
	if os.Geteuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}

// usualSQLFlags work on every MariaDB and MySQL. They keep a server as durable as in production: committed data
// survives Kill.
var usualSQLFlags = []string{
	"--max-connections=500",
	"--innodb-flush-log-at-trx-commit=1",
	"--innodb-print-all-deadlocks=1",
	"--performance-schema=OFF",
	"--skip-log-bin",
}

func (p sqlProgram) flags(data string, port int) []string {
	flags := append([]string{"--no-defaults"}, rootFlags()...)
	flags = append(flags,
		"--datadir="+data,
		"--bind-address=127.0.0.1",
		"--port="+strconv.Itoa(port),
		"--socket=server.sock", // Relative to the data directory, because a socket's path must be short.
		"--pid-file="+filepath.Join(data, "server.pid"),
		"--innodb-buffer-pool-size=32M",
		"--innodb-buffer-pool-dump-at-shutdown=OFF",
		"--innodb-buffer-pool-load-at-startup=OFF",
	)
	flags = append(flags, usualSQLFlags...)
	if p.mariadb() {
		return append(flags, "--skip-name-resolve", "--innodb-log-file-size=8M", "--key-buffer-size=1M",
			"--aria-pagecache-buffer-size=1M")
	}
	return append(flags, "--mysqlx=OFF", "--secure-file-priv=NULL", "--innodb-redo-log-capacity=8M")
}

// The template is made once per user, under a lock between test processes. A server runs on a copy of it.
func (p sqlProgram) template() (string, error) {
	home, err := homeDir()
	if err != nil {
		return "", err
	}
	lock, err := lockFile(filepath.Join(home, "template.lock"), true)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	target := filepath.Join(home, "template-"+p.fingerprint())
	if _, err := os.Stat(target); !errors.Is(err, os.ErrNotExist) {
		return target, err
	}
	partial := target + ".part" // Only a process that was killed leaves this directory behind.
	if err := os.RemoveAll(partial); err != nil {
		return "", err
	}
	if err := p.initialize(partial, lock); err != nil {
		return "", err
	}
	return target, os.Rename(partial, target)
}

func (p sqlProgram) fingerprint() string {
	sum := sha256.Sum256([]byte(p.path + "\n" + p.version + "\n" + strings.Join(p.initFlags(""), " ")))
	return fmt.Sprintf("%x", sum[:6])
}

func (p sqlProgram) initFlags(data string) []string {
	flags := append([]string{"--no-defaults", "--datadir=" + data}, rootFlags()...)
	if p.mariadb() {
		return append(flags, "--auth-root-authentication-method=normal", "--skip-test-db",
			"--innodb-log-file-size=8M", "--innodb-buffer-pool-size=16M")
	}
	return append(flags, "--initialize-insecure", "--innodb-redo-log-capacity=8M", "--innodb-doublewrite=OFF",
		"--innodb-flush-log-at-trx-commit=0", "--skip-log-bin", "--performance-schema=OFF")
}

// If this process is killed, the started program continues. It inherits the file lock, so no other process works in the
// directory until it ends.
func (p sqlProgram) initialize(data string, lock *os.File) error {
	path := p.path
	if p.mariadb() {
		var err error
		if path, err = findProgram("mariadb-install-db", "mysql_install_db"); err != nil {
			return err
		}
	}
	cmd := exec.Command(path, p.initFlags(data)...)
	cmd.ExtraFiles = []*os.File{lock}
	// The program clears its temporary directory when it starts, as a server does. So it must not share a temporary
	// directory with a server.
	cmd.Env = append(cmd.Environ(), "TMPDIR="+filepath.Dir(data))
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w:\n%s", path, err, lastLines(string(output), 20))
	}
	return nil
}

// Another server may have taken the port.
func probeSQL(address, data string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return withRoot(rootConfig(address), func(db *sql.DB) error {
		var dataDir string
		if err := db.QueryRowContext(ctx, "SELECT @@datadir").Scan(&dataDir); err != nil {
			return err
		}
		if filepath.Clean(dataDir) != data {
			return fmt.Errorf("%s is served from %s: %w", address, dataDir, errPortTaken)
		}
		return nil
	})
}
