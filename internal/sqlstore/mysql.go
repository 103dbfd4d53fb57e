package sqlstore

import (
	"context"
	"database/sql"
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

// mysqlDialect returns the dialect of MySQL from 8.0.1 and MariaDB from 10.6, the first versions with SKIP LOCKED.
func mysqlDialect(version string) *dialect {
	d := &dialect{
		name:       "mysql",
		migrations: migrations.MySQL,
		// UTC_TIMESTAMP does not depend on session time zones or daylight saving.
		now:   "(TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(3)) DIV 1000)",
		stamp: "UTC_TIMESTAMP(3)",
		stampMS: func(col string) string {
			return "COALESCE(TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00'," + col + ") DIV 1000,0)" // '0000-00-00' gives NULL.
		},
		stampAt: func(ms int64) string {
			return fmt.Sprintf("TIMESTAMPADD(MICROSECOND,%d,TIMESTAMP'1970-01-01 00:00:00')", ms*1000)
		},
		quote:      "`",
		binary:     hexLiteral,
		text:       func(utf8 string) string { return "_utf8mb4 " + hexLiteral([]byte(utf8)) },
		instr:      "INSTR",
		prefix:     mysqlPrefix,
		numbers:    func(columns string) string { return columns },
		byteType:   "BINARY",
		texts:      mysqlTexts,
		empty:      "X''",
		hexText:    "CONVERT(UNHEX(?) USING utf8mb4)",
		fit:        mysqlFit,
		steady:     mysqlSteady,
		calm:       calmMySQL,
		shortWaits: shortWaitsMySQL,
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
		insertID:   true,
		again:      mysqlAgain,
		offer:      func(column string) string { return "VALUES(" + column + ")" },
		later:      func(a, b string) string { return "GREATEST(" + a + "," + b + ")" },
		keyed:      mysqlKeyed,
		ended:      mysqlEnded,
		own: func(users *txwatch.Connector, opened *atomic.Int64) *sql.DB {
			db := openOwn(users, opened, setUpMySQL(idleMySQL))
			db.SetConnMaxIdleTime(idleInPool)
			return db
		},
		probe:    probeMySQL,
		begin:    beginMySQL,
		check:    checkMySQL,
		fault:    mysqlFault,
		blame:    mysqlerr.Blames,
		answered: func(err error) bool { return mysqlerr.Number(err) != 0 },
		changed:  func(err error) bool { return mysqlerr.Number(err) == mysqlerr.RecordChanged },
		absent:   mysqlAbsent,
		whyUnfit: mysqlWhyUnfit,
	}
	if strings.Contains(version, "MariaDB") {
		d.shareNow = " LOCK IN SHARE MODE NOWAIT"
		d.inTx = "@@in_transaction=1"
		d.returning = true
		d.calm, d.steady, d.shortWaits = calmMariaDB, "", ""
		d.own = func(users *txwatch.Connector, opened *atomic.Int64) *sql.DB {
			return openOwn(users, opened, setUpMySQL(idleMariaDB))
		}
		d.ended = func(seconds int, query string) string {
			return fmt.Sprintf("SET STATEMENT max_statement_time=%d FOR %s", seconds, query)
		}
	}
	return d
}

func mysqlEnded(seconds int, query string) string {
	return fmt.Sprintf("SELECT /*+ MAX_EXECUTION_TIME(%d000) */%s", seconds, strings.TrimPrefix(query, "SELECT"))
}

// mysqlAgain returns the suffix that overwrites an existing row, in the one form that MySQL and MariaDB both accept.
func mysqlAgain(_ string, columns ...string) string {
	set := make([]string, len(columns))
	for i, column := range columns {
		set[i] = column + "=VALUES(" + column + ")"
	}
	return " ON DUPLICATE KEY UPDATE " + strings.Join(set, ", ")
}

// mysqlKeyed returns the condition that the checksum of a row's key is the checksum of one of the keys. The list of
// checksums is about ten times shorter than the list of keys.
func mysqlKeyed(keys []processlog.IdempotencyKey) string {
	b := make([]byte, 0, len("CRC32(idempotent_id) IN ()")+len("4294967295,")*len(keys))
	b = append(b, "CRC32(idempotent_id) IN ("...)
	var text []byte // reused for each key
	for i, key := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		text = append(text[:0], key...)
		b = strconv.AppendUint(b, uint64(crc32.ChecksumIEEE(text)), 10)
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
		return faultNull
	case mysqlerr.OutOfRange:
		return faultGuard // All values of the library are in range. Only guardedKey computes a number out of range.
	}
	return faultOther
}

func mysqlAbsent(err error) (text string, ok bool) {
	switch mysqlerr.Number(err) {
	case mysqlerr.TableDenied, mysqlerr.ColumnDenied, mysqlerr.NoSuchTable, mysqlerr.Syntax:
		return err.Error(), true
	}
	return "", false
}

// mysqlPrefix returns the condition that a column begins with a text. It uses LIKE, because < and >= would fill a
// shorter text with spaces and so miss ids with control characters.
func mysqlPrefix(column, text string) string {
	pattern := strings.NewReplacer("!", "!!", "%", "!%", "_", "!_").Replace(text) + "%"
	return column + " LIKE _utf8mb4 " + hexLiteral([]byte(pattern)) + " ESCAPE '!'"
}

// mysqlTexts casts texts to bytes. The server sends bytes unchanged, but converts texts to the session's charset.
func mysqlTexts(columns string) string {
	return "CAST(" + strings.ReplaceAll(columns, ", ", " AS BINARY), CAST(") + " AS BINARY)"
}

// probeMySQL runs a statement that fails inside a transaction and changes nothing outside one. Outside a transaction it
// sets READ WRITE for the next transaction, which is the default anyway.
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

// probeSavepoint serves servers that accept SET TRANSACTION everywhere, such as TiDB and Vitess. A savepoint can be
// released only inside a transaction. Outside a transaction, the savepoint is gone when the next statement runs.
func probeSavepoint(ctx context.Context, tx processlog.Tx) error {
	_, err := tx.ExecContext(ctx, txwatch.DoubtSavepoint)
	if txwatch.Answered(ctx) {
		return nil // The watched connection answers without sending anything to the server.
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

// dropReadOnly closes the library's idle connections if err says that the server has become read-only. New connections
// then lead to the server that accepts writes now. A connection in use gets the same error later. The library must not
// close connections of the user's pool, so if the user's pool keeps them, the error names the remedy.
func (s *Store) dropReadOnly(err error) error {
	if s.ownPool == nil {
		return s.keptReadOnly(err)
	}
	if mysqlerr.IsReadOnly(err) {
		s.ownPool.SetMaxIdleConns(0)
		s.ownPool.SetMaxIdleConns(ownPoolSize)
	}
	return err
}

// keptReadOnly adds the remedy to err if the user's pool keeps connections to a server that has become read-only. A
// transaction that the user began as READ ONLY is not such a case.
func (s *Store) keptReadOnly(err error) error {
	if s.ownPool != nil || !mysqlerr.IsReadOnly(err) || mysqlerr.Number(err) == mysqlerr.ReadOnlyTx {
		return err
	}
	return fmt.Errorf("%w (the pool keeps its connections to this server; after a switchover set rejectReadOnly=true in the DSN, or open the database on Connector)", err)
}
