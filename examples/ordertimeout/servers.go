package main

import (
	"cmp"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator"
)

// poolSize is shared by requests and handlers. A transactional handler holds a connection while it runs.
const poolSize = 64

// servers are the database and the queue's Redis.
type servers struct{ dsn, redis, prefix string }

func (s *servers) define(flags *flag.FlagSet) {
	flags.StringVar(&s.dsn, "mysql-dsn", "", "database, as user:password@tcp(host:port)/name; default $MYSQL_DSN")
	flags.StringVar(&s.redis, "redis-addr", "", "Redis, as host:port; default $REDIS_ADDR; neither: no Redis")
	flags.StringVar(&s.prefix, "redis-prefix", "ordertimeout", "starts every key in Redis; one prefix for each database")
}

// fill takes from the environment what no flag gave. These are no flag defaults, because -help prints those.
func (s *servers) fill() error {
	s.dsn = cmp.Or(s.dsn, os.Getenv("MYSQL_DSN"))
	s.redis = cmp.Or(s.redis, os.Getenv("REDIS_ADDR"))
	if s.dsn == "" {
		return errors.New("no database: set MYSQL_DSN or -mysql-dsn")
	}
	return nil
}

func (s *servers) environment() []string {
	return []string{"MYSQL_DSN=" + s.dsn, "REDIS_ADDR=" + s.redis}
}

// openDB opens the database on the Connector: whatever a transaction records is enqueued by its Commit.
func (s *servers) openDB() (*sql.DB, error) {
	config, err := mysql.ParseDSN(s.dsn)
	if err != nil {
		return nil, fmt.Errorf("MYSQL_DSN: %w", err)
	}
	config.ParseTime = true
	config.InterpolateParams = true // one round trip for a statement instead of two
	inner, err := mysql.NewConnector(config)
	if err != nil {
		return nil, fmt.Errorf("MYSQL_DSN: %w", err)
	}
	db := sql.OpenDB(compensator.Connector(inner))
	db.SetMaxOpenConns(poolSize)
	db.SetMaxIdleConns(poolSize)
	return db, nil
}

// openRedis returns nil where there is no Redis: a timing wheel takes its place.
func (s *servers) openRedis() redis.UniversalClient {
	if s.redis == "" {
		return nil
	}
	return redis.NewClient(&redis.Options{Addr: s.redis})
}
