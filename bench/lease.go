package bench

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/google/uuid"
)

// These statements belong to a design that the library rejected: see docs/internals/decisions.md. In that design, a
// claim inserts one lease row with the id and version of each claimed entry, and changes no entry. An entry is leased
// while an unexpired lease row lists its current version.
const (
	leaseTable = "CREATE TABLE IF NOT EXISTS `common_process_log_lease` (" +
		"token BINARY(16) NOT NULL PRIMARY KEY, " +
		"business_type VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, " +
		"owner BINARY(16) NOT NULL, " +
		"lease_until BIGINT NOT NULL, " +
		"first_id BIGINT UNSIGNED NOT NULL, " + // The smallest and the largest id of entries let the server skip most rows.
		"last_id BIGINT UNSIGNED NOT NULL, " +
		"entries BLOB NOT NULL, " + // ids and versions, see packEntries
		"KEY k_type (business_type)) ENGINE=InnoDB"
	leaseRead = "SELECT entries, lease_until<=" + floorNow + " FROM `common_process_log_lease` WHERE business_type='" + benchType +
		"' AND first_id<=%d AND last_id>=%d AND token<>X'%x'"
	leaseInsert  = "INSERT INTO `common_process_log_lease` VALUES (X'%x','" + benchType + "',X'%x'," + floorNow + "+30000,%d,%d,X'%x')"
	leaseDelete  = "DELETE FROM `common_process_log_lease` WHERE token=X'%x'"
	leaseRewrite = "UPDATE `common_process_log_lease` SET owner=X'%[2]x', lease_until=" + floorNow + "+30000, first_id=%[3]d, last_id=%[4]d, entries=X'%[5]x' WHERE token=X'%[1]x'"
)

type leaseForm struct {
	name string
	// If the field row is true, a claim inserts one lease row, and deletes the lease row of the previous claim. If row
	// is false, a claim updates each entry, as the library does.
	row bool
	// If the fields row and rewrite are true, a claim rewrites the lease row of the previous claim. It inserts and
	// deletes no lease row.
	rewrite bool
	fused   bool // one transaction settles the entries of the last claim and makes the next claim
	varchar bool // the column ended_by is VARCHAR, so that a success changes the length of a row
}

var (
	formToday    = leaseForm{name: "today's statements"}
	formVarchar  = leaseForm{name: "today's statements, VARCHAR", varchar: true}
	formFused    = leaseForm{name: "fused commits", fused: true}
	formRow      = leaseForm{name: "lease row", row: true}
	formRewrite  = leaseForm{name: "lease row, rewritten", row: true, rewrite: true}
	formFusedRow = leaseForm{name: "lease row, fused commits", row: true, fused: true}
)

// withBinaryLog are the flags of a server that keeps a binary log as a replicated one does.
var withBinaryLog = []string{"--log-bin=binlog", "--binlog-format=ROW", "--binlog-row-image=FULL", "--sync-binlog=1", "--server-id=1"}

var errLeasedTwice = errors.New("an entry was claimed twice")

type leaseLoop struct {
	form  leaseForm
	conn  *sql.Conn
	lease uuid.UUID    // token of the lease row of the last claim; zero before the first claim
	open  []floorFound // entries that are claimed and not settled
	ids   []string     // ids of open
}

