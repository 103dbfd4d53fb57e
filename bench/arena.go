package bench

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/testservers"
)

// payload is the size in bytes of the content of every entry and of every peer's job.
const payload = 200

// producers is the number of goroutines that record at the same time.
const producers = 16

type arena struct {
	testing.TB
	sql   *testservers.SQLServer
	redis *testservers.RedisServer
	dsn   string
	admin *sql.DB

	postgres *postgres // nil if PostgreSQL is missing or was not asked for
	peers    bool      // whether the peers' tables exist
	lost     int       // number of jobs that the peer of the current contest never ran

	operations *compensator.Operations // passed to every library made on this arena
}

// newArena starts servers that keep every acknowledged commit. The SQL server has so much memory that no figure
// includes disk reads. flags come last on the SQL server's command line, so they override the defaults.
func newArena(tb testing.TB, flags ...string) *arena {
	a := &arena{TB: tb}
	a.sql = testservers.NewSQL(tb, append([]string{"--innodb-flush-log-at-trx-commit=1", "--innodb-buffer-pool-size=2G",
		"--loose-innodb-log-file-size=1G", "--loose-innodb-redo-log-capacity=1G", // MariaDB's option, then MySQL's option for the same size
		"--loose-cte-max-recursion-depth=100000000", "--loose-max-recursive-iterations=100000000", // for the function numbers: MySQL's option, then MariaDB's option
		"--max-connections=500", "--innodb-print-all-deadlocks=1"}, flags...)...)
	if a.sql.Flavor == "mysql" {
		floorIDs = ""
	}
	a.redis = testservers.NewRedis(tb)
	a.dsn = a.sql.Database(tb, "interpolateParams=true")
	a.admin = a.openPlain(4)
	a.exec("CREATE TABLE orders (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, buyer BIGINT NOT NULL, amount BIGINT NOT NULL, note VARBINARY(200) NOT NULL) ENGINE=InnoDB")
	a.must(compensator.Migrate(tb.Context(), a.admin))
	return a
}

func (a *arena) startPeers() {
	a.Helper()
	a.peers, a.postgres = true, startPostgres(a)
	a.migrateWatermill()
	if a.postgres != nil {
		a.migrateRiver()
	}
}

func (a *arena) must(err error) {
	a.Helper()
	if err != nil {
		a.Fatal(err)
	}
}

func (a *arena) exec(query string, args ...any) {
	a.Helper()
	_, err := a.admin.ExecContext(a.Context(), query, args...)
	a.must(err)
}

// numbers returns a recursive expression, because MySQL has no sequence engine. The options in newArena raise the server's
// limit for such recursions.
func numbers(first, last int) string {
	return fmt.Sprintf("(WITH RECURSIVE n (seq) AS (SELECT %d UNION ALL SELECT seq+1 FROM n WHERE seq<%d) SELECT seq FROM n) AS numbers", first, last)
}

// Rows of the first run in a pair would make the second run slower.
func (a *arena) empty() {
	a.Helper()
	a.exec("TRUNCATE TABLE common_process_log")
	a.exec("TRUNCATE TABLE common_process_log_case")
	a.exec("TRUNCATE TABLE common_process_log_turns")
	a.exec("TRUNCATE TABLE orders")
	client := a.client()
	defer client.Close()
	a.must(client.FlushAll(context.Background()).Err())
	if a.peers {
		a.emptyWatermill()
	}
	if a.postgres != nil {
		a.emptyRiver()
	}
}

func (a *arena) openPlain(n int) *sql.DB { return a.open(n, false) }

func (a *arena) openWatched(n int) *sql.DB { return a.open(n, true) }

func (a *arena) open(n int, watched bool) *sql.DB {
	a.Helper()
	db, err := openPool(a.dsn, n, watched)
	a.must(err)
	a.Cleanup(func() { _ = db.Close() })
	conns := make([]*sql.Conn, n) // Open all connections now, so that a short run does not measure connecting.
	for i := range conns {
		conns[i], err = db.Conn(a.Context())
		a.must(err)
	}
	for _, conn := range conns {
		a.must(conn.Close())
	}
	return db
}

func openPool(dsn string, n int, watched bool) (*sql.DB, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	var connector driver.Connector
	if connector, err = mysql.NewConnector(cfg); err != nil {
		return nil, err
	}
	if watched {
		connector = compensator.Connector(connector)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	return db, nil
}

func (a *arena) client() *redis.Client { return newClient(a.redis.Addr()) }

func newClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
}
