package adopt

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/usererr"
)

// pageRun handles one page of rows in one transaction. If the field onlyKeys is set, the page has the rows with these
// keys. Otherwise the page has the next rows, whose keys come after the field afterKey.
type pageRun struct {
	*Import
	dry      bool
	afterKey *key
	onlyKeys []key

	keys      []key // keys of the rows on the page
	tally     *Report
	takenKeys []key // keys of the rows that become entries, in the order of the field entries
	entries   []compensator.NewEntry
}

// longest is the maximum time for which rows of the old table are locked.
const longest = 30 * time.Second

var errDry = errors.New("adopt: dry run")

func (t *pageRun) runPage(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	err := t.c.InTx(ctx, t.work)
	var refusal *Refusal
	switch {
	case errors.Is(err, errDry):
		return nil
	case errors.As(err, &refusal):
		return refusal
	case isRefusal(err):
		return err
	case err != nil:
		return fmt.Errorf("adopt: %w", err)
	}
	failpoint.Reach(failpoint.RowsAdopted)
	return nil
}

func (t *pageRun) work(ctx context.Context, tx *compensator.ScopedTx) (err error) {
	t.tally = newReport()
	if t.keys = t.onlyKeys; t.keys == nil {
		if t.keys, err = t.page(ctx, tx); err != nil {
			return err
		}
	}
	t.tally.Rows = len(t.keys)
	if len(t.keys) == 0 {
		return nil
	}
	if err := t.readRows(ctx, tx); err != nil {
		return err
	}
	if err := t.recordRows(ctx, tx); err != nil {
		return err
	}
	if t.dry {
		return errDry
	}
	failpoint.Reach(failpoint.RowsTaken)
	return nil
}

// page locks no rows, so that a row that another transaction has locked does not delay the other rows.
func (t *pageRun) page(ctx context.Context, tx *compensator.ScopedTx) ([]key, error) {
	from, args := "", []any(nil)
	if t.afterKey != nil {
		from, args = t.key+" > ? AND ", []any{t.afterKey.value}
	}
	rows, err := tx.QueryContext(ctx, fmt.Sprintf("SELECT %s FROM %s WHERE %s(%s) ORDER BY %s LIMIT %d",
		t.key, t.table, from, t.cfg.Where, t.key, t.cfg.Page), args...)
	if err != nil {
		return nil, fmt.Errorf("find rows of %s: %w", t.table, err)
	}
	defer rows.Close()
	var keys []key
	for rows.Next() {
		k, err := scanKey(rows, 0)
		if err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	return keys, rows.Err()
}

// scanKey reads the first column and discards the others.
func scanKey(rows *sql.Rows, otherColumns int) (key, error) {
	types, err := rows.ColumnTypes()
	if err != nil {
		return key{}, err
	}
	var value any
	dest := []any{&value}
	for range otherColumns {
		dest = append(dest, new(any))
	}
	if err := rows.Scan(dest...); err != nil {
		return key{}, err
	}
	return keyOf(value, types[0])
}

// readRows skips rows that Config.Where no longer finds, and rows that another transaction has locked. It selects the
// rows by their keys, because locks on a range of keys would delay concurrent inserts.
func (t *pageRun) readRows(ctx context.Context, tx *compensator.ScopedTx) error {
	lock, err := t.lock(ctx, tx)
	if err != nil {
		return err
	}
	in, args := list(t.keys)
	seen := make(map[string]bool, len(t.keys))
	rows, err := tx.QueryContext(ctx, fmt.Sprintf("SELECT %s FROM %s WHERE %s IN (%s) AND (%s) ORDER BY %s%s",
		strings.Join(append([]string{t.key}, t.cfg.Columns...), ", "), t.table, t.key, in, t.cfg.Where, t.key, lock), args...)
	if err != nil {
		return fmt.Errorf("read rows of %s: %w", t.table, err)
	}
	defer rows.Close()
	n := 0
	for ; rows.Next(); n++ {
		k, err := scanKey(rows, len(t.cfg.Columns))
		if err != nil {
			return err
		}
		if seen[k.text] {
			// The idempotency key of an entry contains the key of its row. So both rows with this key would get the
			// same entry.
			return notUnique(k.text)
		}
		seen[k.text] = true
		if err := t.takeRow(k, rows); err != nil {
			return err
		}
	}
	t.tally.Busy = len(t.keys) - n
	return rows.Err()
}

func notUnique(key string) error {
	return &compensator.FieldError{Field: "Key", Reason: fmt.Sprintf("holds %q in several rows: want a unique column", key)}
}

// lock returns the locking clause, which is empty on SQLite. The first call also checks the engine of the table.
func (t *pageRun) lock(ctx context.Context, tx *compensator.ScopedTx) (string, error) {
	if lock := t.locks.Load(); lock != nil {
		return *lock, nil
	}
	var version string
	lock := " FOR UPDATE SKIP LOCKED"
	err := tx.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version)
	if err != nil {
		lock, err = "", errors.Join(tx.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version), ctx.Err())
	}
	if err != nil {
		return "", fmt.Errorf("detect the database engine: %w", err)
	}
	if lock != "" && t.cfg.Take != "" {
		if err := t.checkEngine(ctx, tx); err != nil {
			return "", err
		}
	}
	t.locks.Store(&lock)
	return lock, nil
}

