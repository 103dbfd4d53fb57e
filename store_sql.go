package compensator

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// sqlStore is the Store on a SQL database. What MySQL, MariaDB and SQLite do differently is in dialect.
//
// In the caller's transaction values travel as placeholders. In our own statements they are written into
// the text, numbers as digits and bytes as hexadecimal literals: that is one round trip where a prepared
// statement costs two, with no quoting rules to get wrong.
type sqlStore struct {
	d     *dialect
	table tableName
	db    *sql.DB // the user's: its sessions are as the user made them
	own   *sql.DB // our few connections, with our session settings; nil when we must use the user's

	maxContent int // what a packet of the server leaves room for; 0: no limit. Check finds it out
}

// dialect is what one kind of database needs to be told differently.
type dialect struct {
	name       string
	migrations fs.FS

	now        string                     // ms since 1970 by the database's clock
	stamp      string                     // the value for created_at and updated_at
	stampMS    func(column string) string // reads such a column as ms
	stampAt    func(ms int64) string      // the literal for ms
	text       func(utf8 []byte) string   // a text literal
	greatest   string                     // function: the larger of two
	dueIndex   string                     // hint: read the table by its due index
	skipLocked string                     // suffix: lock the rows read, leave out those that are locked
	lock       string                     // suffix: lock the rows read, wait for them
	lockNow    string                     // suffix: lock the rows read, or fail at once
	share      string                     // suffix: read the latest committed rows, wait for those in flight
	guardedKey string                     // the placeholder of a row's idempotent id that fails outside a transaction
	settleOpen string                     // condition that fails outside a transaction
	returning  bool                       // INSERT … RETURNING
	qualified  bool                       // the table may be named database.table
	unseenEnd  bool                       // a failed statement may end the transaction, and no watcher of the connection can tell

	groups func(from string, states []State) string // the states and types that occur, without reading every row

	probe func(ctx context.Context, tx Tx) error                     // ErrNoTransaction unless open
	begin func(ctx context.Context, db *sql.DB) (Transaction, error) // READ COMMITTED, in the user's pool
	check func(ctx context.Context, s *sqlStore) []error             // every reason not to run here
	fault func(err error) fault                                      // what an error means
}

// fault classifies an error of the database by what it means for a statement of ours.
type fault int

const (
	faultOther       fault = iota
	faultDuplicate         // a unique key exists
	faultBusy              // a lock was not to be had in time; the statement did nothing
	faultAborted           // the server rolled the whole transaction back
	faultOutsideTx         // guardedKey refused: no transaction is open
	faultUnreachable       // the connection broke: nothing is known
)

// OpenStore makes the Store that New makes of Config.DB and Config.Table: for whoever wraps it and gives it to
// New as Config.Store, or has compensatortest.TestStore try another database. It does not Check; Close it.
func OpenStore(ctx context.Context, db *sql.DB, table string) (Store, error) {
	s, err := newSQLStore(ctx, db, table)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// newSQLStore tells the database apart and takes connections of its own where it can.
func newSQLStore(ctx context.Context, db *sql.DB, table string) (*sqlStore, error) {
	d, err := detectDialect(ctx, db)
	if err != nil {
		return nil, err
	}
	name, err := parseTable(table)
	if err != nil {
		return nil, err
	}
	if name.database != "" && !d.qualified {
		return nil, &FieldError{Field: "Table", Reason: "this database has no qualified table names"}
	}
	d.dueIndex = name.in(d.dueIndex)
	s := &sqlStore{d: d, table: name, db: db}
	if inner, ok := watched(db); ok && d.skipLocked != "" {
		s.own = openOwn(inner)
	}
	return s, nil
}

func detectDialect(ctx context.Context, db *sql.DB) (*dialect, error) {
	var version string
	mysqlErr := db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version)
	if mysqlErr == nil {
		return mysqlDialect(version), nil
	}
	if err := db.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version); err == nil {
		return sqliteDialect(), nil
	}
	return nil, fmt.Errorf("compensator: ask the database for its version: %w", mysqlErr)
}

func dialectNamed(name string) *dialect {
	switch name {
	case "mysql":
		return mysqlDialect("")
	case "sqlite":
		return sqliteDialect()
	}
	return nil
}

