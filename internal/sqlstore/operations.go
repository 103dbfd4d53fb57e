package sqlstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/processlog"
)

// outlineRows reads rows without their contents. The contents of a thousand rows may not fit into memory.
const outlineRows = "SELECT {outline} FROM {log} WHERE id IN ({ids})"

// Outlines implements Operations.
func (s *Store) Outlines(ctx context.Context, ids []processlog.ID) ([]processlog.Row, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := s.queryRows(ctx, s.pool(), len(ids), s.ended(ctx, s.sql(outlineRows, "ids", idList(ids))))
	if err != nil {
		return nil, fmt.Errorf("compensator: read %d entries: %w", len(ids), err)
	}
	return rows, nil
}

// Operate implements Operations.
func (s *Store) Operate(ctx context.Context, op processlog.Operation) error {
	if err := s.operate(ctx, s.writes(), op); err != nil {
		return s.dropReadOnly(err)
	}
	return nil
}

func (s *Store) operate(ctx context.Context, tx processlog.Tx, ops ...processlog.Operation) error {
	text := s.d.text
	rows := make([]string, len(ops))
	for i, op := range ops {
		refused := 0
		if op.Refused {
			refused = 1
		}
		rows[i] = fmt.Sprintf("(%s,%s,%s,%d,%s,%s,%s,%s)", s.d.now, text(op.Actor), text(op.Action), refused, op.EntryID, text(op.BusinessType), text(op.Subject), text(op.Reason))
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO "+s.table.quoted("_operation")+" (`at`, actor, `action`, refused, entry_id, business_type, subject, reason) VALUES "+strings.Join(rows, ","))
	if err != nil {
		return fmt.Errorf("compensator: record the action %q: %w", ops[0].Action, err)
	}
	failpoint.Reach(failpoint.OperationWritten)
	return nil
}

// typesRead is how many of the newest operations Types reads. It finds there types of which the log has no entry any
// more.
const typesRead = 1000

// Types implements Operations.
func (s *Store) Types(ctx context.Context) ([]string, error) {
	pause := processlog.Pause("").Name
	rows, err := s.read(ctx, fmt.Sprintf("SELECT %s FROM (SELECT business_type FROM (%s) AS g UNION SELECT business_type FROM (SELECT business_type FROM %s ORDER BY id DESC LIMIT %d) AS newest WHERE business_type<>%s"+
		" UNION SELECT SUBSTR(name,%d) FROM %s WHERE name LIKE %s) AS types ORDER BY 1",
		s.d.texts("business_type"), s.groupsQuery(processlog.States[:]), s.table.quoted("_operation"), typesRead, s.d.empty, len(pause)+1, s.table.quoted("_setting"), s.d.text(pause+"_%")))
	if err != nil {
		return nil, fmt.Errorf("compensator: find the types: %w", err)
	}
	defer rows.Close()
	var types []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, fmt.Errorf("compensator: find the types: %w", err)
		}
		types = append(types, name)
	}
	return types, rows.Err()
}

// Settings implements Operations.
func (s *Store) Settings(ctx context.Context) ([]processlog.Setting, error) {
	rows, err := s.pool().QueryContext(ctx, "SELECT "+s.d.texts("name, value")+", version, "+s.d.texts("actor, reason")+", `at` FROM "+s.table.quoted("_setting")+" ORDER BY name")
	if err != nil {
		return nil, fmt.Errorf("compensator: read the settings: %w", err)
	}
	defer rows.Close()
	var settings []processlog.Setting
	for rows.Next() {
		var v processlog.Setting
		var at int64
		if err := rows.Scan(&v.Name, &v.Value, &v.Version, &v.Actor, &v.Reason, &at); err != nil {
			return nil, fmt.Errorf("compensator: read the settings: %w", err)
		}
		v.At = unixMilli(at)
		settings = append(settings, v)
	}
	return settings, rows.Err()
}

// PutSetting implements Operations.
func (s *Store) PutSetting(ctx context.Context, v processlog.Setting, op processlog.Operation) error {
	text := s.d.text
	query := fmt.Sprintf("UPDATE %s SET value=%s, version=version+1, actor=%s, reason=%s, `at`=%s WHERE name=%s AND version=%d",
		s.table.quoted("_setting"), text(v.Value), text(v.Actor), text(v.Reason), s.d.now, text(v.Name), v.Version)
	if v.Version == 0 {
		query = fmt.Sprintf("INSERT INTO %s (name, value, version, actor, reason, `at`) VALUES (%s,%s,1,%s,%s,%s)",
			s.table.quoted("_setting"), text(v.Name), text(v.Value), text(v.Actor), text(v.Reason), s.d.now)
	}
	err := s.untilFree(ctx, changeTimeout, s.inOwn, func(tx processlog.Transaction) error {
		if err := s.operate(ctx, tx, op); err != nil {
			return err
		}
		n, err := execCount(ctx, tx, query)
		if s.d.fault(err) == faultDuplicate || err == nil && n == 0 {
			return processlog.ErrChanged
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("compensator: set %q: %w", v.Name, err)
	}
	return err
}
