// Package sqlstore is the process log on MySQL, MariaDB and SQLite. Each statement stands beside the method of the
// contract that it serves. A dialect holds the differences between databases. At New, checks find out whether this very
// server does what the statements rely on.
//
// The process log is the truth of the library:
//
//   - Each change of an entry is one guarded UPDATE. Of two writers the database picks one (G4).
//   - Rows are written by primary key, in ascending order. Producers never wait for such writes (G14).
//   - Now is the database's clock. No entry runs early (G9).
//
// The root package opens a Store. The engine calls it through the contract in package processlog, from any goroutine.
// The package starts no goroutine. It may ask txwatch for the outcome of a transaction. It does not know handlers or
// queues.
package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/internal/jitter"
	"github.com/compensator-go/compensator/internal/mysqlerr"
	"github.com/compensator-go/compensator/internal/txwatch"
	"github.com/compensator-go/compensator/processlog"
)

// Store implements processlog.Store on a SQL database. Everything in which MySQL, MariaDB and SQLite differ is in
// dialect. Everything that all three share (placeholders, quoting, byte literals) is here.
//
// In the caller's transaction, values travel as placeholders. In the library's own statements, values are written into
// the text: numbers as digits, bytes as hexadecimal literals. That takes one round trip, while a prepared statement
// takes two. It also needs no quoting rules.
type Store struct {
	d         *dialect
	table     tableName
	fragments map[string]string // of statements; see fragmentsOf

	db    *sql.DB // the user's pool; its sessions are as the user set them up
	users *sql.DB // begins the library's transactions in the user's pool: db itself if it is watched, otherwise borrowed connections
	own   *sql.DB // the library's few connections, with ownSettings; nil where statements must run in db

	connector *txwatch.Connector // the connector that db was opened on, or nil

	// Check finds out the following fields.
	schema       string                    // the database that the unqualified table name means; empty if unknown, or if the name is qualified
	inSchemaText string                    // the text of inSchema, which each INSERT contains
	guards       atomic.Pointer[[2]string] // the texts of guard: for a transaction that is not proven open, and for one that is
	version      string                    // version of the server
	maxContent   int                       // maximum content in bytes that a packet of the server has room for; 0: no limit
	bound        time.Duration             // time after which the server ends any read in the user's sessions; 0: never
	notes        []string                  // remarks about this server for a person
	opened       atomic.Int64              // number of connections that own has opened
	unanswered   unanswered
	waitsBounded atomic.Pointer[time.Time] // end of the period in which boundsWaits is true; see boundWaits

	refusals purgeRefusals

	writer  *writer       // schedules writers of the SQLite file; nil elsewhere
	timeout time.Duration // maximum wait for the SQLite writer, equal to a connection's wait for a lock
}

