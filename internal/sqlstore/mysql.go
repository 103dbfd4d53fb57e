package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/compensator-go/compensator/internal/mysqlerr"
	"github.com/compensator-go/compensator/internal/txwatch"
	"github.com/compensator-go/compensator/migrations"
	"github.com/compensator-go/compensator/processlog"
)

// mysqlDialect is MySQL from 8.0.1 and MariaDB from 10.6: the first with SKIP LOCKED.
func mysqlDialect(version string) *dialect {
	d := &dialect{
		name:       "mysql",
		migrations: migrations.MySQL,
		// UTC_TIMESTAMP is free of session time zones and daylight saving.
		now:   "(TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(3)) DIV 1000)",
		stamp: "UTC_TIMESTAMP(3)",
		stampMS: func(col string) string {
			return "COALESCE(TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00'," + col + ") DIV 1000,0)" // '0000-00-00' is NULL
		},
		stampAt: func(ms int64) string {
			return fmt.Sprintf("TIMESTAMPADD(MICROSECOND,%d,TIMESTAMP'1970-01-01 00:00:00')", ms*1000)
		},
		text:       func(utf8 string) string { return "_utf8mb4 " + hexLiteral([]byte(utf8)) },
		numbers:    func(columns string) string { return columns },
		bytes:      "BINARY",
		dueIndex:   " FORCE INDEX (k_due)",
		idIndex:    " FORCE INDEX (PRIMARY)",
		by:         func(index string) string { return " FORCE INDEX (" + index + ")" },
		deleteByID: func(table string) string { return "DELETE " + table + " FROM " + table + " FORCE INDEX (PRIMARY)" },
		skipLocked: " FOR UPDATE SKIP LOCKED",
		thenJoin:   "STRAIGHT_JOIN",
		lock:       " FOR UPDATE",
		lockNow:    " FOR UPDATE NOWAIT",
		share:      " LOCK IN SHARE MODE",
		shareNow:   " FOR SHARE NOWAIT",
		latest:     "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
		qualified:  true,
		again:      mysqlAgain,
		keyed:      mysqlKeyed,
		ended:      mysqlEnded,
		own:        openOwn,
		probe:      probeMySQL,
		begin:      beginMySQL,
		check:      checkMySQL,
		fault:      mysqlFault,
		blame:      mysqlerr.Blames,
		answered:   func(err error) bool { return mysqlerr.Number(err) != 0 },
	}
	if strings.Contains(version, "MariaDB") {
		d.shareNow = " LOCK IN SHARE MODE NOWAIT"
		d.inTx = "@@in_transaction=1"
		d.returning = true
		d.ended = func(seconds int, query string) string {
			return fmt.Sprintf("SET STATEMENT max_statement_time=%d FOR %s", seconds, query)
		}
	}
	return d
}

func mysqlEnded(seconds int, query string) string {
	return fmt.Sprintf("SELECT /*+ MAX_EXECUTION_TIME(%d000) */%s", seconds, strings.TrimPrefix(query, "SELECT"))
}

// mysqlAgain takes the one form that MySQL and MariaDB both know.
func mysqlAgain(_ string, columns ...string) string {
	set := make([]string, len(columns))
	for i, column := range columns {
		set[i] = column + "=VALUES(" + column + ")"
	}
	return " ON DUPLICATE KEY UPDATE " + strings.Join(set, ", ")
}

// mysqlKeyed compares checksums, a tenth of the text that the keys are.
func mysqlKeyed(keys []processlog.IdempotentID) string {
	b := make([]byte, 0, len("CRC32(idempotent_id) IN ()")+len("4294967295,")*len(keys))
	b = append(b, "CRC32(idempotent_id) IN ("...)
	for i, key := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(crc32.ChecksumIEEE([]byte(key))), 10)
	}
	return string(append(b, ')'))
}

func mysqlFault(err error) fault {
	switch mysqlerr.Number(err) {
	case 0:
		if mysqlerr.IsBroken(err) {
			return faultUnreachable
		}
	case mysqlerr.DuplicateKey:
		return faultDuplicate
	case mysqlerr.LockWaitTimeout, mysqlerr.NoWait, mysqlerr.ResolveLock:
		return faultBusy
	case mysqlerr.Interrupted, mysqlerr.StatementTime, mysqlerr.ExecutionTime:
		return faultEnded
	case mysqlerr.Deadlock, mysqlerr.RecordChanged, mysqlerr.DuringCommit, mysqlerr.BeforeCommit, mysqlerr.RolledBackOnCommit:
		return faultAborted
	case mysqlerr.NoSuchTable:
		return faultNoTable
	case mysqlerr.BadNull:
		return faultOutsideTx // every value of ours is checked; only guardedKey yields NULL
	}
	return faultOther
}

