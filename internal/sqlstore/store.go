// Package sqlstore is the process log on MySQL, MariaDB and SQLite: every statement beside the method of the contract
// that it serves, what differs from database to database in a dialect, and the checks by which New finds out whether
// this very server does what the statements rely on.
//
// It is the truth of the library. Each change of an entry is one guarded UPDATE, so that of two writers the database picks
// one (G4); rows are written by primary key and in ascending order, so that producers wait for none of it (G14); now is the
// database's, so that nothing is early (G9).
//
// The root package opens it; the engine calls it through the contract in package processlog, any method from any
// goroutine. It starts no goroutine. It may ask txwatch what became of a transaction, and knows nothing of handlers or
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

// Store is the Store on a SQL database. What MySQL, MariaDB and SQLite do differently is in dialect;
// what all three agree on (placeholders, quoting, byte literals) is not.
//
// In the caller's transaction values travel as placeholders. In our own statements they are written into
// the text, numbers as digits and bytes as hexadecimal literals: that is one round trip where a prepared
// statement costs two, with no quoting rules to get wrong.
type Store struct {
	d     *dialect
	table tableName
	db    *sql.DB // the user's: its sessions are as the user made them
	users *sql.DB // where transactions of ours begin in the user's pool: db itself when it is watched, or what it lends
	own   *sql.DB // our few connections, with our session settings; nil when we must use the user's

	connector *txwatch.Connector // that db was opened on, or nil

	// Check finds these out.
	home         string                    // the database that the table's unqualified name means; empty: not known, or qualified
	isHome       string                    // atHome, which each INSERT asks, written once
	guards       atomic.Pointer[[2]string] // guard, written once: of a transaction that is not proven, and of one that is
	version      string                    // the server's
	maxContent   int                       // what a packet of the server leaves room for; 0: no limit
	bound        time.Duration             // when the server ends any read, in sessions like the user's; 0: never
	notes        []string                  // what a person should know about this server
	opened       atomic.Int64              // connections of own so far
	unanswered   unanswered
	waitsBounded atomic.Pointer[time.Time] // until when; see boundWaits

	refusals purgeRefusals

	writer  *writer       // of SQLite's file; nil elsewhere
	timeout time.Duration // how long to wait for it, as a connection waits for a lock
}

// Open tells the database apart and takes connections of its own where it can.
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
	s := &Store{d: d, table: name, db: db, users: db}
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

// Connections counts those of our own that were opened so far, and those of the user's; 0 where they cannot be told.
func (s *Store) Connections() (own, users int64) {
	if s.own == nil {
		return 0, 0
	}
	return s.opened.Load(), s.connector.Opened.Load()
}

// Connector is what the database was opened on, or nil: then nobody sees the ends of its transactions.
func (s *Store) Connector() *txwatch.Connector { return s.connector }

// ReadsCommitted reports whether a plain read shows committed rows only: the user's sessions may be set otherwise.
func (s *Store) ReadsCommitted() bool { return s.own != nil }

// Version is what the server calls itself, and Notes what a person should know about it. Check has found both out.
func (s *Store) Version() string { return s.version }
func (s *Store) Notes() []string { return s.notes }

// ContentLimit is what a packet of the server leaves room for, in bytes; 0: no limit.
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

