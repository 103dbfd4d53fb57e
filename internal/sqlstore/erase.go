package sqlstore

import (
	"context"
	"fmt"

	"github.com/compensator-go/compensator/processlog"
)

// erasedMark stands in the headers column of an erased row. It is JSON, and no object, as which all headers are stored:
// nobody's headers can be taken for it, and who does not know it reads none.
const erasedMark = `"erased"`

// erase blanks a locked row, and what its records have copied. It leaves next_at, the moment of its end.
func (s *Store) erase(ctx context.Context, tx processlog.Tx, row changedRow, cases bool) error {
	err := s.eraseHistory(ctx, tx, row.before.ID)
	if err == nil && cases {
		err = s.eraseOperations(ctx, tx, row.before.ID)
	}
	if err != nil {
		return fmt.Errorf("compensator: erase the records of entry %s: %w", row.before.ID, err)
	}
	query := "UPDATE " + s.table.quoted("") + " SET content=?, headers=?, user_name='', last_error='', version=?, epoch=?, token=?, updated_at=" + s.d.stamp +
		" WHERE id=? AND version=?"
	res, err := tx.ExecContext(ctx, query, []byte{}, []byte(erasedMark), row.after.Version, int64(row.after.Epoch), row.after.Token[:], row.before.ID.Row(), row.before.Version)
	if err != nil {
		return fmt.Errorf("compensator: erase entry %s: %w", row.before.ID, err)
	}
	if n, err := res.RowsAffected(); err != nil || n != 1 {
		return fmt.Errorf("compensator: erase entry %s: changed %d rows: %w", row.before.ID, n, err)
	}
	return nil
}

// eraseOperations blanks what is free text in the case of an entry, and in what people did to it beside changing it.
func (s *Store) eraseOperations(ctx context.Context, tx processlog.Tx, id processlog.ID) error {
	// In this order, as who takes a case: what he records of it is there before it is free.
	if _, err := execCount(ctx, tx, "UPDATE "+s.casesByID()+" SET error='', version=version+1 WHERE entry_id="+id.String()); err != nil {
		return err
	}
	_, err := execCount(ctx, tx, "UPDATE "+s.table.quoted("_operation")+" SET reason='' WHERE entry_id="+id.String())
	return err
}

// eraseHistory blanks what is free text in the records of an entry. Nobody adds one meanwhile: the row is locked.
func (s *Store) eraseHistory(ctx context.Context, tx processlog.Tx, id processlog.ID) error {
	history, err := s.history(ctx, tx, id)
	if err != nil {
		return err
	}
	for _, r := range history {
		blank := r.Erased()
		if blank == r.AuditRecord || r.Action == processlog.ActionErase { // whose own record stays
			continue
		}
		query := "UPDATE " + s.table.quoted("_audit") + " SET reason='', before_state=?, after_state=? WHERE id=?"
		if _, err := tx.ExecContext(ctx, query, storedState(blank.Before), storedState(blank.After), r.row); err != nil {
			return err
		}
	}
	return nil
}
