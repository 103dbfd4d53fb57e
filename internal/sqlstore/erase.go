package sqlstore

import (
	"context"
	"fmt"

	"github.com/compensator-go/compensator/processlog"
)

// erasedMark stands in the headers column of an erased row. Headers are stored as a JSON object, and erasedMark is JSON
// but no object. So no headers of a user equal it. Code that does not know the mark reads no headers.
const erasedMark = `"erased"`

// erase blanks a locked row, and the copies in its audit records. It keeps next_at, the time at which the entry ended.
func (s *Store) erase(ctx context.Context, tx processlog.Tx, row changedRow, cases bool) error {
	err := s.eraseHistory(ctx, tx, row.before.ID)
	if err == nil && cases {
		err = s.eraseOperations(ctx, tx, row.before.ID)
	}
	if err != nil {
		return fmt.Errorf("compensator: erase the records of entry %s: %w", row.before.ID, err)
	}
	n, err := execCount(ctx, tx, fmt.Sprintf("UPDATE %[1]s SET content=X'', headers=%[2]s, user_name=%[3]s, last_error=%[3]s, version=%[4]d, epoch=%[5]d, token=%[6]s, updated_at=%[7]s WHERE id=%[8]s AND version=%[9]d",
		s.table.quoted(""), hexLiteral([]byte(erasedMark)), s.d.empty, row.after.Version, row.after.Epoch, hexLiteral(row.after.Token[:]), s.d.stamp, row.before.ID, row.before.Version))
	if err != nil {
		return fmt.Errorf("compensator: erase entry %s: %w", row.before.ID, err)
	}
	if n != 1 {
		return fmt.Errorf("compensator: erase entry %s: changed %d rows", row.before.ID, n)
	}
	return nil
}

// eraseOperations blanks the free texts in the case of an entry, and in the operations of people on that entry.
func (s *Store) eraseOperations(ctx context.Context, tx processlog.Tx, id processlog.ID) error {
	// Update the case first, as an assignment does. An assignment in progress holds the case until its own operation is
	// written, so that operation is blanked too.
	if _, err := execCount(ctx, tx, "UPDATE "+s.casesByID()+" SET error="+s.d.empty+", version=version+1 WHERE entry_id="+id.String()); err != nil {
		return err
	}
	_, err := execCount(ctx, tx, "UPDATE "+s.table.quoted("_operation")+" SET reason="+s.d.empty+" WHERE entry_id="+id.String())
	return err
}

// eraseHistory blanks the free texts in the audit records of an entry. The row is locked, so no record is added
// meanwhile.
func (s *Store) eraseHistory(ctx context.Context, tx processlog.Tx, id processlog.ID) error {
	history, err := s.history(ctx, tx, id)
	if err != nil {
		return err
	}
	for _, r := range history {
		blank := r.Erased()
		if blank == r.AuditRecord || r.Action == processlog.ActionErase { // The record of the erasure itself stays.
			continue
		}
		query := fmt.Sprintf("UPDATE %s SET reason=%s, before_state=%s, after_state=%s WHERE id=%d",
			s.table.quoted("_audit"), s.d.empty, hexLiteral(storedState(blank.Before)), hexLiteral(storedState(blank.After)), r.row)
		if _, err := tx.ExecContext(ctx, query); err != nil {
			return err
		}
	}
	return nil
}
