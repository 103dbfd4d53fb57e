package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"time"

	"github.com/compensator-go/compensator/internal/mysqlerr"
	"github.com/compensator-go/compensator/internal/txwatch"
	"github.com/compensator-go/compensator/processlog"
)

const (
	// ShortRowWait makes the server end a statement that waits for a lock, before the engine gives the statement up.
	//
	// MySQL reads the text of sql_mode before SET NAMES takes effect. At this moment, the session may still use two
	// bytes for each character. So the prefix _ascii says that the text is in ASCII.
	ownTransactions = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE"
	ownSettings     = "SET NAMES utf8mb4, SESSION " + txwatch.ShortRowWait + ", lock_wait_timeout=5, autocommit=1, completion_type=0, timestamp=DEFAULT, " +
		"sql_mode=_ascii'STRICT_ALL_TABLES', sql_select_limit=18446744073709551615, sql_safe_updates=0, sql_big_selects=1, unique_checks=1, foreign_key_checks=1"
	ownLeastSettings = "SET SESSION " + txwatch.ShortRowWait + ", autocommit=1, sql_mode='STRICT_ALL_TABLES'"
)

// With these settings the server ends a session of the library if the library sends nothing for 60 seconds during a
// transaction. So a process that hangs does not keep its locks. MariaDB's setting applies only during a transaction.
// MySQL's setting applies to every idle session. So the library's own pool itself closes idle connections earlier,
// after idleInPool.
const (
	idleMariaDB = ", idle_transaction_timeout=60"
	idleMySQL   = ", wait_timeout=60"
	idleInPool  = 30 * time.Second
)

// setUpMySQL returns a setUp that sends ownTransactions, and then ownSettings together with the parameter idle. The
// parameter idle is idleMariaDB or idleMySQL. If the server lacks a variable of ownSettings or idle, it refuses the
// whole statement. Then the setUp sends ownLeastSettings instead.
func setUpMySQL(idle string) setUp {
	return func(ctx context.Context, conn driver.ExecerContext) error {
		_, err := conn.ExecContext(ctx, ownTransactions, nil)
		switch {
		case errors.Is(err, driver.ErrSkip):
			return errors.New("the MySQL driver runs no statements on a bare connection")
		case err != nil:
			return err
		}
		if _, err = conn.ExecContext(ctx, ownSettings+idle, nil); mysqlerr.Number(err) != 0 {
			_, err = conn.ExecContext(ctx, ownLeastSettings, nil)
		}
		return err
	}
}

// calmHints sets for one statement what ownSettings sets for a session. No hint for timestamp may stand here: in a
// prepared statement it changes the session's clock permanently on MySQL 9.7.
const calmHints = "SET_VAR(lock_wait_timeout=5) SET_VAR(sql_select_limit=18446744073709551615) SET_VAR(sql_big_selects=1) " +
	"SET_VAR(sql_safe_updates=0) SET_VAR(unique_checks=1) SET_VAR(foreign_key_checks=1)"

func calmMySQL(query string) string {
	verb, rest, _ := strings.Cut(query, " ")
	if hints, more, found := strings.Cut(strings.TrimPrefix(rest, "/*+ "), " */"); found && strings.HasPrefix(rest, "/*+ ") {
		return verb + " /*+ " + hints + " " + calmHints + " */" + more
	}
	return verb + " /*+ " + calmHints + " */ " + rest
}

func calmMariaDB(query string) string {
	if more, found := strings.CutPrefix(query, "SET STATEMENT "); found {
		return txwatch.Calm + ", " + more
	}
	return txwatch.Calm + " FOR " + query
}

// mysqlFit is an SQL condition that is true if the session is fit for the library. In such a session an INSERT stores
// exactly the bytes that it is sent, and the answers can be read. With unique_checks=0, InnoDB may store an idempotency
// key twice.
var mysqlFit = strings.Join(mysqlFits[:], " AND ")

var mysqlFits = [...]string{"@@unique_checks=1", mysqlSteady, mysqlASCII, "COALESCE(@@character_set_results,'') NOT IN ('ucs2','utf16','utf16le','utf32')"}

// mysqlASCII is an SQL condition that is true in a session that stores ASCII literals unchanged.
const mysqlASCII = "OCTET_LENGTH(SPACE(1))=1 AND HEX(CONVERT('[^{|}~' USING utf8mb4))='5B5E7B7C7D7E'"

// mysqlSteady is an SQL condition that is false in a session whose timestamp was set, so that its clock stands still.
// The condition allows a difference of 10,000 seconds to SYSDATE. The reason is that SYSDATE may be wrong by one hour
// when a time zone changes.
const mysqlSteady = "ABS(UNIX_TIMESTAMP(SYSDATE())-@@timestamp)<10000"

func mysqlWhyUnfit(ctx context.Context, tx processlog.Tx) error {
	// The session's result charset may be the problem, so mysqlTexts makes the query return bytes. The server sends
	// bytes unchanged.
	rows, err := tx.QueryContext(ctx, "SELECT "+mysqlTexts("@@unique_checks, "+strings.Join(mysqlFits[:], ", ")))
	if err != nil {
		return nil // The caller already has an error that says more.
	}
	defer rows.Close()
	var checks string
	var unique, now, ascii, results bool
	if !rows.Next() || rows.Scan(&checks, &unique, &now, &ascii, &results) != nil {
		return nil
	}
	switch {
	case !unique:
		return sessionError("unique_checks", "is "+checks+" in this transaction's session: an idempotency key could be recorded twice; SET unique_checks=1")
	case !now:
		return sessionError("timestamp", "is set in this transaction's session: the entry would be due by that clock; SET timestamp=DEFAULT")
	case !ascii:
		return sessionError("character_set_connection", "changes some ASCII letters, or uses more than one byte for each, in this transaction's session; SET NAMES utf8mb4")
	case !results:
		return sessionError("character_set_results", "uses more than one byte for a letter in this transaction's session, so no id could be read; SET NAMES utf8mb4")
	}
	return nil
}

func (s *Store) readUsersLatest(ctx context.Context, read func(readTx processlog.Tx) error) error {
	var err error
	for range s.db.Stats().OpenConnections + 1 {
		var conn *sql.Conn
		if conn, err = s.users.Conn(ctx); err != nil {
			return err
		}
		if _, err = conn.ExecContext(ctx, s.d.latest); err == nil {
			err = read(ownStatements{conn, s})
			if !processlog.IsSessionError(err) {
				_ = conn.Close()
				return err
			}
		} else if !mysqlerr.IsInsideTransaction(err) && !errors.Is(err, driver.ErrBadConn) {
			_ = conn.Close()
			return err
		}
		txwatch.ThrowAway(ctx, conn, err)
	}
	return err
}
