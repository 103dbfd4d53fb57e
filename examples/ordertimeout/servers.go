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

// A transactional handler holds a connection while it runs.
const poolSize = 64

type servers struct{ dsn, redis, prefix string }

func (s *servers) define(flags *flag.FlagSet) {
	flags.StringVar(&s.dsn, "mysql-dsn", "", "database, as user:password@tcp(host:port)/name; default $MYSQL_DSN")
	flags.StringVar(&s.redis, "redis-addr", "", "Redis, as host:port; default $REDIS_ADDR; neither: no Redis")
	flags.StringVar(&s.prefix, "redis-prefix", "ordertimeout", "prefix of every key in Redis; use one prefix per database")
}

// Addresses are no flag defaults, because -help would print them.
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

// openDB opens the database through the Connector, so that Commit enqueues what the transaction has recorded.
func (s *servers) openDB() (*sql.DB, error) {
	config, err := mysql.ParseDSN(s.dsn)
	if err != nil {
		return nil, fmt.Errorf("MYSQL_DSN: %w", err)
	}
	config.ParseTime = true
	config.InterpolateParams = true // one round trip per statement instead of two
	inner, err := mysql.NewConnector(config)
	if err != nil {
		return nil, fmt.Errorf("MYSQL_DSN: %w", err)
	}
	db := sql.OpenDB(compensator.Connector(inner))
	db.SetMaxOpenConns(poolSize)
	db.SetMaxIdleConns(poolSize)
	return db, nil
}

// openRedis returns nil if no Redis is given. The library then uses a timing wheel.
func (s *servers) openRedis() redis.UniversalClient {
	if s.redis == "" {
		return nil
	}
	return redis.NewClient(&redis.Options{Addr: s.redis})
}
