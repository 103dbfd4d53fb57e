package sqlstore

import (
	"context"
	"fmt"

	"github.com/compensator-go/compensator/processlog"
)

// erasedMark stands in the headers column of an erased row. No headers equal it, because it is JSON but no object.
const erasedMark = `"erased"`

const eraseRow = "UPDATE {log} SET content={no bytes}, headers={erased}, user_name={empty}, last_error={empty}, version={version}, epoch={epoch}, token={token}, updated_at={stamp}" +
	" WHERE id={id} AND version={seen version}"

// erase blanks a locked row, and the texts of its entry in all other tables. Other processes may have written texts
// into tables that this process does not use, so erase blanks those tables too. It keeps next_at, the time at which the
// entry ended.
func (s *Store) erase(ctx context.Context, tx processlog.Tx, row changedRow) error {
	err := s.eraseHistory(ctx, tx, row.oldRow.ID)
	if err == nil {
		err = s.deleteResults(ctx, tx, []processlog.ID{row.oldRow.ID})
	}
	// An AssignCases in progress holds the case's lock until it has committed its operation. So blank the case first, and
	// then that operation too.
	for _, statement := range []string{attemptsErase, eraseCase, eraseReasons} {
		if err == nil {
			err = s.eraseTexts(ctx, tx, s.sql(statement, "entry_id", row.oldRow.ID.String()))
		}
	}
	if err != nil {
		return fmt.Errorf("compensator: erase the records of entry %s: %w", row.oldRow.ID, err)
	}
	n, err := execCount(ctx, tx, s.sql(eraseRow, "erased", s.d.binary([]byte(erasedMark)), "version", decimal(row.newRow.Version), "epoch", decimal(uint64(row.newRow.Epoch)),
		"token", s.d.binary(row.newRow.Token[:]), "id", row.oldRow.ID.String(), "seen version", decimal(row.oldRow.Version)))
	if err != nil {
		return fmt.Errorf("compensator: erase entry %s: %w", row.oldRow.ID, err)
	}
	if n != 1 {
		return fmt.Errorf("compensator: erase entry %s: changed %d rows", row.oldRow.ID, n)
	}
	return nil
}

const (
	eraseCase    = "UPDATE {case}{by id} SET error={empty}, version=version+1 WHERE entry_id={entry_id}"
	eraseReasons = "UPDATE {operation} SET reason={empty} WHERE entry_id={entry_id}"
)

func (s *Store) eraseTexts(ctx context.Context, tx processlog.Tx, statement string) error {
	err := s.mayFail(ctx, tx, func() error {
		_, err := execCount(ctx, tx, statement)
		return err
	})
	if s.d.fault(err) == faultNoTable {
		return nil
	}
	return err
}

const eraseRecord = "UPDATE {audit} SET reason={empty}, before_state={before}, after_state={after} WHERE id={id}"

// The entry's row is locked, so no record is added meanwhile.
func (s *Store) eraseHistory(ctx context.Context, tx processlog.Tx, id processlog.ID) error {
	history, err := s.history(ctx, tx, id)
	if err != nil {
		return err
	}
	for _, r := range history {
		blank := r.Erased()
		// Skip a record without anything to erase. Also skip the record that says who erased the entry and why.
		if blank == r.AuditRecord || r.Action == processlog.ActionErase {
			continue
		}
		query := s.sql(eraseRecord, "before", s.d.binary(storedState(blank.Before, r.isInBatch)), "after", s.d.binary(storedState(blank.After, false)), "id", decimal(r.row))
		if _, err := tx.ExecContext(ctx, query); err != nil {
			return err
		}
	}
	return nil
}