func newLeaseLoop(ctx context.Context, own *sql.DB, form leaseForm) (*leaseLoop, error) {
	conn, err := own.Conn(ctx)
	if err != nil {
		return nil, err
	}
	_, err = conn.ExecContext(ctx, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
	return &leaseLoop{form: form, conn: conn}, err
}

// The caller closes both results with closeBoth.
func (a *arena) leaseWorker(ctx context.Context, own *sql.DB, form leaseForm) (l *leaseLoop, q *leaseQueue, closeBoth func(), err error) {
	if l, err = newLeaseLoop(ctx, own, form); err != nil {
		return nil, nil, nil, err
	}
	if q, err = a.leaseQueue(); err != nil {
		l.conn.Close()
		return nil, nil, nil, err
	}
	return l, q, func() { q.client.Close(); l.conn.Close() }, nil
}

// With fused commits, one transaction claims ids and settles the entries of the previous step.
func (l *leaseLoop) step(ctx context.Context, ids []string) (settled []string, err error) {
	tx, err := l.conn.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	if l.form.fused && len(l.ids) > 0 {
		settled = l.ids
		if err := floorSettle(ctx, tx, l.ids, sumsOf(l.open)); err != nil {
			return nil, err
		}
	}
	l.open, l.ids = nil, nil
	if len(ids) > 0 {
		if err := l.claim(ctx, tx, ids); err != nil {
			return nil, err
		}
	}
	if err := tx.Commit(); err != nil || l.form.fused {
		return settled, err
	}
	settled = l.ids
	return settled, floorSettle(ctx, l.conn, settled, sumsOf(l.open))
}

// flush settles the entries that the last step has claimed, if the form has fused commits.
func (l *leaseLoop) flush(ctx context.Context) ([]string, error) {
	if len(l.ids) == 0 || !l.form.fused {
		return nil, nil
	}
	return l.step(ctx, nil)
}

func (l *leaseLoop) claim(ctx context.Context, tx *sql.Tx, ids []string) error {
	list := idList(ids)
	found, err := floorRows(ctx, tx, fmt.Sprintf(floorLock, list))
	if err != nil {
		return err
	}
	if len(found) != len(ids) {
		return fmt.Errorf("locked %d of %d rows", len(found), len(ids))
	}
	token := uuid.New()
	if l.form.row {
		err = l.writeLease(ctx, tx, token, found)
	} else {
		_, err = tx.ExecContext(ctx, fmt.Sprintf(floorTake, token[:], list))
	}
	l.open, l.ids = found, ids
	return err
}

// writeLease reads the lease rows of other claims while the entries are locked, and then writes the lease row of this
// claim.
func (l *leaseLoop) writeLease(ctx context.Context, tx *sql.Tx, token uuid.UUID, found []floorFound) error {
	first, last := found[0].id, found[len(found)-1].id
	taken, err := held(ctx, tx, fmt.Sprintf(leaseRead, last, first, l.lease[:]), found)
	if err != nil {
		return err
	}
	if taken {
		return errLeasedTwice // No benchmark offers an entry to two loops.
	}
	list := packEntries(found)
	if l.form.rewrite && l.lease != (uuid.UUID{}) {
		_, err := tx.ExecContext(ctx, fmt.Sprintf(leaseRewrite, l.lease[:], token[:], first, last, list))
		return err
	}
	if l.lease != (uuid.UUID{}) {
		if _, err := tx.ExecContext(ctx, fmt.Sprintf(leaseDelete, l.lease[:])); err != nil {
			return err
		}
	}
	l.lease = token
	_, err = tx.ExecContext(ctx, fmt.Sprintf(leaseInsert, token[:], token[:], first, last, list))
	return err
}

// held reports whether an unexpired lease row of another claim has the id and the current version of one of the
// entries.
func held(ctx context.Context, tx *sql.Tx, query string, found []floorFound) (taken bool, err error) {
	rows, err := tx.QueryContext(ctx, query)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	for rows.Next() {
		var list []byte
		var ended bool
		if err := rows.Scan(&list, &ended); err != nil {
			return false, err
		}
		taken = taken || !ended && namesOne(list, found)
	}
	return taken, rows.Err()
}

// packEntries encodes the entries as varints: for each entry the difference from the previous id, then the version. In
// a backlog an entry takes about two bytes. found is sorted by id.
func packEntries(found []floorFound) (list []byte) {
	last := uint64(0)
	for _, f := range found {
		list = binary.AppendUvarint(list, f.id-last)
		list = binary.AppendUvarint(list, f.version)
		last = f.id
	}
	return list
}

// list and found are sorted by id.
func namesOne(list []byte, found []floorFound) bool {
	id := uint64(0)
	for len(list) > 0 {
		step, n := binary.Uvarint(list)
		version, m := binary.Uvarint(list[n:])
		id, list = id+step, list[n+m:]
		for len(found) > 0 && found[0].id < id {
			found = found[1:]
		}
		if len(found) == 0 {
			return false
		}
		if found[0].id == id && found[0].version == version {
			return true
		}
	}
	return false
}
