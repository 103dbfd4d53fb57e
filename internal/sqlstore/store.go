// Package sqlstore is the process log on MySQL, MariaDB and SQLite. Each statement stands beside the method that sends it,
// and a dialect holds the differences between databases. docs/internals/statements.md shows the statements as sent.
//
// Each change of an entry is one guarded UPDATE. See promise G4. Rows are written by primary key, in ascending order,
// so two writes of the library cannot deadlock. Promise G14 says when a producer waits for a lock of the library. The time is always the database's. See promise
// G9.
//
// The root package opens a Store. The engine calls it through the contract in package processlog, from any goroutine. The
// package starts no goroutine, and knows no handlers or queues.
package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/internal/txwatch"
	"github.com/compensator-go/compensator/processlog"
)

// Store implements processlog.Store on a SQL database. In the caller's transaction, values are arguments. In the library's
// own statements they are written into the text, numbers as digits and bytes as hexadecimal literals, which saves the
// round trip of a prepared statement.
type Store struct {
	d         *dialect
	table     tableName
	fragments map[string]string // texts of the fragments in statements; see fragmentsOf

	db *sql.DB // the user's pool, whose sessions have the settings that the user chose
	// The field users is a pool whose connections the library watches. The pool is db itself if db was opened on a
	// Connector. Otherwise the pool borrows each connection from db.
	users   *sql.DB
	ownPool *sql.DB // the library's own pool, whose sessions have ownSettings; nil if statements must run in db

	connector *txwatch.Connector // the connector that db was opened on, or nil

	// Check sets the following fields.
	schema          string                      // database of the log; empty if unknown, or if Config.Table names it. Set by setSchema
	namesSchema     bool                        // whether statements name schema. Set by setSchema
	inserts         atomic.Pointer[insertTexts] // texts of INSERTs; nil while the method Check runs
	version         string                      // version of the server
	maxContent      int                         // maximum content in bytes that a packet of the server has room for; 0: no limit
	selectLimit     time.Duration               // maximum duration of a read in the user's pool; 0: no limit
	notes           []string                    // remarks about this server for a person
	foreign         map[string]error            // by suffix: the error of a table that has a name of the log, but is somebody else's
	connectionCount atomic.Int64                // connections that ownPool has opened
	unanswered      unanswered
	waitsBounded    atomic.Pointer[time.Time] // until then, transactions limit their waits for row locks

	stuckLimits sync.Map // names of limits whose row was locked for longer than a claim waits; see permits.rowLock

	refusals purgeRefusals
	attempts atomic.Bool // whether Purge deletes failed attempts; set by KeepAttempts and lookForAttempts

	writer  *writer       // schedules writers of the SQLite file; nil elsewhere
	timeout time.Duration // maximum wait for a turn at the SQLite writer
}

