package chaos

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/grants"
	"github.com/compensator-go/compensator/internal/testservers"
)

const (
	database = "chaos"
	prefix   = "chaos"
)

type servers struct {
	tb  testing.TB
	sql *testservers.SQLServer
	db  *sql.DB // direct connection as root, without a proxy

	redis [2]*testservers.RedisServer
	lines [2]*faultproxy.TCP
	main  int // index in lines of the Redis that the apps use; the nemesis changes it

	clocks    *clocks // nil if the clocks cannot be moved
	clocksWhy error

	proxies []*proxies
}

type proxies struct {
	sql   *faultproxy.MySQL
	redis *faultproxy.TCP
}

// With innodb-autoinc-lock-mode=2, audit triggers do not wait for each other at the auto-increment counter of the
// audit table. Lock waits end before the clients' read timeout, so a client gets the error of its lock wait.
var sqlFlags = []string{
	"--innodb-autoinc-lock-mode=2", "--innodb-lock-wait-timeout=3", "--lock-wait-timeout=5",
	"--innodb-buffer-pool-size=256M", "--max-connections=1000", "--max-connect-errors=1000000000",
}

func newServers(tb testing.TB) *servers {
	s := &servers{tb: tb}
	s.clocks, s.clocksWhy = newClocks(tb)
	flavor := "--innodb-log-file-size=96M"
	if strings.Contains(os.Getenv("COMPENSATOR_MYSQLD"), "mysql") {
		flavor = "--innodb-redo-log-capacity=192M"
	}
	s.sql = testservers.NewSQL(tb, append(sqlFlags, flavor)...)
	s.redis[0], s.redis[1] = testservers.NewRedis(tb, redisFlags...), testservers.NewRedisReplica(tb, redisFlags...)
	for i, server := range s.redis {
		s.lines[i] = newTCP(tb, server.Addr())
	}
	s.checkClocks()
	s.prepareDatabase()
	s.follow(1, 0)
	return s
}

// A follower that was cut off must copy the leader's whole data, because a partial resynchronization would hide
// that writes were lost.
var redisFlags = []string{"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", "--repl-timeout", "5", "--maxmemory-policy", "noeviction"}

func newTCP(tb testing.TB, target string) *faultproxy.TCP {
	proxy, err := faultproxy.NewTCP(target)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = proxy.Close() })
	return proxy
}

func (s *servers) checkClocks() {
	if s.clocks == nil {
		return
	}
	defer func() { s.setClocks(0) }()
	s.setClocks(time.Hour)
	var sqlNow int64
	err := s.root().QueryRow("SELECT UNIX_TIMESTAMP()").Scan(&sqlNow)
	client := s.redisClient(0)
	defer client.Close()
	redisNow, redisErr := client.Time(context.Background()).Result()
	half := time.Now().Add(30 * time.Minute)
	if err != nil || redisErr != nil || time.Unix(sqlNow, 0).Before(half) || redisNow.Before(half) {
		s.clocksWhy = fmt.Errorf("the servers' clocks do not follow the preloaded library: the database says %v (%v), Redis says %v (%v)", time.Unix(sqlNow, 0), err, redisNow, redisErr)
		s.clocks.set(sqlClock, 0)
		s.clocks.set(redisClock, 0)
		s.clocks = nil
	}
}

func (s *servers) setClocks(by time.Duration) {
	if s.clocks == nil {
		return
	}
	for _, clock := range []string{sqlClock, redisClock} {
		if err := s.clocks.set(clock, by); err != nil {
			s.tb.Error(err)
		}
	}
}

func (s *servers) root() *sql.DB {
	if s.db == nil {
		db, err := sql.Open("mysql", s.sql.DSN("", "timeout=2s", "readTimeout=2m", "writeTimeout=10s"))
		if err != nil {
			s.tb.Fatal(err)
		}
		s.db = db
		s.tb.Cleanup(func() { _ = db.Close() })
	}
	return s.db
}