// FingerprintBy is that of the log which the handle's statements reach.
func (s *Store) FingerprintBy(ctx context.Context, tx processlog.Tx) (string, error) {
	rows, err := tx.QueryContext(ctx, "SELECT `value` FROM "+s.table.quoted("_meta")+" WHERE `name` = 'fingerprint'"+atMost(1))
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

// atHome is the condition that a statement reaches the log's own database, and not the one of the same table name in
// another. It costs nothing; a server of the same database name is not told apart.
//
// The collation is named, because that of DATABASE() takes shop for Shop.
func (s *Store) atHome() string {
	home := s.d.text(s.home)
	if s.d.foldsNames {
		return "LOWER(DATABASE())=LOWER(" + home + ") COLLATE utf8mb4_bin"
	}
	return "DATABASE()=" + home + " COLLATE utf8mb4_bin"
}

// elsewhere is why a statement was refused by atHome, nil if it was not.
func (s *Store) elsewhere(ctx context.Context, tx processlog.Tx) error {
	if s.home == "" {
		return nil
	}
	rows, err := tx.QueryContext(ctx, "SELECT "+s.d.texts("COALESCE(DATABASE(),"+s.d.empty+")")+", "+s.atHome())
	if err != nil {
		return nil // the error at hand says more
	}
	defer rows.Close()
	var name string
	var here bool
	if !rows.Next() || rows.Scan(&name, &here) != nil || here {
		return nil
	}
	return &processlog.FieldError{Field: "tx", Reason: fmt.Sprintf("is one of database %q, and the log is in %q", name, s.home)}
}

// Begin implements Store. Whatever the user's pool is, the transaction is watched.
func (s *Store) Begin(ctx context.Context) (processlog.Transaction, error) {
	tx, err := s.beginUsers(ctx)
	if err != nil {
		return nil, err
	}
	ctx, enlistment := txwatch.Ask(ctx)
	enlistment.Ours = true
	_ = s.d.probe(ctx, tx) // of a watched connection, which answers by itself
	return Transaction{tx, enlistment.Tx()}, nil
}

// Transaction is a Transaction whose connection tells how it stands.
type Transaction struct {
	processlog.Transaction
	Watch *txwatch.Tx // nil: something between us and the connection keeps contexts from it
}

// Probe implements Store.
func (s *Store) Probe(ctx context.Context, tx processlog.Tx) error {
	return finished(s.d.probe(ctx, tx))
}

// finished names what database/sql says of a handle whose transaction is over.
func finished(err error) error {
	if errors.Is(err, sql.ErrTxDone) && !errors.Is(err, processlog.ErrNoTransaction) {
		return fmt.Errorf("%w: %w", processlog.ErrNoTransaction, err)
	}
	return err
}

// beginOwn starts a READ COMMITTED transaction for our own statements.
func (s *Store) beginOwn(ctx context.Context) (processlog.Transaction, error) {
	var tx processlog.Transaction
	var err error
	if s.own != nil {
		tx, err = s.own.BeginTx(ctx, nil) // The session is READ COMMITTED already: one round trip less.
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

// beginUsers begins in the user's pool. What package sql takes for a new connection is one that is lent, and may have
// been left inside a transaction as those before it: each that is found so is thrown away, and it goes on.
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

// beginNow is beginUsers without a turn.
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

// inOwn runs work in a transaction of ours.
func (s *Store) inOwn(ctx context.Context, work func(tx processlog.Transaction) error) error {
	return s.dropReadOnly(s.send(ctx, transacting, func() error {
		tx, err := s.beginOwn(ctx)
		if err != nil {
			return err
		}
		if err := work(tx); err != nil {
			_ = tx.Rollback() // The work's error says more.
			return err
		}
		return tx.Commit()
	}))
}

// readLatest runs a read that must not be answered out of an old snapshot: that is what a session shows that somebody
// has left inside a transaction, for as long as it is. In the user's pool such a one is thrown away and the next one
// tried, at the price of a statement.
func (s *Store) readLatest(ctx context.Context, read func(from processlog.Tx) error) error {
	if s.own != nil || s.d.latest == "" {
		return read(s.pool())
	}
	return s.send(ctx, reading, func() error { return s.readUsersLatest(ctx, read) })
}

// readUsersLatest is readLatest in the user's pool.
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

// updateRows runs one guarded UPDATE over ids, in ascending order, and returns how many rows changed.
//
// It never waits long for a lock: ids whose rows others hold come back as busy, untouched. Rows that the database refuses to
// write come back in a *RefusedError, and all others are written. On any other error nothing is known.
func (s *Store) updateRows(ctx context.Context, ids []processlog.ID, update func(ids []processlog.ID) string) (changed int64, busy []processlog.ID, err error) {
	write := s.updateAtOnce
	return s.updateApart(ctx, ids, update, func(ctx context.Context, ids []processlog.ID, update func(ids []processlog.ID) string) (int64, []processlog.ID, error) {
		// Only the first statement may wait for a lock. Of the halves of what is refused each would wait for the same row.
		once := write
		write = s.updateFree
		return once(ctx, ids, update)
	})
}

// rowUpdate is one way to run a guarded UPDATE over ids.
type rowUpdate func(ctx context.Context, ids []processlog.ID, update func(ids []processlog.ID) string) (changed int64, busy []processlog.ID, err error)

// updateApart runs an UPDATE by way of write, and keeps rows that the database refuses apart from the others.
func (s *Store) updateApart(ctx context.Context, ids []processlog.ID, update func(ids []processlog.ID) string, write rowUpdate) (changed int64, busy []processlog.ID, err error) {
	slices.SortFunc(ids, processlog.ID.Compare)
	refused, left, err := writeApart(ctx, s, ids, func(ids []processlog.ID) error {
		n, held, err := write(ctx, ids, update)
		changed += n
		busy = append(busy, held...)
		return err
	})
	busy = append(busy, left...) // untouched, and offered again, as those that are locked
	if err == nil && len(refused) > 0 {
		err = asRefused(refused)
	}
	return changed, busy, err
}

// asRefused names the refused rows.
func asRefused(refused []refusal[processlog.ID]) error {
	refusals := make([]processlog.Refusal, len(refused))
	for i, r := range refused {
		refusals[i] = processlog.Refusal{ID: r.item, Err: r.err}
	}
	return &processlog.RefusedError{Refusals: refusals}
}

// updateAtOnce runs an UPDATE without asking first which rows are free, where our own sessions wait only briefly for a lock.
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

// waitedInVain reports whether a statement failed because of a row that somebody holds, or may have: the server, or somebody at
// the server, may have ended its wait, and a client may have given up first. What the statement has asked for may still be done.
// Asked for again, no statement of updateRows does it twice.
func (s *Store) waitedInVain(err error, took time.Duration) bool {
	switch s.d.fault(err) {
	case faultBusy, faultEnded:
		return true
	case faultUnreachable:
		return took > lockedSilence
	}
	return false
}

// lockedSilence is how long an answer must be missing for a broken connection to be taken for a wait for a lock. A client whose
// readTimeout is shorter than our sessions wait gives up before the server does.
const lockedSilence = 100 * time.Millisecond

// updateFreeRows is updateRows for what cannot wait at all: it asks first which rows are free.
func (s *Store) updateFreeRows(ctx context.Context, ids []processlog.ID, update func(ids []processlog.ID) string) (changed int64, busy []processlog.ID, err error) {
	return s.updateApart(ctx, ids, update, s.updateFree)
}

// updateFree locks the rows that are free, and updates them.
func (s *Store) updateFree(ctx context.Context, ids []processlog.ID, update func(ids []processlog.ID) string) (changed int64, busy []processlog.ID, err error) {
	return s.updateFreeAfter(ctx, ids, update, nil)
}

// updateFreeAfter is updateFree after a statement for the same rows has waited in vain; nil: none has. Where all rows are free, a
// trigger has waited, and would wait again: nothing is written then, and waited is returned.
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
		return 0, nil, err // rolled back
	}
	return changed, busy, nil
}

// updateFreeFrom is updateFree, but for its first call: that answers with the wait of an earlier statement for the same rows.
func (s *Store) updateFreeFrom(waited *waitError) rowUpdate {
	return func(ctx context.Context, ids []processlog.ID, update func(ids []processlog.ID) string) (int64, []processlog.ID, error) {
		if first := waited; first != nil {
			waited = nil
			return 0, nil, first
		}
		return s.updateFree(ctx, ids, update)
	}
}

// byID is the table, to be read by id whatever its size: of a small one a server reads all rows, and waits for those
// that others hold.
func (s *Store) byID() string { return s.table.quoted("") + s.d.idIndex }

// lockFree locks those of ids that nobody else holds. A row that does not exist counts as free.
func (s *Store) lockFree(ctx context.Context, tx processlog.Tx, ids []processlog.ID) ([]processlog.ID, error) {
	if s.d.skipLocked == "" {
		return ids, nil // the transaction holds the whole database
	}
	query := func(ids []processlog.ID) string {
		return "SELECT id FROM " + s.byID() + " WHERE id IN (" + idList(ids) + ") ORDER BY id"
	}
	locked, err := readFree(ctx, s, ids, func(ids []processlog.ID, lock string) ([]processlog.ID, error) {
		return queryIDs(ctx, tx, query(ids)+lock)
	})
	if err != nil || len(locked) == len(ids) {
		return locked, err
	}
	present, err := queryIDs(ctx, tx, query(ids))
	if err != nil {
		return nil, err
	}
	missing := without(ids, present)
	free := append(locked, missing...)
	slices.SortFunc(free, processlog.ID.Compare)
	return free, nil
}

// readFree reads by id, and locks, what nobody else holds. read appends the lock to its query.
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
	select { // rivals that split the same rows up at the same time would all find some of them locked, again and again
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

// without returns the ids that are not in drop.
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

// idList writes ids for an IN list.
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
