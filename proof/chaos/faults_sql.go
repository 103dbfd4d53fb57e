package chaos

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/proof/chaos/history"
)

const sqlClockMoved = "database clock moved"

var (
	wholeDatabase = []string{history.TouchesDatabase}
	rowLocks      = []string{history.TouchesLocks}
)

var sqlFaults = []fault{
	{kind: "database killed", takes: 3 * time.Second, holds: 0.5, touches: wholeDatabase, needs: sqlServer, strike: func(k *strike) error {
		k.begin("database")
		k.sql.Kill()
		k.hold(0.5)
		k.sql.Restart(k.tb)
		return nil
	}},
	{kind: "database restarted", takes: 3 * time.Second, holds: 0.5, touches: wholeDatabase, needs: sqlServer, strike: func(k *strike) error {
		k.begin("database")
		k.sql.Stop()
		k.hold(0.5)
		k.sql.Restart(k.tb)
		return nil
	}},
	{kind: "database paused", holds: 1, touches: wholeDatabase, needs: sqlServer, strike: func(k *strike) error {
		k.begin("database")
		k.sql.Pause()
		k.hold(1)
		k.sql.Resume()
		return nil
	}},
	{kind: "database read-only", takes: time.Second, holds: 0.7, touches: wholeDatabase, needs: "read-only", shares: sqlServer, strike: (*strike).makeReadOnly},
	{kind: "connections killed", takes: time.Second, touches: wholeDatabase, shares: sqlServer, strike: (*strike).killConnections},
	{kind: "rows locked", takes: 3 * time.Second, holds: 1, touches: rowLocks, shares: sqlServer, strike: (*strike).lockRows},
	{kind: "rows locked crosswise", takes: 500 * time.Millisecond, holds: 0.5, touches: rowLocks, shares: sqlServer, strike: (*strike).lockCrosswise},
	{kind: "old read view", holds: 3, touches: nil, shares: sqlServer, strike: (*strike).keepReadView},
	{kind: "table altered", takes: 2 * time.Second, holds: 0.3, touches: []string{history.TouchesLocks, history.TouchesDatabase}, needs: "table", shares: sqlServer, strike: (*strike).alterTable},
	{kind: "purge", takes: 500 * time.Millisecond, holds: 1, touches: nil, needs: "read-only", shares: sqlServer, strike: (*strike).purge},
	{kind: sqlClockMoved, holds: 1, touches: []string{history.TouchesDBClock}, needs: sqlClockMoved, strike: func(k *strike) error {
		return k.moveClock(sqlClock)
	}},
}

func (k *strike) moveClock(clock string) error {
	by := k.between(-8, 8, 1)
	k.begin(clock, by)
	if err := k.clocks.set(clock, by); err != nil {
		return err
	}
	k.insistOnClocks()
	k.hold(1)
	err := k.clocks.set(clock, 0)
	k.insistOnClocks()
	return err
}

// insistOnClocks tries to write a reading of the clocks into the history. The checker uses this reading to convert the
// database's times, so the history needs a reading between any two changes of a clock.
func (k *strike) insistOnClocks() {
	for tries := 0; tries < 20 && !k.readClocks(); tries++ {
		wait(k.ctx, 50*time.Millisecond)
	}
}

func (k *strike) makeReadOnly() error {
	k.begin("database")
	if err := k.insist(3, "SET GLOBAL read_only=1"); err != nil {
		return err
	}
	k.hold(0.7)
	return k.rootExec("SET GLOBAL read_only=0")
}

func (k *strike) rootExec(query string, args ...any) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(k.ctx), time.Minute)
	defer cancel()
	if _, err := k.db.ExecContext(ctx, query, args...); err != nil {
		return fmt.Errorf("%s: %w", query, err)
	}
	return nil
}

func (k *strike) killConnections() error {
	k.begin("database")
	query := "SELECT id FROM information_schema.processlist WHERE user='app' ORDER BY RAND() LIMIT 5"
	if k.sql.Flavor == "mysql" { // MySQL cannot return its process list while a statement holds binary text.
		query = "SELECT processlist_id FROM performance_schema.threads WHERE processlist_user='app' ORDER BY RAND() LIMIT 5"
	}
	rows, err := k.db.QueryContext(k.ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return err
		}
		if err := k.rootExec(fmt.Sprint("KILL ", id)); err != nil && !isServerError(err, 1094) { // Error 1094 means that the connection has already ended.
			return err
		}
	}
	return rows.Err()
}