// prepareDatabase also creates the apps' database user, who cannot write to a read-only server.
func (s *servers) prepareDatabase() {
	exec := func(statement string) {
		if _, err := s.root().Exec(statement); err != nil {
			s.tb.Fatalf("%s: %v", statement, err)
		}
	}
	exec("CREATE DATABASE " + database + " CHARACTER SET utf8mb4")
	exec("CREATE USER app@'%' IDENTIFIED BY 'app'")
	exec("GRANT ALL ON " + database + ".* TO app@'%'")
	if s.sql.Flavor == "mysql" {
		exec("SET GLOBAL log_bin_trust_function_creators=1")
	}
	_ = s.db.Close()
	db, err := sql.Open("mysql", s.sql.DSN(database, "timeout=2s", "readTimeout=2m", "writeTimeout=10s"))
	if err != nil {
		s.tb.Fatal(err)
	}
	s.db = db
	s.tb.Cleanup(func() { _ = db.Close() })
	if err := compensator.Migrate(context.Background(), db); err != nil {
		s.tb.Fatal(err)
	}
	for _, statement := range schema {
		exec(statement)
	}
}

var schema = append([]string{
	`CREATE TABLE effects (id BIGINT AUTO_INCREMENT PRIMARY KEY, entry_key VARCHAR(191) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
		entry_id BIGINT UNSIGNED NOT NULL, epoch INT UNSIGNED NOT NULL, compensation TINYINT NOT NULL, version BIGINT UNSIGNED NOT NULL) ENGINE=InnoDB`,
	"CREATE TABLE canary (name VARCHAR(16) PRIMARY KEY, n BIGINT NOT NULL) ENGINE=InnoDB",
	"INSERT INTO canary VALUES ('driver', 0), ('app1', 0), ('app2', 0), ('app3', 0), ('shop', 0)",
	"CREATE TABLE accounts (id INT PRIMARY KEY, n BIGINT NOT NULL) ENGINE=InnoDB",
	"INSERT INTO accounts WITH RECURSIVE s (i) AS (SELECT 1 UNION ALL SELECT i+1 FROM s WHERE i < 200) SELECT i, 0 FROM s",
}, slices.Concat(auditSchema, statSchema, grants.Schema)...)

func (s *servers) newProxies() *proxies {
	sqlProxy, err := faultproxy.NewMySQL(s.sql.Addr())
	if err != nil {
		s.tb.Fatal(err)
	}
	s.tb.Cleanup(func() { _ = sqlProxy.Close() })
	p := &proxies{sql: sqlProxy, redis: newTCP(s.tb, s.redis[s.main].Addr())}
	s.proxies = append(s.proxies, p)
	return p
}

func (p *proxies) dsn(interpolate bool) string {
	config := mysql.NewConfig()
	config.User, config.Passwd, config.Net, config.Addr, config.DBName = "app", "app", "tcp", p.sql.Addr(), database
	config.Timeout, config.ReadTimeout, config.WriteTimeout = 2*time.Second, 6*time.Second, 6*time.Second
	config.InterpolateParams, config.AllowNativePasswords = interpolate, true
	return config.FormatDSN()
}

func (s *servers) redisClient(i int) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: s.redis[i].Addr(), MaxRetries: 2})
}

func (s *servers) mainRedis() *redis.Client { return s.redisClient(s.main) }

func (s *servers) follow(i, leader int) {
	host, port, err := net.SplitHostPort(s.lines[leader].Addr())
	if err != nil {
		s.tb.Error(err)
		return
	}
	client := s.redisClient(i)
	defer client.Close()
	if err := client.SlaveOf(context.Background(), host, port).Err(); err != nil {
		s.tb.Error(err)
	}
}

func (s *servers) heal() {
	for _, p := range s.proxies {
		p.sql.Heal()
		p.sql.Cut()
		p.redis.Heal()
		p.redis.Cut()
	}
	s.setClocks(0)
	s.sql.Resume()
	for i, server := range s.redis {
		server.Resume()
		s.lines[i].Heal()
	}
}
