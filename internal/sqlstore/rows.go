package sqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

const recordedTexts = "idempotent_id, business_type, batch_id, business_id, business_ext_id, user_id, user_name"

// columns lists what a rowScanner reads. SQL does not compute with the values, because one bad value of other software
// would fail the statement for all rows.
func (d *dialect) columns(content string) string {
	return "id, " + d.texts(recordedTexts) + ", " + content + ", headers, " +
		d.numbers("state, process_count, max_process_count, compensate_count, delivery_count, version, epoch, next_at") + ", " + d.texts("ended_by, last_error") + ", " +
		d.stampMS("created_at") + ", " + d.stampMS("updated_at") + ", token, " + d.numbers("lease_until") + ", " + d.now
}

// queryRows allocates memory for n rows in advance, and returns all rows of the query.
func (s *Store) queryRows(ctx context.Context, tx processlog.Tx, n int, query string, args ...any) ([]processlog.Row, error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	found := make([]processlog.Row, 0, n)
	scan := newRowScanner()
	for rows.Next() {
		row, err := scan.row(rows)
		if err != nil {
			return nil, err
		}
		found = append(found, row)
	}
	return found, rows.Err()
}

func (s *Store) read(ctx context.Context, query string) (*sql.Rows, error) {
	return s.readIn(ctx, nil, query)
}

func (s *Store) readIn(ctx context.Context, tx processlog.Tx, query string) (*sql.Rows, error) {
	if tx == nil {
		tx = s.pool()
	}
	return tx.QueryContext(ctx, s.withTimeLimit(ctx, query))
}

// withTimeLimit makes the server end a SELECT within a second after the deadline of ctx, because a driver only closes its
// connection. It leaves a stricter limit of the session alone.
func (s *Store) withTimeLimit(ctx context.Context, query string) string {
	deadline, bounded := ctx.Deadline()
	untilDeadline := time.Until(deadline)
	if !bounded || untilDeadline > time.Hour || s.d.ended == nil {
		return query
	}
	seconds := max(1, int(math.Ceil(untilDeadline.Seconds())))
	if s.selectLimit > 0 && s.selectLimit <= time.Duration(seconds)*time.Second {
		return query
	}
	return s.d.ended(seconds, query)
}

// rowScanner reads all rows into the same variables, so that database/sql allocates once per query. Numbers have 64 bits,
// because database/sql formats and parses every other size.
type rowScanner struct {
	processlog.Row
	id                                                            uint64
	headers, token                                                sql.RawBytes
	state, processCount, maxAttempts, compensateCount, deliveries int64
	epoch                                                         int64
	nextAt, created, updated, leased, readAt                      int64
	destinations                                                  []any
}

func newRowScanner() *rowScanner {
	v := new(rowScanner)
	v.destinations = []any{&v.id, (*string)(&v.IdempotencyKey), &v.BusinessType, &v.BatchID, &v.BusinessID, &v.BusinessExtID, &v.UserID, &v.UserName,
		&v.Content, &v.headers, &v.state, &v.processCount, &v.maxAttempts, &v.compensateCount, &v.deliveries, &v.Version, &v.epoch,
		&v.nextAt, &v.EndedBy, &v.LastError, &v.created, &v.updated, &v.token, &v.leased, &v.readAt}
	return v
}

func (v *rowScanner) row(rows *sql.Rows) (processlog.Row, error) {
	if err := rows.Scan(v.destinations...); err != nil {
		return processlog.Row{}, err
	}
	v.ID, v.Headers, v.Erased = processlog.RowID(v.id), nil, string(v.headers) == erasedMark
	if len(v.headers) > 0 {
		_ = json.Unmarshal(v.headers, &v.Headers) // The library writes valid JSON. A person may have broken it.
	}
	v.EndedBy = processlog.EndedBy(strings.TrimRight(string(v.EndedBy), " ")) // PAD_CHAR_TO_FULL_LENGTH reads a CHAR with its spaces.
	v.Token = processlog.Token{}
	copy(v.Token[:], v.token)
	v.State, v.Epoch = processlog.State(v.state), uint32(v.epoch)
	v.ProcessCount, v.MaxAttempts, v.CompensateCount, v.DeliveryCount = int(v.processCount), int(v.maxAttempts), int(v.compensateCount), int(v.deliveries)
	v.NextAt, v.CreatedAt, v.UpdatedAt = unixMilli(v.nextAt), unixMilli(v.created), unixMilli(v.updated)
	v.DueIn, v.LeaseLeft = remaining(v.nextAt, v.readAt), remaining(v.leased, v.readAt)
	return v.Row, nil
}