// tableName is a validated, possibly qualified table name.
type tableName struct{ database, base string }

var tablePart = regexp.MustCompile(`^[A-Za-z0-9_$]{1,58}$`) // 64, less the longest suffix of ours

func parseTable(s string) (tableName, error) {
	database, base, found := strings.Cut(s, ".")
	if !found {
		database, base = "", s
	}
	if !tablePart.MatchString(base) || (found && !tablePart.MatchString(database)) {
		return tableName{}, &FieldError{Field: "Table", Reason: fmt.Sprintf("%q: want letters, digits, _ or $, at most 58, optionally database.table", s)}
	}
	return tableName{database, base}, nil
}

// quoted returns the table's name, with suffix, as SQL wants it.
func (t tableName) quoted(suffix string) string {
	if t.database == "" {
		return "`" + t.base + suffix + "`"
	}
	return "`" + t.database + "`.`" + t.base + suffix + "`"
}

// in replaces the default name in a migration file.
func (t tableName) in(text string) string {
	return strings.ReplaceAll(text, "`"+DefaultTable, strings.TrimSuffix(t.quoted(""), "`"))
}

// pool is where our own statements run.
func (s *sqlStore) pool() *sql.DB {
	if s.own != nil {
		return s.own
	}
	return s.db
}

// Close implements Store.
func (s *sqlStore) Close() error {
	if s.own != nil {
		return s.own.Close()
	}
	return nil
}

// Check implements Store.
func (s *sqlStore) Check(ctx context.Context) error { return errors.Join(s.d.check(ctx, s)...) }

// Fingerprint implements Store.
func (s *sqlStore) Fingerprint(ctx context.Context) (string, error) {
	var fingerprint string
	query := "SELECT `value` FROM " + s.table.quoted("_meta") + " WHERE `name` = 'fingerprint'"
	if err := s.pool().QueryRowContext(ctx, query).Scan(&fingerprint); err != nil {
		return "", fmt.Errorf("compensator: read the log's fingerprint: %w", err)
	}
	return fingerprint, nil
}

// Begin implements Store.
func (s *sqlStore) Begin(ctx context.Context) (Transaction, error) { return s.d.begin(ctx, s.db) }

// Probe implements Store.
func (s *sqlStore) Probe(ctx context.Context, tx Tx) error { return finished(s.d.probe(ctx, tx)) }

// finished names what database/sql says of a handle whose transaction is over.
func finished(err error) error {
	if errors.Is(err, sql.ErrTxDone) && !errors.Is(err, ErrNoTransaction) {
		return fmt.Errorf("%w: %w", ErrNoTransaction, err)
	}
	return err
}

// beginOwn starts a READ COMMITTED transaction for our own statements.
func (s *sqlStore) beginOwn(ctx context.Context) (Transaction, error) {
	if s.own != nil {
		return s.own.BeginTx(ctx, nil) // the session is READ COMMITTED already: one round trip less
	}
	return s.d.begin(ctx, s.db)
}

// inOwn runs work in a transaction of ours.
func (s *sqlStore) inOwn(ctx context.Context, work func(tx Transaction) error) error {
	tx, err := s.beginOwn(ctx)
	if err != nil {
		return err
	}
	if err := work(tx); err != nil {
		_ = tx.Rollback() // the work's error says more
		return err
	}
	return tx.Commit()
}

// updateRows runs one guarded UPDATE over ids, in ascending order, and returns how many rows changed. It
// never waits long for a lock: ids whose rows are locked by others come back as busy, untouched.
func (s *sqlStore) updateRows(ctx context.Context, ids []EntryID, update func(ids []EntryID) string) (changed int64, busy []EntryID, err error) {
	slices.SortFunc(ids, compareIDs)
	if s.own != nil {
		changed, err = execCount(ctx, s.own, update(ids))
		if s.d.fault(err) != faultBusy {
			return changed, nil, err
		}
	}
	return s.updateFreeRows(ctx, ids, update)
}

