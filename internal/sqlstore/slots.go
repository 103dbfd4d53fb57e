package sqlstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// Marks implements Store by one SELECT by primary key. An extra row returns the clock, also where there are no marks.
func (s *Store) Marks(ctx context.Context, businessTypes []string) (now time.Time, marks map[string]time.Time, err error) {
	names := make([]string, len(businessTypes))
	for i, businessType := range businessTypes {
		names[i] = s.d.text(businessType)
	}
	query := fmt.Sprintf("SELECT %s, %s, 0 UNION ALL SELECT 0, %s, slot FROM %s WHERE business_type IN (%s)", s.d.now, s.d.empty, s.d.texts("business_type"), s.table.quoted("_slots"), strings.Join(names, ","))
	err = s.readLatest(ctx, func(from processlog.Tx) error {
		rows, err := from.QueryContext(ctx, query)
		if err != nil {
			return err
		}
		defer rows.Close()
		marks = make(map[string]time.Time, len(businessTypes))
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

// BeginMark implements Store.
func (s *Store) BeginMark(ctx context.Context, businessType string) (bool, error) {
	_, err := s.writes().ExecContext(ctx, fmt.Sprintf("INSERT INTO %s (business_type, slot) VALUES (%s, %s)", s.table.quoted("_slots"), s.d.text(businessType), s.d.now))
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
	at := fmt.Sprintf("business_type=%s AND slot=%d", s.d.text(businessType), from.UnixMilli())
	moved, err := s.moveMark(ctx, tx, at, to)
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

// moveMark locks the row with NOWAIT before it writes. A plain UPDATE would wait for a lock on the row.
func (s *Store) moveMark(ctx context.Context, tx processlog.Tx, at string, to time.Time) (bool, error) {
	rows, err := tx.QueryContext(ctx, fmt.Sprintf("SELECT slot FROM %s WHERE %s%s%s", s.table.quoted("_slots"), at, atMost(1), s.d.lockNow))
	if err != nil {
		return false, err
	}
	found := rows.Next()
	if err := rows.Err(); err != nil {
		_ = rows.Close() // The first error says more.
		return false, err
	}
	if err := rows.Close(); err != nil || !found {
		return false, err
	}
	n, err := execCount(ctx, tx, fmt.Sprintf("UPDATE %s SET slot=%d WHERE %s", s.table.quoted("_slots"), to.UnixMilli(), at))
	return n == 1, err
}

// withoutSlots replaces err if the _slots table is missing. The new error names the table and what needs it. New does
// not require that table.
func (s *Store) withoutSlots(err error) error {
	return s.withoutTable(err, "_slots", "Periodic, Keep and Operations need")
}

// withoutTable replaces err if it says that a table is missing. The new error names the table, and needs says what
// requires it.
func (s *Store) withoutTable(err error, suffix, needs string) error {
	if s.d.fault(err) != faultNoTable {
		return err
	}
	return &processlog.FieldError{Field: "table " + s.table.quoted(suffix), Reason: "does not exist, and " + needs + " it; run Migrate or the files in migrations/" + s.d.name}
}
