package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/compensator-go/compensator/processlog"
)

// acrossSessions looks at a held row from one other session at a time, because a pool may have only one spare connection.
func (p *proof) acrossSessions(ctx context.Context) error {
	holder, err := p.s.beginOwn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = holder.Rollback() }()
	id, err := p.insert(ctx, holder, "-held", true)
	if err != nil {
		return err
	}
	defer p.leave()
	err = p.lookAt(ctx, id)
	// lookAt needs a row that is locked. The transaction in the variable holder has this lock. If its session was lost,
	// the row was unlocked, and what lookAt found means nothing. So return the error, and checkInstruments tries again.
	if _, lost := queryIDs(ctx, holder, p.s.sql(tryRead, "id", id.String())); lostConnection(lost) {
		return lost
	}
	return err
}

func (p *proof) lookAt(ctx context.Context, id processlog.ID) error {
	for _, try := range []func(ctx context.Context, id processlog.ID) error{p.tryLocks, p.tryReadCommitted, p.trySkipLocked, p.tryIsolation} {
		if err := try(ctx, id); err == errNoSecond {
			p.note("the pool had no second connection to spare", "locks and isolation levels could not be tried")
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

var errNoSecond = errors.New("no second connection")

func (p *proof) look(ctx context.Context, db *sql.DB, level sql.IsolationLevel, work func(ctx context.Context, tx *sql.Tx) error) (err error) {
	if p.s.ownPool == nil && db.Stats().MaxOpenConnections == 1 {
		return errNoSecond
	}
	if p.beside == nil || p.beside.db != db || p.beside.level != level {
		p.leave()
		conn, err := spare(ctx, db)
		if err != nil {
			return err
		}
		p.beside = &lookout{conn, db, level}
	}
	ctx, cancel := context.WithTimeout(ctx, proofTimeout)
	defer cancel()
	tx, err := p.beside.BeginTx(ctx, &sql.TxOptions{Isolation: level})
	if err != nil {
		p.leave()
		return err
	}
	defer func() {
		end := tx.Rollback()
		if end != nil || err != nil { // The session broke, or work stopped in the middle of a statement.
			p.leave()
		}
		if lostConnection(end) {
			err = end
		}
	}()
	return work(ctx, tx)
}

// leave closes the session p.beside. The session must not return to the pool, because its lock wait and isolation level
// differ.
func (p *proof) leave() {
	if p.beside == nil {
		return
	}
	_ = p.beside.Raw(func(any) error { return driver.ErrBadConn })
	_ = p.beside.Close()
	p.beside = nil
}

// spare returns errNoSecond if all connections of the pool are in use for spareTimeout.
func spare(ctx context.Context, db *sql.DB) (*sql.Conn, error) {
	timeout := proofTimeout
	if has := db.Stats(); has.MaxOpenConnections > 0 && has.InUse >= has.MaxOpenConnections {
		timeout = spareTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := db.Conn(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, errNoSecond
	}
	return conn, err
}

func (p *proof) tryLocks(ctx context.Context, id processlog.ID) error {
	d := p.s.d
	held, err := p.reportsLock(ctx, id, d.lockNow)
	if !held && err == nil {
		p.refuse("does not report at once, asked with"+d.lockNow+", that another transaction holds the row that it has inserted",
			"an open transaction could not be distinguished from one that was rolled back; on TiDB set tidb_txn_mode=pessimistic")
	}
	if !held {
		return err
	}
	held, err = p.reportsLock(ctx, processlog.IdempotencyKey(p.key+"-held"), d.shareNow)
	if held || err != nil {
		return err
	}
	p.note("shared locks do not lock", "exclusive locks are used instead")
	d.share, d.shareNow = d.lock, d.lockNow
	held, err = p.reportsLock(ctx, processlog.IdempotencyKey(p.key+"-held"), d.shareNow)
	if !held && err == nil {
		p.refuse("does not report at once, asked by idempotency key with"+d.shareNow+", that another transaction holds the row that it has inserted",
			"an open transaction could not be distinguished from one that was rolled back")
	}
	return err
}

// reportsLock tries up to three times, because a read that timed out proves nothing.
func (p *proof) reportsLock(ctx context.Context, ref processlog.Ref, lock string) (held bool, err error) {
	for range 3 {
		held, err = p.toldAtOnce(ctx, ref, lock)
		if held || (err != nil && !errors.Is(err, context.DeadlineExceeded)) {
			return held, err
		}
	}
	return false, err
}

func (p *proof) toldAtOnce(ctx context.Context, ref processlog.Ref, lock string) (told bool, err error) {
	err = p.look(ctx, p.s.database(), sql.LevelReadCommitted, func(ctx context.Context, tx *sql.Tx) error {
		wait, err := lockWait(ctx, tx)
		if err != nil {
			return err
		}
		asked := time.Now()
		_, answer := p.s.find(ctx, tx, ref, lock)
		told = p.s.d.fault(answer) == faultBusy && time.Since(asked) < wait
		return ctx.Err()
	})
	return told, err
}

// lockWait limits the session's waits for row locks to proofLockWait seconds. Some engines ignore this setting. So
// lockWait asks the session for its limit afterwards, and returns the answer.
func lockWait(ctx context.Context, tx *sql.Tx) (time.Duration, error) {
	_, _ = tx.ExecContext(ctx, fmt.Sprintf("SET SESSION innodb_lock_wait_timeout=%d", proofLockWait))
	var seconds int64
	err := tx.QueryRowContext(ctx, "SELECT @@innodb_lock_wait_timeout").Scan(&seconds)
	return time.Duration(seconds) * time.Second, err
}

const (
	tryLock = "SELECT id FROM {log}{by id} WHERE id={id}{lock}"
	tryRead = "SELECT id FROM {log}{by id} WHERE id={id}"
)

// The row must be visible without locks first. Otherwise an empty result would not show that it was skipped.
func (p *proof) trySkipLocked(ctx context.Context, id processlog.ID) error {
	visible, skipped := false, false
	err := p.look(ctx, p.s.database(), sql.LevelReadUncommitted, func(ctx context.Context, tx *sql.Tx) error {
		read := func(lock string) ([]processlog.ID, error) {
			return queryIDs(ctx, tx, p.s.sql(tryLock, "id", id.String(), "lock", lock))
		}
		rows, err := read("")
		visible = len(rows) == 1
		if err == nil && visible {
			rows, err = read(p.s.d.skipLocked)
			skipped = err == nil && len(rows) == 0
		}
		return nil
	})
	if err = unlessRefused(err); err != nil || skipped {
		return err
	}
	p.s.d.halves = true
	p.note("SKIP LOCKED does not skip locked rows, or that could not be tried", "locked rows are found by NOWAIT on halves of the rows, which costs more statements when rows are locked")
	return nil
}

func (p *proof) tryReadCommitted(ctx context.Context, id processlog.ID) error {
	seen, err := p.showsRow(ctx, id, sql.LevelReadCommitted)
	if seen {
		p.refuse("shows uncommitted rows to a transaction at READ COMMITTED", "an entry could run that is rolled back later; connect to the database itself")
	}
	return err
}

// tryIsolation checks whether transactions run at READ COMMITTED. If the server ignores the level that a transaction
// requests, the default level of the pool's sessions must be READ COMMITTED. The default level of the library's own
// connections must always be READ COMMITTED.
func (p *proof) tryIsolation(ctx context.Context, id processlog.ID) error {
	if p.s.ownPool != nil {
		level, err := readIsolation(ctx, p.s.ownPool)
		if err != nil {
			return err
		}
		p.refuseLevel(level, "connections of the library's own")
	}
	uncommitted, err := p.showsRow(ctx, id, sql.LevelReadUncommitted)
	if err = unlessRefused(err); err != nil || uncommitted {
		return err
	}
	level, err := readIsolation(ctx, p.s.db)
	p.refuseLevel(level, "the pool's connections")
	return err
}

func (p *proof) refuseLevel(level, whose string) {
	if !strings.EqualFold(level, "READ-COMMITTED") {
		p.refuse("does not set the requested isolation level of a transaction, and the level of "+whose+" is "+level,
			"set transaction_isolation='READ-COMMITTED' in the DSN or on the server")
	}
}

func (p *proof) showsRow(ctx context.Context, id processlog.ID, level sql.IsolationLevel) (seen bool, err error) {
	err = p.look(ctx, p.s.db, level, func(ctx context.Context, tx *sql.Tx) error {
		rows, err := queryIDs(ctx, tx, p.s.sql(tryRead, "id", id.String()))
		seen = len(rows) == 1
		return err
	})
	return seen, err
}

// unlessRefused removes the error of a statement that the server refused, because a refusal is a valid result of a
// trial. It returns nil for such an error. It returns err unchanged if the session has ended or the server gave no
// answer.
func unlessRefused(err error) error {
	if answer := (*mysql.MySQLError)(nil); errors.As(err, &answer) && !lostConnection(err) {
		return nil
	}
	return err
}

func readIsolation(ctx context.Context, db *sql.DB) (level string, err error) {
	var name string
	err = db.QueryRowContext(ctx, "SHOW VARIABLES WHERE Variable_name IN ('transaction_isolation','tx_isolation')").Scan(&name, &level)
	return level, err
}