// updateFreeRows is updateRows for what cannot wait at all: it asks first which rows are free.
func (s *sqlStore) updateFreeRows(ctx context.Context, ids []EntryID, update func(ids []EntryID) string) (changed int64, busy []EntryID, err error) {
	slices.SortFunc(ids, compareIDs)
	err = s.inOwn(ctx, func(tx Transaction) error {
		free, err := s.lockFree(ctx, tx, ids)
		if err != nil || len(free) == 0 {
			changed, busy = 0, without(ids, free)
			return err
		}
		busy = without(ids, free)
		changed, err = execCount(ctx, tx, update(free))
		return err
	})
	return changed, busy, err
}

// lockFree locks those of ids that nobody else holds. A row that does not exist counts as free.
func (s *sqlStore) lockFree(ctx context.Context, tx Tx, ids []EntryID) ([]EntryID, error) {
	if s.d.skipLocked == "" {
		return ids, nil // the transaction holds the whole database
	}
	query := "SELECT id FROM " + s.table.quoted("") + " WHERE id IN (" + idList(ids) + ") ORDER BY id"
	locked, err := queryIDs(ctx, tx, query+s.d.skipLocked)
	if err != nil || len(locked) == len(ids) {
		return locked, err
	}
	present, err := queryIDs(ctx, tx, query)
	if err != nil {
		return nil, err
	}
	missing := without(ids, present)
	free := append(locked, missing...)
	slices.SortFunc(free, compareIDs)
	return free, nil
}

func compareIDs(a, b EntryID) int {
	switch {
	case a.row < b.row:
		return -1
	case a.row > b.row:
		return 1
	}
	return 0
}

// without returns the ids that are not in drop.
func without(ids, drop []EntryID) []EntryID {
	dropped := make(map[EntryID]bool, len(drop))
	for _, id := range drop {
		dropped[id] = true
	}
	var rest []EntryID
	for _, id := range ids {
		if !dropped[id] {
			rest = append(rest, id)
		}
	}
	return rest
}