// remaining returns at - now. Both arguments are in ms. A column may hold a number that does not fit a time.Duration.
// So the result is at most 200 years in either direction.
func remaining(at, now int64) time.Duration {
	const most = 2 * int64(processlog.MaxDelay/time.Millisecond)
	return time.Duration(min(max(at, now-most), now+most)-now) * time.Millisecond
}

// unixMilli is limited to the years 1 to 9999, so that the time can be formatted.
func unixMilli(ms int64) time.Time {
	return time.UnixMilli(min(max(ms, -62_135_596_800_000), 253_402_300_799_999)).UTC()
}

const idsOfKeys = "SELECT id, {text idempotent_id} FROM {log} WHERE idempotent_id IN ({keys}) LIMIT {limit}"

// IDs implements Store.
func (s *Store) IDs(ctx context.Context, tx processlog.Tx, keys []processlog.IdempotencyKey) (map[processlog.IdempotencyKey]processlog.ID, error) {
	if tx == nil {
		tx = s.pool()
	}
	found := make(map[processlog.IdempotencyKey]processlog.ID, len(keys))
	for chunk := range slices.Chunk(keys, processlog.MaxRows) {
		in, args := s.d.params(chunk)
		rows, err := tx.QueryContext(ctx, s.placeholders(s.sql(idsOfKeys, "keys", in, "limit", strconv.Itoa(len(chunk)))), args...)
		if err != nil {
			return nil, fmt.Errorf("compensator: find entries by idempotency key: %w", finished(err))
		}
		if err := scanIDs(rows, found); err != nil {
			return nil, fmt.Errorf("compensator: find entries by idempotency key: %w", err)
		}
	}
	return found, nil
}

func scanIDs(rows *sql.Rows, into map[processlog.IdempotencyKey]processlog.ID) error {
	defer rows.Close()
	var id uint64
	var key string
	for rows.Next() {
		if err := rows.Scan(&id, &key); err != nil {
			return err
		}
		into[processlog.IdempotencyKey(key)] = processlog.RowID(id)
	}
	return rows.Err()
}

func byRow[T comparable](column string, ids []processlog.ID, value func(i int) T, literal func(T) string) string {
	first, alike := value(0), true
	for i := 1; i < len(ids) && alike; i++ {
		alike = value(i) == first
	}
	if alike {
		return literal(first)
	}
	var b strings.Builder
	b.WriteString("CASE " + column)
	for i, id := range ids {
		b.WriteString(" WHEN " + id.String() + " THEN " + literal(value(i)))
	}
	return b.String() + " END"
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }

func signed(n int64) string { return strconv.FormatInt(n, 10) }

func asIs(expression string) string { return expression }

const loadRows = "SELECT {columns} FROM {log} WHERE id IN ({ids})"

// Load implements Store.
func (s *Store) Load(ctx context.Context, ids []processlog.ID) ([]processlog.Row, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := s.queryRows(ctx, s.pool(), len(ids), s.sql(loadRows, "ids", idList(ids)))
	if err != nil {
		return nil, fmt.Errorf("compensator: load %d entries: %w", len(ids), err)
	}
	return rows, nil
}

const readVersions = "SELECT id, {text idempotent_id}, {number state, version, epoch}, token FROM {log} WHERE id IN ({ids})"