// probeMySQL runs the one statement that fails inside a transaction and changes nothing outside of one: READ
// WRITE is what the next transaction would be anyway.
func probeMySQL(ctx context.Context, tx processlog.Tx) error {
	_, err := tx.ExecContext(ctx, txwatch.DoubtBegun)
	switch {
	case err == nil:
		return processlog.ErrNoTransaction
	case mysqlerr.IsInsideTransaction(err):
		return nil
	}
	return fmt.Errorf("compensator: probe the transaction: %w", err)
}

// probeSavepoint is for servers that take SET TRANSACTION anywhere, as TiDB and Vitess do: only inside a transaction
// does a savepoint live long enough to be released.
func probeSavepoint(ctx context.Context, tx processlog.Tx) error {
	_, err := tx.ExecContext(ctx, txwatch.DoubtSavepoint)
	if txwatch.Answered(ctx) {
		return nil // by the connection, which has sent nothing
	}
	if err == nil {
		_, err = tx.ExecContext(ctx, txwatch.DoubtRelease)
	}
	switch {
	case err == nil:
		return nil
	case mysqlerr.Number(err) == mysqlerr.NoSuchSavepoint:
		return processlog.ErrNoTransaction
	}
	return fmt.Errorf("compensator: probe the transaction: %w", err)
}

func beginMySQL(ctx context.Context, db *sql.DB) (processlog.Transaction, error) {
	return db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
}

// ownSettings make a session of ours independent of what the user's connections are set to. The short lock
// wait keeps one held row from holding up a whole batch.
const ownSettings = "SET SESSION innodb_lock_wait_timeout=2, autocommit=1, sql_mode='STRICT_ALL_TABLES'"

// ownPoolSize is how many connections the library takes for itself.
const ownPoolSize = 4

// openOwn opens the library's own pool beside the user's, set up once per connection: nothing of it leaks
// into the user's sessions, and a BEGIN of ours is a single round trip.
func openOwn(inner driver.Connector, opened *atomic.Int64) *sql.DB {
	db := sql.OpenDB(ownConnector{inner, opened})
	db.SetMaxOpenConns(ownPoolSize)
	db.SetMaxIdleConns(ownPoolSize)
	return db
}

// dropReadOnly closes our idle connections to a server that has become read-only: the next are opened to where writes
// go now. One that is in use meets its own error. The user's pool is not ours to close: its error says what would help.
func (s *Store) dropReadOnly(err error) error {
	if s.own == nil {
		return s.keptReadOnly(err)
	}
	if mysqlerr.IsReadOnly(err) {
		s.own.SetMaxIdleConns(0)
		s.own.SetMaxIdleConns(ownPoolSize)
	}
	return err
}

// keptReadOnly names the remedy where the user's pool hands out connections to a server that takes no writes any more. A
// transaction that was begun as READ ONLY is the user's own word.
func (s *Store) keptReadOnly(err error) error {
	if s.own != nil || !mysqlerr.IsReadOnly(err) || mysqlerr.Number(err) == mysqlerr.ReadOnlyTx {
		return err
	}
	return fmt.Errorf("%w (the pool keeps its connections to this server; after a switchover set rejectReadOnly=true in the DSN, or open the database on Connector)", err)
}

type ownConnector struct {
	driver.Connector
	opened *atomic.Int64
}

func (c ownConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	exec, ok := conn.(driver.ExecerContext)
	if !ok {
		_ = conn.Close()
		return nil, errors.New("compensator: the MySQL driver runs no statements on a bare connection")
	}
	for _, setting := range []string{"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", ownSettings} {
		if _, err := exec.ExecContext(ctx, setting, nil); err != nil {
			_ = conn.Close()
			return nil, fmt.Errorf("compensator: set up a connection: %w", err)
		}
	}
	c.opened.Add(1)
	return conn, nil
}
