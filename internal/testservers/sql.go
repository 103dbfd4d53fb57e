package testservers

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

// probeTimeout is the timeout of one query to a server that should answer at once.
const probeTimeout = 10 * time.Second

// SQLServer is a MariaDB or MySQL server with a user that has all privileges.
type SQLServer struct {
	control
	Flavor  string // "mariadb" or "mysql"
	Version string // result of SELECT VERSION()
	config  *mysql.Config
}

var sqlServers = source{
	kind:     "SQL",
	variable: "MYSQL_DSN",
	docker:   startSQLContainer,
	local:    startLocalSQL,
	packages: []string{"mariadb-server"},
}

// SharedSQL returns the server that all tests of this process share, and starts it on first use. Kill and similar
// methods panic on it.
func SharedSQL(tb testing.TB) *SQLServer {
	tb.Helper()
	sharedServers.mu.Lock()
	defer sharedServers.mu.Unlock()
	if sharedServers.sql == nil {
		server, err := sharedSQL()
		if err != nil {
			tb.Fatalf("testservers: %v", err)
		}
		sharedServers.sql = server
	}
	return sharedServers.sql
}

func sharedSQL() (*SQLServer, error) {
	usableWays, err := allowedWays()
	if err != nil {
		return nil, err
	}
	if dsn := os.Getenv("MYSQL_DSN"); dsn != "" && usableWays[0] == wayDSN {
		return givenSQL(dsn)
	}
	return startSQL(&sqlServers, nil)
}

func givenSQL(dsn string) (*SQLServer, error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, fmt.Errorf("MYSQL_DSN: %w", err)
	}
	server := &SQLServer{control: control{machine: givenServer{config.Addr}}, config: config}
	if err := server.identify(); err != nil {
		return nil, fmt.Errorf("MYSQL_DSN: %w", err)
	}
	sqlServers.report(wayDSN, server.Version+" at "+config.Addr)
	return server, nil
}

// NewSQL starts a server for this test alone. It ends the server and deletes its data at the end of the test. The flags
// are added to the server's command line and override the usual ones, for example "--max-connections=20".
func NewSQL(tb testing.TB, flags ...string) *SQLServer {
	tb.Helper()
	server, err := startSQL(&sqlServers, flags)
	if err != nil {
		tb.Fatalf("testservers: %v", err)
	}
	server.owner = tb
	server.discardAtEnd()
	return server
}

func startSQL(from *source, flags []string) (*SQLServer, error) {
	newServer, err := from.start(flags)
	if err != nil {
		return nil, err
	}
	config := rootConfig(newServer.addr())
	if c, ok := newServer.(*container); ok {
		config.Passwd = c.password
	}
	server := &SQLServer{control: control{machine: newServer}, config: config}
	if err := server.identify(); err != nil {
		newServer.discard()
		return nil, err
	}
	return server, nil
}

func rootConfig(address string) *mysql.Config {
	config := mysql.NewConfig()
	config.User, config.Net, config.Addr = "root", "tcp", address
	return config
}

func (s *SQLServer) identify() error {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	err := withRoot(s.config, func(db *sql.DB) error {
		return db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&s.Version)
	})
	s.Flavor = "mysql"
	if strings.Contains(s.Version, "MariaDB") {
		s.Flavor = "mariadb"
	}
	return err
}

// DSN returns the data source name of a database on this server, for github.com/go-sql-driver/mysql. params are its
// parameters, for example "parseTime=true". An empty database selects none.
func (s *SQLServer) DSN(database string, params ...string) string {
	config := s.config.Clone()
	config.DBName = database
	dsn := config.FormatDSN()
	for _, param := range params {
		separator := "?"
		if strings.Contains(dsn[strings.LastIndexByte(dsn, '/'):], "?") {
			separator = "&"
		}
		dsn += separator + param
	}
	return dsn
}

// Database creates an empty utf8mb4 database on the shared server and returns its DSN with these parameters. The
// database is dropped at the end of the test.
func Database(tb testing.TB, params ...string) string {
	tb.Helper()
	return SharedSQL(tb).Database(tb, params...)
}

// Database creates an empty utf8mb4 database on this server and returns its DSN with these parameters. On a shared
// server, the database is dropped at the end of the test.
func (s *SQLServer) Database(tb testing.TB, params ...string) string {
	tb.Helper()
	name := "compensator_" + strings.ToLower(rand.Text()[:12])
	if err := s.exec("CREATE DATABASE " + name + " CHARACTER SET utf8mb4"); err != nil {
		tb.Fatalf("testservers: create a database: %v", err)
	}
	if s.owner == nil {
		tb.Cleanup(func() { s.drop(tb, name) })
	}
	return s.DSN(name, params...)
}

func (s *SQLServer) drop(tb testing.TB, database string) {
	if err := s.exec("SET lock_wait_timeout = 10", "DROP DATABASE "+database); err != nil {
		tb.Errorf("testservers: drop the test's database; is a transaction still open? %v", err)
	}
}

func (s *SQLServer) exec(statements ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*probeTimeout)
	defer cancel()
	return withRoot(s.config, func(db *sql.DB) error {
		for _, statement := range statements {
			if _, err := db.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
		}
		return nil
	})
}

// The driver does not log errors of this connection, because a starting server refuses connections.
func withRoot(config *mysql.Config, use func(*sql.DB) error) error {
	config = config.Clone()
	config.DBName, config.Logger = "", &mysql.NopLogger{}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	db.SetMaxOpenConns(1)
	return use(db)
}