// Open finds out which kind of database db is. It also opens the library's own pool, under two conditions: db was
// opened on a Connector, and the library uses an own pool on this kind of database.
func Open(ctx context.Context, db *sql.DB, table string) (*Store, error) {
	d, err := detectDialect(ctx, db)
	if err != nil {
		return nil, err
	}
	name, err := d.table(table)
	if err != nil {
		return nil, err
	}
	d.dueIndex = name.replaceDefault(d.dueIndex, "`")
	s := newStore(d, name, db)
	s.connector, err = txwatch.Find(ctx, db)
	switch {
	case errors.Is(err, txwatch.ErrHidden):
		s.notes = append(s.notes, err.Error())
	case err != nil:
		return nil, fmt.Errorf("compensator: ask the database whether it was opened on a Connector: %w", err)
	}
	switch {
	case s.connector == nil:
		s.users = txwatch.Borrow(db)
	case d.own != nil:
		s.ownPool = d.own(s.connector, &s.connectionCount)
	}
	if d.openOrdering != nil {
		if err := d.openOrdering(ctx, s); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

func newStore(d *dialect, table tableName, db *sql.DB) *Store {
	return &Store{d: d, table: table, fragments: fragmentsOf(d, table), db: db, users: db}
}

// Connections returns how many connections the library's own pool has opened. It returns 0 without an own pool.
func (s *Store) Connections() int64 { return s.connectionCount.Load() }

// Connector returns the connector that the database was opened on, or nil. Without a connector the library does not see
// how the user's transactions end.
func (s *Store) Connector() *txwatch.Connector { return s.connector }

// ReadsCommitted reports whether a plain read always shows committed rows only. It is false in the user's pool, whose
// sessions may use another isolation level.
func (s *Store) ReadsCommitted() bool { return s.ownPool != nil }

// Version returns the server's version text. Notes returns remarks about this server for a person. Check sets both.
func (s *Store) Version() string { return s.version }
func (s *Store) Notes() []string { return s.notes }

// ContentLimit returns the maximum content in bytes that a packet of the server has room for. 0 means no limit.
func (s *Store) ContentLimit() int { return s.maxContent }

// Close implements Store.
func (s *Store) Close() error {
	var err error
	if s.ownPool != nil {
		err = s.ownPool.Close()
	}
	if s.users != s.db {
		err = errors.Join(err, s.users.Close())
	}
	if s.writer != nil {
		s.writer.close()
	}
	return err
}

// Check implements Store.
func (s *Store) Check(ctx context.Context) error {
	s.inserts.Store(nil)
	problems := s.d.check(ctx, s)
	s.inserts.Store(newInsertTexts(s))
	return errors.Join(problems...)
}

// Fingerprint implements Store.
func (s *Store) Fingerprint(ctx context.Context) (string, error) {
	return s.fingerprint(ctx, s.pool(), s.sql(readFingerprint))
}

const readFingerprint = "SELECT `value` FROM {meta} WHERE `name` = 'fingerprint' LIMIT 1"

// FingerprintBy returns the fingerprint of the log in the database that tx uses.
func (s *Store) FingerprintBy(ctx context.Context, tx processlog.Tx) (string, error) {
	return s.fingerprint(ctx, tx, s.sql(readFingerprint, "meta", s.table.quoted("_meta")))
}

func (s *Store) fingerprint(ctx context.Context, tx processlog.Tx, query string) (string, error) {
	rows, err := tx.QueryContext(ctx, query)
	if err != nil {
		return "", fmt.Errorf("compensator: read the log's fingerprint: %w", err)
	}
	defer rows.Close()
	var fingerprint string
	if !rows.Next() {
		return "", fmt.Errorf("compensator: read the log's fingerprint: %w", cmp.Or(rows.Err(), sql.ErrNoRows))
	}
	err = rows.Scan(&fingerprint)
	return fingerprint, err
}

// setSchema stores the name of the database that the log is in. From then on all statements name this database before
// each table of the log. So the library's statements use the right log even in a session in which somebody has sent
// USE.
//
// Check calls setSchema with an empty name if the server or a proxy does not accept a database's name before a table. A
// name with characters other than those of plainSchema is not written into statements, because a session's charset may
// change the characters.
func (s *Store) setSchema(name string) {
	table := s.table
	s.schema, s.namesSchema = name, plainSchema.MatchString(name)
	if s.namesSchema {
		table.database = name
	}
	s.fragments = fragmentsOf(s.d, table)
	if name != "" {
		s.fragments["in schema"] = s.inSchema()
		s.fragments["and in schema"] = " AND " + s.inSchema()
	}
}

var plainSchema = regexp.MustCompile(`^[A-Za-z0-9_$-]+$`)

// inSchema returns an SQL condition that is true if the session's database is the database of the log. In the user's
// transaction the condition prevents writes that belong to another database, and costs nothing. It cannot distinguish
// two servers whose databases have the same name.
//
// COLLATE is necessary because by the collation of DATABASE() the names shop and Shop are equal.
func (s *Store) inSchema() string {
	schema := s.d.text(s.schema)
	if s.d.foldsNames {
		return "LOWER(DATABASE())=LOWER(" + schema + ") COLLATE utf8mb4_bin"
	}
	return "DATABASE()=" + schema + " COLLATE utf8mb4_bin"
}

const whichSchema = "SELECT {name}, {in schema}"

// wrongSchema returns the error that names the database of tx, if inSchema refused a statement because tx is in another
// database than the log. Otherwise it returns nil.
func (s *Store) wrongSchema(ctx context.Context, tx processlog.Tx) error {
	if s.schema == "" {
		return nil
	}
	rows, err := tx.QueryContext(ctx, s.sql(whichSchema, "name", s.d.texts("COALESCE(DATABASE(),"+s.d.empty+")")))
	if err != nil {
		return nil // The error that the caller has says more.
	}
	defer rows.Close()
	var name string
	var here bool
	if !rows.Next() || rows.Scan(&name, &here) != nil || here {
		return nil
	}
	return sessionError("tx", fmt.Sprintf("is a transaction in database %q, but the log is in %q", name, s.schema))
}

// Begin implements Store. The library sees the end of the transaction in any pool of the user, whether or not the pool
// was opened through a Connector. Transaction.Watch names the exception.
func (s *Store) Begin(ctx context.Context) (processlog.Transaction, error) {
	tx, err := s.beginUsers(ctx)
	if err != nil {
		return nil, err
	}
	ctx, enlistment := txwatch.Ask(ctx)
	enlistment.Ours = true
	_ = s.d.probe(ctx, tx) // A watched connection answers the probe itself.
	return Transaction{tx, enlistment.Tx()}, nil
}

// Transaction is a processlog.Transaction with the watched state of its connection.
type Transaction struct {
	processlog.Transaction
	Watch *txwatch.Tx // nil if something between the library and the connection does not pass contexts on
}

// Probe implements Store.
func (s *Store) Probe(ctx context.Context, tx processlog.Tx) error {
	return finished(s.d.probe(ctx, tx))
}

// finished adds ErrNoTransaction to the error that database/sql returns for a finished transaction.
func finished(err error) error {
	if errors.Is(err, sql.ErrTxDone) && !errors.Is(err, processlog.ErrNoTransaction) {
		return fmt.Errorf("%w: %w", processlog.ErrNoTransaction, err)
	}
	return err
}

// beginOwn starts a READ COMMITTED transaction for the library's own statements.
func (s *Store) beginOwn(ctx context.Context) (processlog.Transaction, error) {
	var tx processlog.Transaction
	var err error
	if s.ownPool != nil {
		tx, err = s.ownPool.BeginTx(ctx, nil) // The sessions of the own pool are READ COMMITTED already, which saves one round trip.
	} else if s.boundsWaits() {
		tx, err = s.beginBounded(ctx)
	} else {
		tx, err = s.beginUsers(ctx)
	}
	if err != nil {
		return nil, err
	}
	return ownTx{ownStatements{tx, s}, tx}, nil
}

// beginUsers begins a transaction in the user's pool. On SQLite it waits first for a turn at the writer, and the end of
// the transaction ends the turn.
func (s *Store) beginUsers(ctx context.Context) (processlog.Transaction, error) {
	release, err := s.awaitTurn(ctx)
	if err != nil {
		return nil, err
	}
	tx, err := s.beginNow(ctx)
	if err != nil {
		release()
		return nil, err
	}
	if s.writer != nil {
		tx = newWriterTx(ctx, tx, release)
	}
	return tx, nil
}

// beginNow begins a transaction in the user's pool, without waiting for a turn at the SQLite writer. A borrowed
// connection may still be inside a transaction that an earlier user left open. Such a connection returns
// driver.ErrBadConn and is thrown away. beginNow tries again with the next connection. The number of tries is limited
// to the number of open connections plus one.
func (s *Store) beginNow(ctx context.Context) (processlog.Transaction, error) {
	tx, err := s.d.begin(ctx, s.users)
	if s.users == s.db || !errors.Is(err, driver.ErrBadConn) {
		return tx, err
	}
	for range s.db.Stats().OpenConnections + 1 {
		if tx, err = s.d.begin(ctx, s.users); !errors.Is(err, driver.ErrBadConn) {
			break
		}
	}
	return tx, err
}

// inOwn runs the function work in the library's own transaction. It commits if the function returns nil, and rolls
// back otherwise.
func (s *Store) inOwn(ctx context.Context, work func(tx processlog.Transaction) error) error {
	return s.dropReadOnly(s.send(ctx, transacting, func() error {
		tx, err := s.beginOwn(ctx)
		if err != nil {
			return err
		}
		if err := work(tx); err != nil {
			_ = tx.Rollback() // The error of work says more.
			return err
		}
		return tx.Commit()
	}))
}

// readLatest runs a read that must not use an old snapshot. A session shows an old snapshot if an earlier user left it
// inside a transaction. In the user's pool readLatest sends one more statement to find that out. It throws such a
// session away and tries the next.
func (s *Store) readLatest(ctx context.Context, read func(readTx processlog.Tx) error) error {
	if s.ownPool != nil || s.d.latest == "" {
		return read(s.pool())
	}
	return s.send(ctx, reading, func() error { return s.readUsersLatest(ctx, read) })
}
