package sqlstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/processlog"
)

// outlineRows leaves out the contents, because those of a thousand rows may not fit into memory.
const outlineRows = "SELECT {outline} FROM {log} WHERE id IN ({ids})"

const outlineKeys = "SELECT {outline} FROM {log} WHERE idempotent_id IN ({keys})"

// OutlinesByKey implements Operations.
func (s *Store) OutlinesByKey(ctx context.Context, keys []string) ([]processlog.Row, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	texts := make([]string, len(keys))
	for i, key := range keys {
		texts[i] = s.textLiteral(key)
	}
	rows, err := s.queryRows(ctx, s.pool(), len(keys), s.withTimeLimit(ctx, s.sql(outlineKeys, "keys", strings.Join(texts, ","))))
	if err != nil {
		return nil, fmt.Errorf("compensator: read %d entries by key: %w", len(keys), err)
	}
	return rows, nil
}

// Outlines implements Operations.
func (s *Store) Outlines(ctx context.Context, ids []processlog.ID) ([]processlog.Row, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := s.queryRows(ctx, s.pool(), len(ids), s.withTimeLimit(ctx, s.sql(outlineRows, "ids", idList(ids))))
	if err != nil {
		return nil, fmt.Errorf("compensator: read %d entries: %w", len(ids), err)
	}
	return rows, nil
}

// Operate implements Operations.
func (s *Store) Operate(ctx context.Context, op processlog.Operation) error {
	if err := s.operate(ctx, s.writePool(), op); err != nil {
		return s.dropReadOnly(err)
	}
	return nil
}

const (
	insertOperations = "INSERT INTO {operation} (`at`, actor, `action`, refused, entry_id, business_type, subject, reason) VALUES {operations}"
	insertOperation  = "({now},{actor},{action},{refused},{entry_id},{business_type},{subject},{reason})"
)

func (s *Store) operate(ctx context.Context, tx processlog.Tx, ops ...processlog.Operation) error {
	if len(ops) == 0 {
		return nil
	}
	text := s.d.text
	rows := make([]string, len(ops))
	for i, op := range ops {
		refused := "0"
		if op.Refused {
			refused = "1"
		}
		rows[i] = s.sql(insertOperation, "actor", text(op.Actor), "action", text(op.Action), "refused", refused, "entry_id", op.EntryID.String(),
			"business_type", text(op.BusinessType), "subject", text(op.Subject), "reason", text(op.Reason))
	}
	_, err := tx.ExecContext(ctx, s.sql(insertOperations, "operations", strings.Join(rows, ",")))
	if err != nil {
		return fmt.Errorf("compensator: record the action %q: %w", ops[0].Action, err)
	}
	failpoint.Reach(failpoint.OperationWritten)
	return nil
}

// typesRead is how many operations the method Types searches, the newest first. An operation may name a type that has
// no entries in the log.
const typesRead = 1000

// The last SELECT finds types that were paused. A pause is a row of {setting}, and its name ends with the type. The
// pattern {pauses} matches these names. {after pause} is the position in the name at which the type begins.
const readTypes = "SELECT {text business_type} FROM (SELECT business_type FROM ({groups}) AS g" +
	" UNION SELECT business_type FROM (SELECT business_type FROM {operation} ORDER BY id DESC LIMIT {limit}) AS newest WHERE business_type<>{empty}" +
	" UNION SELECT SUBSTR(name,{after pause}) FROM {setting} WHERE name LIKE {pauses}) AS types ORDER BY 1"

// Types implements Operations.
func (s *Store) Types(ctx context.Context) ([]string, error) {
	pause := processlog.Pause("").Name
	rows, err := s.read(ctx, s.sql(readTypes, "groups", s.groupsQuery(processlog.States[:]), "limit", strconv.Itoa(typesRead),
		"after pause", strconv.Itoa(len(pause)+1), "pauses", s.d.text(pause+"_%")))
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

const readSettings = "SELECT {text name, value}, version, {text actor, reason}, `at`, {now} FROM {setting} ORDER BY name"

// Settings implements Operations.
func (s *Store) Settings(ctx context.Context) ([]processlog.Setting, error) {
	rows, err := s.pool().QueryContext(ctx, s.sql(readSettings))
	if err != nil {
		return nil, fmt.Errorf("compensator: read the settings: %w", err)
	}
	defer rows.Close()
	var settings []processlog.Setting
	for rows.Next() {
		var v processlog.Setting
		var at, readAt int64
		if err := rows.Scan(&v.Name, &v.Value, &v.Version, &v.Actor, &v.Reason, &at, &readAt); err != nil {
			return nil, fmt.Errorf("compensator: read the settings: %w", err)
		}
		v.At, v.ReadAt = unixMilli(at), unixMilli(readAt)
		settings = append(settings, v)
	}
	return settings, rows.Err()
}

const (
	insertSetting = "INSERT INTO {setting} (name, value, version, actor, reason, `at`) VALUES ({name},{value},1,{actor},{reason},{now})"
	changeSetting = "UPDATE {setting} SET value={value}, version=version+1, actor={actor}, reason={reason}, `at`={now} WHERE name={name} AND version={version}"
)

// PutSetting implements Operations.
func (s *Store) PutSetting(ctx context.Context, v processlog.Setting, op processlog.Operation) error {
	text := s.d.text
	statement := changeSetting
	if v.Version == 0 {
		statement = insertSetting
	}
	query := s.sql(statement, "name", text(v.Name), "value", text(v.Value), "actor", text(v.Actor), "reason", text(v.Reason), "version", decimal(v.Version))
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