func isServerError(err error, numbers ...uint16) bool {
	var answer *mysql.MySQLError
	if !errors.As(err, &answer) {
		return false
	}
	for _, n := range numbers {
		if answer.Number == n {
			return true
		}
	}
	return false
}

func (k *strike) someEntries(n int) ([]uint64, error) {
	rows, err := k.db.QueryContext(k.ctx, "SELECT id FROM common_process_log WHERE state IN (0,-1,-3) ORDER BY RAND() LIMIT ?", n)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var ids []uint64
	for rows.Next() {
		var id uint64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

func (k *strike) lockRows() error {
	k.begin("database")
	until := time.Now().Add(k.lasting(1))
	for time.Now().Before(until) && k.ctx.Err() == nil {
		err := k.inRootTx(func(tx *sql.Tx) error {
			ids, err := k.someEntries(50)
			if err != nil || len(ids) == 0 {
				return err
			}
			if _, err := tx.Exec("SELECT " + history.NemesisComment + " COUNT(*) FROM common_process_log WHERE id IN (" + list(ids) + ") FOR UPDATE"); err != nil {
				return err
			}
			wait(k.ctx, k.between(1, 3, 1))
			return nil
		})
		if err != nil && !isServerError(err, 1205, 1213) {
			return err
		}
	}
	return nil
}

// lockCrosswise locks entries in another order than the library does, so that deadlocks happen.
func (k *strike) lockCrosswise() error {
	k.begin("database")
	until := time.Now().Add(k.lasting(0.5))
	for time.Now().Before(until) && k.ctx.Err() == nil {
		err := k.inRootTx(func(tx *sql.Tx) error {
			ids, err := k.someEntries(6)
			for _, id := range ids {
				if err == nil {
					_, err = tx.Exec("UPDATE "+history.NemesisComment+" common_process_log SET batch_id=batch_id WHERE id=?", id)
				}
				wait(k.ctx, 20*time.Millisecond)
			}
			return err
		})
		if err != nil && !isServerError(err, 1205, 1213) {
			return err
		}
	}
	return nil
}

func list(ids []uint64) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(ids), " ", ","), "[]")
}

func (k *strike) inRootTx(run func(tx *sql.Tx) error) error {
	tx, err := k.db.BeginTx(k.ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer tx.Rollback()
	return run(tx)
}

func (k *strike) keepReadView() error {
	k.begin("database")
	conn, err := k.db.Conn(k.ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(k.ctx, "START TRANSACTION WITH CONSISTENT SNAPSHOT"); err != nil {
		return err
	}
	k.hold(3)
	_, err = conn.ExecContext(context.WithoutCancel(k.ctx), "ROLLBACK")
	return err
}

// All other statements on the table wait while the ALTER waits.
func (k *strike) alterTable() error {
	k.begin("database")
	if err := k.insist(3, "ALTER TABLE common_process_log ADD COLUMN extra INT NULL"); err != nil {
		return err
	}
	k.hold(0.3)
	return k.insist(20, "ALTER TABLE common_process_log DROP COLUMN extra")
}

func (k *strike) insist(maxTries int, query string) error {
	for tries := 1; ; tries++ {
		err := k.rootExec(query)
		switch {
		case err == nil || !isServerError(err, 1205, 1213):
			return err
		case tries == maxTries:
			return fmt.Errorf("%w: %w", errNothingHit, err)
		}
		wait(k.ctx, 200*time.Millisecond)
	}
}

func (k *strike) purge() error {
	k.begin("database")
	c, err := compensator.New(k.ctx, compensator.Config{DB: k.db, Operations: &compensator.Operations{Attempts: true}})
	if isServerError(err, 1205) {
		return errNothingHit
	}
	if err != nil {
		return err
	}
	defer c.Close()
	until := time.Now().Add(k.lasting(1))
	for time.Now().Before(until) && k.ctx.Err() == nil {
		if _, err := admin.Of(c).Purge(k.ctx, purgeAge); err != nil && !isServerError(err, 1205, 1213) {
			return err
		}
		wait(k.ctx, 300*time.Millisecond)
	}
	return nil
}