// Versions implements Store.
func (s *Store) Versions(ctx context.Context, ids []processlog.ID) ([]processlog.Version, error) {
	found := make([]processlog.Version, 0, len(ids))
	for chunk := range slices.Chunk(ids, processlog.MaxRows) {
		err := s.readLatest(ctx, func(readTx processlog.Tx) error {
			rows, err := readTx.QueryContext(ctx, s.sql(readVersions, "ids", idList(chunk)))
			if err == nil {
				found, err = scanVersions(rows, found)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("compensator: read the versions of %d entries: %w", len(ids), err)
		}
	}
	return found, nil
}

func scanVersions(rows *sql.Rows, found []processlog.Version) ([]processlog.Version, error) {
	defer rows.Close()
	for rows.Next() {
		var v processlog.Version
		var id uint64
		var token sql.RawBytes
		if err := rows.Scan(&id, (*string)(&v.IdempotencyKey), &v.State, &v.Number, &v.Epoch, &token); err != nil {
			return nil, err
		}
		v.ID = processlog.RowID(id)
		copy(v.Token[:], token)
		found = append(found, v)
	}
	return found, rows.Err()
}

// Resolve implements Store. If an open transaction has inserted the row, Resolve waits for the end of this transaction,
// for at most resolveTimeout. Resolve reads with a shared lock, because a server under a global read lock grants no
// other lock.
func (s *Store) Resolve(ctx context.Context, ref processlog.Ref) (processlog.Row, error) {
	var row processlog.Row
	read := func(tx processlog.Transaction) (err error) {
		row, err = s.find(ctx, tx, ref, s.d.shareNow)
		return err
	}
	within := s.inOwn
	if s.d.galera {
		within = s.caughtUp
	}
	err := s.untilFree(ctx, resolveTimeout, within, read)
	if errors.Is(err, processlog.ErrBusy) {
		err = fmt.Errorf("resolve %v: %w", ref, err)
	}
	return row, err
}

const resolveTimeout = 10 * time.Second

const (
	findByID  = "SELECT {columns} FROM {log} WHERE id = ?{and in schema} LIMIT 1{lock}"
	findByKey = "SELECT {columns} FROM {log} WHERE idempotent_id = {key}{and in schema} LIMIT 1{lock}"
	// lockByKey finds the row without a lock, and then locks it by its id. A lock in the unique index would wait for a
	// transaction that records the same key again.
	lockByKey = "SELECT {columns} FROM {log} WHERE id = (SELECT id FROM {log}{by uk_idempotent_id} WHERE idempotent_id = {key}){and in schema} LIMIT 1{lock}"
)

// find returns the entry, or ErrNotFound. A caller's transaction may be in another database than the log. In this case,
// find returns ErrNotFound, and so never returns an entry of another log with the same name.
func (s *Store) find(ctx context.Context, tx processlog.Tx, ref processlog.Ref, lock string) (processlog.Row, error) {
	inSchema := s.fragments["and in schema"]
	if _, own := tx.(ownTx); own && s.namesSchema {
		// The library's own transaction needs no check of the session's database. The statement names the log's
		// database, so it reads the right log from any database.
		inSchema = ""
	}
	read := func(query, key string, arg any) ([]processlog.Row, error) {
		return s.queryRows(ctx, tx, 1, s.placeholders(s.sql(query, "key", key, "and in schema", inSchema, "lock", lock)), arg)
	}
	var rows []processlog.Row
	var err error
	key, byKey := ref.(processlog.IdempotencyKey)
	switch ref := ref.(type) {
	case processlog.ID:
		rows, err = read(findByID, "", ref.Row())
	case processlog.IdempotencyKey:
		in, args := s.d.params([]processlog.IdempotencyKey{ref})
		if lock != "" {
			rows, err = read(lockByKey, in, args[0])
		}
		if err == nil && len(rows) == 0 { // Only a read with a lock shows a row newer than the snapshot.
			rows, err = read(findByKey, in, args[0])
		}
	default:
		return processlog.Row{}, &processlog.FieldError{Field: "ref", Reason: "want an EntryID or an IdempotencyKey"}
	}
	switch {
	case err != nil:
		return processlog.Row{}, err
	case len(rows) == 0 || byKey && rows[0].IdempotencyKey != key: // A server ignores trailing spaces when it compares texts.
		return processlog.Row{}, fmt.Errorf("%v: %w", ref, processlog.ErrNotFound)
	}
	return rows[0], nil
}
