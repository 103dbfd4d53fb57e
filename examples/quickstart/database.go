package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite"

	"github.com/compensator-go/compensator"
)

type database struct {
	*sql.DB
	dsn   string // DSN of MySQL or MariaDB; empty means SQLite
	file  string // file of SQLite
	redis redis.UniversalClient
	now   string // SQL expression for the database's clock, in ms since 1970
}

const (
	dsnVariable   = "MYSQL_DSN"
	redisVariable = "REDIS_ADDR"
	fileVariable  = "QUICKSTART_FILE"
)

func newDatabase(ctx context.Context) (*database, error) {
	db, err := placeDatabase(ctx)
	if err != nil {
		return nil, err
	}
	if err := db.clear(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

func placeDatabase(ctx context.Context) (*database, error) {
	if dsn := os.Getenv(dsnVariable); dsn != "" {
		dsn, err := ownDatabase(ctx, dsn)
		if err != nil {
			return nil, err
		}
		return openMySQL(dsn)
	}
	dir, err := os.MkdirTemp("", "compensator-quickstart-")
	if err != nil {
		return nil, err
	}
	return openSQLite(filepath.Join(dir, "shop.db"))
}

func openDatabase() (*database, error) {
	if dsn := os.Getenv(dsnVariable); dsn != "" {
		return openMySQL(dsn)
	}
	return openSQLite(os.Getenv(fileVariable))
}

// Transactions take the write lock at BEGIN. Otherwise a transaction that reads and then writes would fail after a
// write of another process.
func openSQLite(file string) (*database, error) {
	settings := url.Values{"_txlock": {"immediate"}, "_pragma": {"journal_mode(WAL)", "synchronous(FULL)", "busy_timeout(10000)"}}
	db, err := compensator.Open("sqlite", "file:"+file+"?"+settings.Encode())
	now := "CAST(ROUND((julianday('now')-2440587.5)*86400000.0) AS INTEGER)"
	return &database{DB: db, file: file, redis: openRedis(), now: now}, err
}

// openMySQL opens the database through the Connector, so that Commit enqueues the transaction's entries in Redis.
func openMySQL(dsn string) (*database, error) {
	db, err := compensator.Open("mysql", dsn)
	now := "(TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(3)) DIV 1000)"
	return &database{DB: db, dsn: dsn, redis: openRedis(), now: now}, err
}

// openRedis returns nil if no Redis is given. The library then keeps this process's entries in a timing wheel.
func openRedis() redis.UniversalClient {
	address := os.Getenv(redisVariable)
	if address == "" {
		return nil
	}
	return redis.NewClient(&redis.Options{Addr: address})
}

// Close closes the database and Redis.
func (db *database) Close() error {
	if db.redis == nil {
		return db.DB.Close()
	}
	return errors.Join(db.DB.Close(), db.redis.Close())
}

const ownName = "compensator_quickstart"

// ownDatabase returns the given DSN if the user may not create a database.
func ownDatabase(ctx context.Context, dsn string) (string, error) {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return "", err
	}
	own := cfg.Clone()
	own.DBName = ""
	db, err := sql.Open("mysql", own.FormatDSN())
	if err != nil {
		return "", err
	}
	defer db.Close()
	for _, statement := range []string{"DROP DATABASE IF EXISTS " + ownName, "CREATE DATABASE " + ownName + " CHARACTER SET utf8mb4"} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			if mayNot(err) && cfg.DBName != "" {
				return dsn, nil
			}
			return "", err
		}
	}
	own.DBName = ownName
	return own.FormatDSN(), nil
}

func mayNot(err error) bool {
	const accessDenied = 1044
	var answer *mysql.MySQLError
	return errors.As(err, &answer) && answer.Number == accessDenied
}

func (db *database) forget(ctx context.Context) error {
	if db.redis == nil {
		return nil
	}
	keys := db.redis.Scan(ctx, 0, "{"+ownName+":*", 1000).Iterator()
	for keys.Next(ctx) {
		if err := db.redis.Unlink(ctx, keys.Val()).Err(); err != nil {
			return err
		}
	}
	return keys.Err()
}

func (db *database) where() string {
	if db.dsn == "" {
		return "SQLite, " + db.file
	}
	return fmt.Sprintf("MySQL or MariaDB at %s, database %s", db.mysql().Addr, db.mysql().DBName)
}

func (db *database) queue() string {
	if db.redis == nil {
		return "no Redis: the worker keeps its retries in a timing wheel and polls once a second for entries that the shop records"
	}
	return "Redis at " + os.Getenv(redisVariable)
}

func (db *database) shell() string {
	if db.dsn == "" {
		return "sqlite3 " + db.file
	}
	return fmt.Sprintf("mysql --database=%s, on %s", db.mysql().DBName, db.mysql().Addr)
}

func (db *database) mysql() *mysql.Config {
	cfg, _ := mysql.ParseDSN(db.dsn) // The DSN was already parsed when the database was opened.
	return cfg
}