func execCount(ctx context.Context, tx Tx, query string) (int64, error) {
	res, err := tx.ExecContext(ctx, query)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func queryIDs(ctx context.Context, tx Tx, query string, args ...any) ([]EntryID, error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var ids []EntryID
	for rows.Next() {
		var id EntryID
		if err := rows.Scan(&id.row); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// idList writes ids for an IN list.
func idList(ids []EntryID) string {
	b := make([]byte, 0, len(ids)*12)
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, id.row, 10)
	}
	return string(b)
}

// millis rounds a remaining time up to what the table stores, so that nothing is early.
func millis(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d > time.Duration(ms)*time.Millisecond {
		ms++
	}
	return ms
}

// dueAfter is millis for a due moment computed as now + d by the database: its now is cut to milliseconds,
// which would make a delay up to one short.
func dueAfter(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return millis(d) + 1
}

// dueIn is dueAfter for the queue: asked any sooner, the database would say "not yet".
func dueIn(d time.Duration) time.Duration { return time.Duration(dueAfter(d)) * time.Millisecond }

func hexLiteral(b []byte) string { return "X'" + hex.EncodeToString(b) + "'" }

// columns lists what scanRow reads.
func (s *sqlStore) columns() string {
	return "id, idempotent_id, business_type, batch_id, business_id, business_ext_id, user_id, user_name, content, headers, " +
		"state, process_count, max_process_count, compensate_count, delivery_count, version, epoch, next_at, ended_by, last_error, " +
		s.d.stampMS("created_at") + ", " + s.d.stampMS("updated_at") + ", token, next_at - " + s.d.now + ", lease_until - " + s.d.now
}

func (s *sqlStore) selectRows(where string) string {
	return "SELECT " + s.columns() + " FROM " + s.table.quoted("") + " WHERE " + where
}

// queryRows reads rows; ids by another order than asked for are the caller's to match.
func (s *sqlStore) queryRows(ctx context.Context, tx Tx, query string, args ...any) ([]Row, error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found []Row
	for rows.Next() {
		row, err := scanRow(rows)
		if err != nil {
			return nil, err
		}
		found = append(found, row)
	}
	return found, rows.Err()
}

func scanRow(rows *sql.Rows) (Row, error) {
	var (
		r                                      Row
		headers, token                         []byte
		next, created, updated, dueIn, leaseIn int64
	)
	err := rows.Scan(&r.ID.row, &r.IdempotentID, &r.BusinessType, &r.BatchID, &r.BusinessID, &r.BusinessExtID, &r.UserID, &r.UserName,
		&r.Content, &headers, &r.State, &r.ProcessCount, &r.MaxProcessCount, &r.CompensateCount, &r.DeliveryCount, &r.Version, &r.Epoch,
		&next, &r.EndedBy, &r.LastError, &created, &updated, &token, &dueIn, &leaseIn)
	if err != nil {
		return r, err
	}
	if len(headers) > 0 {
		_ = json.Unmarshal(headers, &r.Headers) // written by us; a row somebody edited must still run
	}
	copy(r.Token[:], token)
	r.NextAt, r.CreatedAt, r.UpdatedAt = unixMilli(next), unixMilli(created), unixMilli(updated)
	r.DueIn, r.LeaseLeft = time.Duration(dueIn)*time.Millisecond, time.Duration(leaseIn)*time.Millisecond
	return r, nil
}

func unixMilli(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// IDs implements Store.
func (s *sqlStore) IDs(ctx context.Context, tx Tx, keys []string) (map[string]EntryID, error) {
	if tx == nil {
		tx = s.pool()
	}
	found := make(map[string]EntryID, len(keys))
	for chunk := range slices.Chunk(keys, maxStatementRows) {
		rows, err := tx.QueryContext(ctx, "SELECT id, idempotent_id FROM "+s.table.quoted("")+" WHERE idempotent_id IN ("+placeholders(len(chunk))+")", anySlice(chunk)...)
		if err != nil {
			return nil, fmt.Errorf("compensator: find entries by idempotent id: %w", err)
		}
		if err := scanIDs(rows, found); err != nil {
			return nil, fmt.Errorf("compensator: find entries by idempotent id: %w", err)
		}
	}
	return found, nil
}

// scanIDs reads (id, idempotent id) pairs and closes rows.
func scanIDs(rows *sql.Rows, into map[string]EntryID) error {
	defer rows.Close()
	for rows.Next() {
		var id EntryID
		var key string
		if err := rows.Scan(&id.row, &key); err != nil {
			return err
		}
		into[key] = id
	}
	return rows.Err()
}

func placeholders(n int) string { return strings.TrimSuffix(strings.Repeat("?,", n), ",") }

func anySlice[T any](values []T) []any {
	args := make([]any, len(values))
	for i, v := range values {
		args[i] = v
	}
	return args
}

// Load implements Store.
func (s *sqlStore) Load(ctx context.Context, ids []EntryID) ([]Row, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := s.queryRows(ctx, s.pool(), s.selectRows("id IN ("+idList(ids)+")"))
	if err != nil {
		return nil, fmt.Errorf("compensator: load %d entries: %w", len(ids), err)
	}
	return rows, nil
}

// Resolve implements Store. It locks the very row that a transaction in flight has inserted.
func (s *sqlStore) Resolve(ctx context.Context, ref Ref) (Row, error) {
	var row Row
	err := s.untilFree(ctx, resolveTimeout, func(tx Transaction) error {
		var err error
		row, err = s.find(ctx, tx, ref, s.d.lockNow)
		return err
	})
	if errors.Is(err, ErrBusy) {
		err = fmt.Errorf("resolve %v: %w", ref, err)
	}
	return row, err
}

// resolveTimeout is how long Resolve waits for a transaction in flight.
const resolveTimeout = 10 * time.Second

// find reads the one row ref names, under the given lock.
func (s *sqlStore) find(ctx context.Context, tx Tx, ref Ref, lock string) (Row, error) {
	where, arg := "id = ?", any(nil)
	switch ref := ref.(type) {
	case EntryID:
		arg = ref.row
	case IdempotentID:
		where, arg = "idempotent_id = ?", string(ref)
	default:
		return Row{}, &FieldError{Field: "ref", Reason: "want an EntryID or an IdempotentID"}
	}
	rows, err := s.queryRows(ctx, tx, s.selectRows(where)+lock, arg)
	switch {
	case err != nil:
		return Row{}, err
	case len(rows) == 0:
		return Row{}, fmt.Errorf("%v: %w", ref, ErrNotFound)
	}
	return rows[0], nil
}

// sameContent compares what a draft would have stored with what is stored.
func sameContent(row Row, d Draft) bool {
	return row.BusinessType == d.BusinessType && bytes.Equal(row.Content, d.Content)
}