// checkEngine refuses an engine without transactions, because a rollback would keep the update by Take. It accepts a
// view.
func (t *pageRun) checkEngine(ctx context.Context, tx *compensator.ScopedTx) error {
	schema, args := "DATABASE()", []any{t.cfg.Table}
	if database, table, qualified := strings.Cut(t.cfg.Table, "."); qualified {
		schema, args = "?", []any{database, table}
	}
	var engine, transactions string
	err := tx.QueryRowContext(ctx, "SELECT COALESCE(engine,'') FROM information_schema.tables WHERE table_schema="+schema+" AND table_name=?", args...).Scan(&engine)
	if err == nil {
		err = tx.QueryRowContext(ctx, "SELECT COALESCE(transactions,'') FROM information_schema.engines WHERE engine=?", engine).Scan(&transactions)
	}
	switch {
	case err != nil && !errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("read the engine of %s: %w", t.table, err)
	case transactions != "NO":
		return nil
	}
	return &compensator.FieldError{Field: "Table", Reason: fmt.Sprintf("%s has the engine %s, which has no transactions: rows would stay taken without an entry; "+
		"leave Take empty, or change the engine to InnoDB", t.table, engine)}
}

func (t *pageRun) takeRow(k key, rows *sql.Rows) error {
	entry, err := t.entry(&Row{Key: k.text, rows: rows})
	var skip *skippedRow
	switch {
	case errors.As(err, &skip):
		t.tally.Skipped[skip.reason]++
	case err != nil:
		refusal := &Refusal{Key: k.text, Err: err}
		if t.cfg.StopAtRefusal {
			return refusal
		}
		t.tally.refuse(refusal)
	default:
		entry.FailOnDuplicate = false
		if entry.IdempotencyKey == "" {
			entry.IdempotencyKey = t.idempotencyKey(k.text)
		}
		t.takenKeys, t.entries = append(t.takenKeys, k), append(t.entries, entry)
	}
	return nil
}

func (t *pageRun) entry(row *Row) (entry compensator.NewEntry, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &compensator.PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	entry, err = t.cfg.Map(row)
	return entry, usererr.Of(err)
}

func (t *pageRun) recordRows(ctx context.Context, tx *compensator.ScopedTx) error {
	if len(t.entries) == 0 {
		return nil
	}
	receipt, err := t.c.Record(ctx, tx, t.entries...)
	if err != nil {
		return err
	}
	for i, recorded := range receipt.Entries {
		counts := t.tally.Recorded
		if recorded.Duplicate {
			counts = t.tally.Known
		}
		counts[t.entries[i].BusinessType]++
	}
	if t.cfg.Take == "" {
		return nil
	}
	in, args := list(t.takenKeys)
	result, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE %s SET %s WHERE %s IN (%s)", t.table, t.cfg.Take, t.key, in), args...)
	if err != nil {
		return fmt.Errorf("take rows from %s: %w", t.table, err)
	}
	changedRows, err := result.RowsAffected()
	if err != nil {
		return fmt.Errorf("count the rows taken from %s: %w", t.table, err)
	}
	// The update has changed more rows than it has keys, so two rows share a key. readRows found only one of them,
	// because the other row was locked or did not match Config.Where. That other row is now taken without an entry.
	if changedRows > int64(len(args)) {
		return &compensator.FieldError{Field: "Key", Reason: fmt.Sprintf("Take has changed %d rows with %d keys: want a unique column", changedRows, len(args))}
	}
	return t.checkTaken(ctx, tx, in, args)
}

// checkTaken returns an error if the condition Config.Where still finds rows that Config.Take has changed. The old
// system would run these rows too.
func (t *pageRun) checkTaken(ctx context.Context, tx *compensator.ScopedTx, in string, args []any) error {
	var remaining int
	err := tx.QueryRowContext(ctx, fmt.Sprintf("SELECT COUNT(*) FROM %s WHERE %s IN (%s) AND (%s)", t.table, t.key, in, t.cfg.Where), args...).Scan(&remaining)
	if err != nil {
		return fmt.Errorf("check the rows taken from %s: %w", t.table, err)
	}
	if remaining > 0 {
		return &compensator.FieldError{Field: "Take", Reason: fmt.Sprintf("Where still finds %d of %d rows after Take", remaining, len(args))}
	}
	return nil
}

func list(keys []key) (marks string, args []any) {
	for _, k := range keys {
		args = append(args, k.value)
	}
	return strings.TrimSuffix(strings.Repeat("?,", len(keys)), ","), args
}
