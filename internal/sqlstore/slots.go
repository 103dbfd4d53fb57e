package sqlstore

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// A mark is the time of a type's last slot that was recorded or skipped. Both statements also return one row with the
// database's clock.
const (
	readMarks = allMarks + " WHERE business_type IN ({types})"
	allMarks  = "SELECT {now}, {empty}, 0 UNION ALL SELECT 0, {text business_type}, slot FROM {slots}"
)

// Marks implements Store.
func (s *Store) Marks(ctx context.Context, businessTypes []string) (now time.Time, marks map[string]time.Time, err error) {
	names := make([]string, len(businessTypes))
	for i, businessType := range businessTypes {
		names[i] = s.d.text(businessType)
	}
	return s.queryMarks(ctx, s.sql(readMarks, "types", strings.Join(names, ",")))
}

// PeriodicMarks implements Operations.
func (s *Store) PeriodicMarks(ctx context.Context) (now time.Time, marks map[string]time.Time, err error) {
	now, marks, err = s.queryMarks(ctx, s.withTimeLimit(ctx, s.sql(allMarks)))
	maps.DeleteFunc(marks, func(name string, _ time.Time) bool { return strings.HasPrefix(name, " ") })
	return now, marks, err
}

func (s *Store) queryMarks(ctx context.Context, query string) (now time.Time, marks map[string]time.Time, err error) {
	err = s.readLatest(ctx, func(readTx processlog.Tx) error {
		rows, err := readTx.QueryContext(ctx, query)
		if err != nil {
			return err
		}
		defer rows.Close()
		marks = make(map[string]time.Time)
		for rows.Next() {
			var clock, slot int64
			var name string
			if err := rows.Scan(&clock, &name, &slot); err != nil {
				return err
			}
			if name == "" {
				now = unixMilli(clock)
			} else {
				marks[name] = unixMilli(slot)
			}
		}
		return rows.Err()
	})
	if err != nil {
		return time.Time{}, nil, s.withoutSlots(fmt.Errorf("compensator: read the marks of periodic types: %w", err))
	}
	return now, marks, nil
}

const beginMark = "INSERT INTO {slots} (business_type, slot) VALUES ({type}, {now})"

// BeginMark implements Store.
func (s *Store) BeginMark(ctx context.Context, businessType string) (bool, error) {
	_, err := s.writePool().ExecContext(ctx, s.sql(beginMark, "type", s.d.text(businessType)))
	switch {
	case s.d.fault(err) == faultDuplicate:
		return false, nil
	case err != nil:
		return false, s.withoutSlots(fmt.Errorf("compensator: begin the mark of %q: %w", businessType, s.dropReadOnly(err)))
	}
	return true, nil
}

// MoveMark implements Store.
func (s *Store) MoveMark(ctx context.Context, tx processlog.Tx, businessType string, from, to time.Time) (bool, error) {
	if tx == nil {
		n, err := execCount(ctx, s.writePool(), s.moveMarkQuery(businessType, from, to))
		if err != nil {
			return false, s.withoutSlots(fmt.Errorf("compensator: move the mark of %q: %w", businessType, s.dropReadOnly(err)))
		}
		return n == 1, nil
	}
	var moved bool
	err := s.mayFail(ctx, tx, func() (err error) {
		moved, err = s.moveMark(ctx, tx, businessType, from, to)
		return err
	})
	switch s.d.fault(err) {
	case faultBusy:
		return false, nil
	case faultAborted:
		err = fmt.Errorf("%w: %w", processlog.ErrTxAborted, err)
	}
	if err != nil {
		return false, s.withoutSlots(fmt.Errorf("compensator: move the mark of %q: %w", businessType, finished(err)))
	}
	return moved, nil
}

// lockMark selects a text, because in some sessions the driver cannot parse numbers.
const (
	lockMark = "SELECT business_type FROM {slots} WHERE business_type={type} AND slot={from} LIMIT 1{lock now}"
	moveMark = "UPDATE {slots} SET slot={to} WHERE business_type={type} AND slot={from}"
)

// A plain UPDATE would wait for a lock on the row.
func (s *Store) moveMark(ctx context.Context, tx processlog.Tx, businessType string, from, to time.Time) (bool, error) {
	rows, err := tx.QueryContext(ctx, s.sql(lockMark, "type", s.d.text(businessType), "from", signed(from.UnixMilli())))
	if err != nil {
		return false, err
	}
	found := rows.Next()
	if err := rows.Err(); err != nil {
		_ = rows.Close()
		return false, err
	}
	if err := rows.Close(); err != nil || !found {
		return false, err
	}
	n, err := execCount(ctx, tx, s.moveMarkQuery(businessType, from, to))
	return n == 1, err
}

func (s *Store) moveMarkQuery(businessType string, from, to time.Time) string {
	return s.sql(moveMark, "to", signed(to.UnixMilli()), "type", s.d.text(businessType), "from", signed(from.UnixMilli()))
}

func (s *Store) withoutSlots(err error) error {
	return s.withoutTable(err, "_slots", "Periodic, Keep and Operations need")
}

// withoutTable replaces an error about a table that is missing or belongs to somebody else. The parameter needs is a
// part of the new error's text. It names the features that need the table, for example "Operations needs".
func (s *Store) withoutTable(err error, suffix, needs string) error {
	if foreign := s.foreign[suffix]; err != nil && foreign != nil {
		return foreign
	}
	if s.d.fault(err) != faultNoTable {
		return err
	}
	return &processlog.FieldError{Field: "table " + s.table.quoted(suffix), Reason: "does not exist, and " + needs + " it; run Migrate or the files in migrations/" + s.d.name}
}