// Open finds out the kind of database. It opens a pool of its own where the dialect has one and db was opened on a
// Connector.
func Open(ctx context.Context, db *sql.DB, table string) (*Store, error) {
	d, err := detectDialect(ctx, db)
	if err != nil {
		return nil, err
	}
	name, err := d.table(table)
	if err != nil {
		return nil, err
	}
	d.dueIndex = name.in(d.dueIndex)
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
		s.own = d.own(s.connector, &s.opened)
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

// Connections returns how many connections the library's own pool and the user's pool have opened. Both are 0 without
// an own pool.
func (s *Store) Connections() (own, users int64) {
	if s.own == nil {
		return 0, 0
	}
	return s.opened.Load(), s.connector.Opened.Load()
}

// Connector returns the connector that the database was opened on, or nil. Without a connector the library does not see
// how the user's transactions end.
func (s *Store) Connector() *txwatch.Connector { return s.connector }

// ReadsCommitted reports whether a plain read always shows committed rows only. It is false in the user's pool, whose
// sessions may use another isolation level.
func (s *Store) ReadsCommitted() bool { return s.own != nil }

// Version returns the server's version text. Notes returns remarks about this server for a person. Check sets both.
func (s *Store) Version() string { return s.version }
func (s *Store) Notes() []string { return s.notes }

// ContentLimit returns the maximum content in bytes that a packet of the server has room for. 0 means no limit.
func (s *Store) ContentLimit() int { return s.maxContent }

// Close implements Store.
func (s *Store) Close() error {
	var err error
	if s.own != nil {
		err = s.own.Close()
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
	s.guards.Store(nil)
	problems := s.d.check(ctx, s)
	s.guards.Store(&[2]string{s.guard(false), s.guard(true)})
	return errors.Join(problems...)
}

// Fingerprint implements Store.
func (s *Store) Fingerprint(ctx context.Context) (string, error) {
	return s.FingerprintBy(ctx, s.pool())
}

const readFingerprint = "SELECT `value` FROM {meta} WHERE `name` = 'fingerprint' LIMIT 1"

// FingerprintBy returns the fingerprint of the log that the statements of tx reach.
func (s *Store) FingerprintBy(ctx context.Context, tx processlog.Tx) (string, error) {
	rows, err := tx.QueryContext(ctx, s.sql(readFingerprint))
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

// inSchema returns the condition that a statement reaches the log's own database, and not a table of the same name in
// another database. The condition costs nothing. It cannot tell apart two servers whose databases have the same name.
//
// The collation is named because the collation of DATABASE() takes shop and Shop for the same.
func (s *Store) inSchema() string {
	schema := s.d.text(s.schema)
	if s.d.foldsNames {
		return "LOWER(DATABASE())=LOWER(" + schema + ") COLLATE utf8mb4_bin"
	}
	return "DATABASE()=" + schema + " COLLATE utf8mb4_bin"
}

const whichSchema = "SELECT {name}, {in schema}"

// wrongSchema returns the error that names the other database if inSchema refused a statement. Otherwise it returns nil.
func (s *Store) wrongSchema(ctx context.Context, tx processlog.Tx) error {
	if s.schema == "" {
		return nil
	}
	rows, err := tx.QueryContext(ctx, s.sql(whichSchema, "name", s.d.texts("COALESCE(DATABASE(),"+s.d.empty+")"), "in schema", s.inSchema()))
	if err != nil {
		return nil // The caller's error says more.
	}
	defer rows.Close()
	var name string
	var here bool
	if !rows.Next() || rows.Scan(&name, &here) != nil || here {
		return nil
	}
	return &processlog.FieldError{Field: "tx", Reason: fmt.Sprintf("is a transaction in database %q, but the log is in %q", name, s.schema)}
}

// Begin implements Store. The transaction is watched in every kind of user's pool.
func (s *Store) Begin(ctx context.Context) (processlog.Transaction, error) {
	tx, err := s.beginUsers(ctx)
	if err != nil {
		return nil, err
	}
	ctx, enlistment := txwatch.Ask(ctx)
	enlistment.Ours = true
	_ = s.d.probe(ctx, tx) // A watched connection answers the probe itself, and so enlists the transaction.
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
	if s.own != nil {
		tx, err = s.own.BeginTx(ctx, nil) // The session is READ COMMITTED already, which saves one round trip.
	} else if s.boundsWaits() {
		tx, err = s.beginBounded(ctx)
	} else {
		tx, err = s.beginUsers(ctx)
	}
	if err != nil {
		return nil, err
	}
	return oursTx{ours{tx, s}, tx}, nil
}

// beginUsers begins a transaction in the user's pool. On SQLite it waits first for a turn at the writer, and the end of
// the transaction ends the turn.
func (s *Store) beginUsers(ctx context.Context) (processlog.Transaction, error) {
	release, err := s.turn(ctx)
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

// beginNow is beginUsers without a turn at the writer. A borrowed connection may still be inside a transaction that an
// earlier user left open. It then answers driver.ErrBadConn and is thrown away. beginNow tries again, at most once per
// open connection and once more.
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

// inOwn runs work in a transaction of the library's own. It commits if work returns nil, and rolls back otherwise.
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

// readLatest runs a read that must not be answered from an old snapshot. A session shows an old snapshot if an earlier
// user left it inside a transaction. In the user's pool readLatest sends one more statement to find that out. It throws
// such a session away and tries the next.
func (s *Store) readLatest(ctx context.Context, read func(from processlog.Tx) error) error {
	if s.own != nil || s.d.latest == "" {
		return read(s.pool())
	}
	return s.send(ctx, reading, func() error { return s.readUsersLatest(ctx, read) })
}

// readUsersLatest implements readLatest in the user's pool.
func (s *Store) readUsersLatest(ctx context.Context, read func(from processlog.Tx) error) error {
	var err error
	for range s.db.Stats().OpenConnections + 1 {
		var conn *sql.Conn
		if conn, err = s.users.Conn(ctx); err != nil {
			return err
		}
		if _, err = conn.ExecContext(ctx, s.d.latest); !mysqlerr.IsInsideTransaction(err) && !errors.Is(err, driver.ErrBadConn) {
			defer conn.Close()
			if err != nil {
				return err
			}
			return read(ours{conn, s})
		}
		txwatch.ThrowAway(ctx, conn, err)
	}
	return err
}

// updateRows runs one guarded UPDATE over ids, in ascending order. It returns how many rows changed.
//
//   - It never waits long for a lock. Ids whose rows are locked come back in busy, and their rows are unchanged.
//   - Rows that the database refuses to write come back in a *RefusedError. All other rows are written.
//   - After any other error it is unknown which rows changed.
func (s *Store) updateRows(ctx context.Context, ids []processlog.ID, update func(ids []processlog.ID) string) (changed int64, busy []processlog.ID, err error) {
	write := s.updateAtOnce
	return s.updateApart(ctx, ids, update, func(ctx context.Context, ids []processlog.ID, update func(ids []processlog.ID) string) (int64, []processlog.ID, error) {
		// Only the first statement may wait for a lock. After a refusal, each half would wait for the same locked row
		// again.
		once := write
		write = s.updateFree
		return once(ctx, ids, update)
	})
}

// rowUpdate runs a guarded UPDATE over ids in one of several ways.
type rowUpdate func(ctx context.Context, ids []processlog.ID, update func(ids []processlog.ID) string) (changed int64, busy []processlog.ID, err error)

// updateApart runs an UPDATE through write. It separates rows that the database refuses from the others.
func (s *Store) updateApart(ctx context.Context, ids []processlog.ID, update func(ids []processlog.ID) string, write rowUpdate) (changed int64, busy []processlog.ID, err error) {
	slices.SortFunc(ids, processlog.ID.Compare)
	refused, left, err := writeApart(ctx, s, ids, func(ids []processlog.ID) error {
		n, held, err := write(ctx, ids, update)
		changed += n
		busy = append(busy, held...)
		return err
	})
	busy = append(busy, left...) // The rows in left are unchanged. The caller offers them again later, as it does with locked rows.
	if err == nil && len(refused) > 0 {
		err = asRefused(refused)
	}
	return changed, busy, err
}

// asRefused returns the refused rows as a *RefusedError.
func asRefused(refused []refusal[processlog.ID]) error {
	refusals := make([]processlog.Refusal, len(refused))
	for i, r := range refused {
		refusals[i] = processlog.Refusal{ID: r.item, Err: r.err}
	}
	return &processlog.RefusedError{Refusals: refusals}
}

// updateAtOnce runs an UPDATE without first asking which rows are free. It does so only in the library's own sessions,
// which wait briefly for a lock. After a wait in vain it goes on with updateFreeAfter.
func (s *Store) updateAtOnce(ctx context.Context, ids []processlog.ID, update func(ids []processlog.ID) string) (changed int64, busy []processlog.ID, err error) {
	if s.own == nil || s.d.halves {
		return s.updateFree(ctx, ids, update)
	}
	began := time.Now()
	changed, err = execCount(ctx, s.pool(), update(ids))
	if ctx.Err() == nil && s.waitedInVain(err, time.Since(began)) {
		return s.updateFreeAfter(ctx, ids, update, waitIn(s.asWait(ctx, err, began)))
	}
	return changed, nil, s.dropReadOnly(err)
}

// waitedInVain reports whether a statement failed, or may have failed, because its row is locked. The server may have
// ended the wait. An administrator may have ended the statement. The client may have given up first, and then the
// statement may still take effect. That is harmless: a repeated statement of updateRows changes nothing twice.
func (s *Store) waitedInVain(err error, took time.Duration) bool {
	switch s.d.fault(err) {
	case faultBusy, faultEnded:
		return true
	case faultUnreachable:
		return took > lockedSilence
	}
	return false
}

// lockedSilence separates a broken connection from a wait for a lock. If a connection breaks after a longer silence
// than this, the statement probably waited for a lock. A client with a short readTimeout gives up before the server
// does.
const lockedSilence = 100 * time.Millisecond

// updateFreeRows is updateRows for statements that must not wait at all. It asks first which rows are free.
func (s *Store) updateFreeRows(ctx context.Context, ids []processlog.ID, update func(ids []processlog.ID) string) (changed int64, busy []processlog.ID, err error) {
	return s.updateApart(ctx, ids, update, s.updateFree)
}

// updateFree locks the rows that are free, and updates them in the same transaction.
func (s *Store) updateFree(ctx context.Context, ids []processlog.ID, update func(ids []processlog.ID) string) (changed int64, busy []processlog.ID, err error) {
	return s.updateFreeAfter(ctx, ids, update, nil)
}

// updateFreeAfter is updateFree after an earlier statement for the same rows waited in vain. waited is nil if no
// statement waited. If waited is set and all rows are free, a trigger caused the wait and would wait again.
// updateFreeAfter then writes nothing and returns waited.
func (s *Store) updateFreeAfter(ctx context.Context, ids []processlog.ID, update func(ids []processlog.ID) string, waited *waitError) (changed int64, busy []processlog.ID, err error) {
	err = s.inOwn(ctx, func(tx processlog.Transaction) error {
		free, err := s.lockFree(ctx, tx, ids)
		if busy = without(ids, free); err != nil || len(free) == 0 {
			return err
		}
		if waited != nil && len(busy) == 0 {
			return waited
		}
		changed, err = s.writeHeld(ctx, tx, update(free))
		return err
	})
	if err != nil {
		return 0, nil, err // The transaction was rolled back, so no row changed.
	}
	return changed, busy, nil
}

// updateFreeFrom returns updateFree, except that the first call sends no statement. The first call returns the wait of
// an earlier statement for the same rows.
func (s *Store) updateFreeFrom(waited *waitError) rowUpdate {
	return func(ctx context.Context, ids []processlog.ID, update func(ids []processlog.ID) string) (int64, []processlog.ID, error) {
		if first := waited; first != nil {
			waited = nil
			return 0, nil, first
		}
		return s.updateFree(ctx, ids, update)
	}
}

const (
	lockRows    = "SELECT id FROM {log}{by id} WHERE id IN ({ids}) ORDER BY id{lock}"
	presentRows = "SELECT id FROM {log}{by id} WHERE id IN ({ids}) ORDER BY id"
)

// lockFree locks those rows of ids that no other transaction has locked, and returns their ids. A row that does not
// exist counts as free.
func (s *Store) lockFree(ctx context.Context, tx processlog.Tx, ids []processlog.ID) ([]processlog.ID, error) {
	if s.d.skipLocked == "" {
		return ids, nil // The transaction holds the lock on the whole database.
	}
	locked, err := readFree(ctx, s, ids, func(ids []processlog.ID, lock string) ([]processlog.ID, error) {
		return queryIDs(ctx, tx, s.sql(lockRows, "ids", idList(ids), "lock", lock))
	})
	if err != nil || len(locked) == len(ids) {
		return locked, err
	}
	present, err := queryIDs(ctx, tx, s.sql(presentRows, "ids", idList(ids)))
	if err != nil {
		return nil, err
	}
	missing := without(ids, present)
	free := append(locked, missing...)
	slices.SortFunc(free, processlog.ID.Compare)
	return free, nil
}

// readFree reads and locks those rows of ids that no other transaction has locked. read must append lock to its query.
// Where the server has no SKIP LOCKED, readFree tries with NOWAIT and halves the ids after each failure.
func readFree[T any](ctx context.Context, s *Store, ids []processlog.ID, read func(ids []processlog.ID, lock string) ([]T, error)) ([]T, error) {
	if !s.d.halves {
		return read(ids, s.d.skipLocked)
	}
	rows, err := read(ids, s.d.lockNow)
	if s.d.fault(err) != faultBusy {
		return rows, err
	}
	if len(ids) == 1 {
		return nil, nil
	}
	select { // Wait a random time. Without it, rivals that halve the same rows at the same time would keep finding each other's locks.
	case <-time.After(jitter.N(4 * time.Millisecond)):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	rows, err = readFree(ctx, s, ids[:len(ids)/2], read)
	if err != nil {
		return nil, err
	}
	rest, err := readFree(ctx, s, ids[len(ids)/2:], read)
	return append(rows, rest...), err
}

// without returns those ids that are not in drop.
func without(ids, drop []processlog.ID) []processlog.ID {
	dropped := make(map[processlog.ID]bool, len(drop))
	for _, id := range drop {
		dropped[id] = true
	}
	var rest []processlog.ID
	for _, id := range ids {
		if !dropped[id] {
			rest = append(rest, id)
		}
	}
	return rest
}

func execCount(ctx context.Context, tx processlog.Tx, query string) (int64, error) {
	res, err := tx.ExecContext(ctx, query)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func queryIDs(ctx context.Context, tx processlog.Tx, query string) ([]processlog.ID, error) {
	rows, err := tx.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var ids []processlog.ID
	for rows.Next() {
		var id uint64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, processlog.RowID(id))
	}
	return ids, rows.Err()
}

// idList writes ids as the elements of an IN list.
func idList(ids []processlog.ID) string {
	b := make([]byte, 0, len(ids)*12)
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, id.Row(), 10)
	}
	return string(b)
}

func hexLiteral(b []byte) string { return "X'" + hex.EncodeToString(b) + "'" }
