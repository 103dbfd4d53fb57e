package sqlstore

import (
	"context"
	"database/sql"
	"encoding/hex"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/compensator-go/compensator/internal/txwatch"
	"github.com/compensator-go/compensator/processlog"
)

// Statements of ours run in three kinds of sessions, and must mean the same in each:
//
//   - Sessions of the library's own pool, behind a Connector. ownTransactions and ownSettings set them up once.
//   - Sessions of the user's pool, outside his transactions. Anybody may have changed their variables since New looked.
//     calm overrides those variables for one statement.
//   - The user's transaction. Nothing is overridden there. Texts travel in a form that no charset changes, and
//     guardedKey refuses the INSERT where the session would write something else.
//
// promises/servers/session_variables_test.go has the table of all variables, and tries each.

const (
	// ownTransactions and ownSettings make a session independent of the DSN and of the server's defaults. The short wait for
	// row locks keeps one held row from holding up a whole batch. The short wait for metadata locks ends a blocked
	// statement on the server before the engine gives it up: a given-up statement keeps its session until it ends.
	ownTransactions = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE"
	ownSettings     = "SET NAMES utf8mb4, SESSION innodb_lock_wait_timeout=2, lock_wait_timeout=5, autocommit=1, completion_type=0, " +
		"sql_mode='STRICT_ALL_TABLES', sql_select_limit=18446744073709551615, sql_safe_updates=0, sql_big_selects=1, unique_checks=1, foreign_key_checks=1"
	ownLeastSettings = "SET SESSION innodb_lock_wait_timeout=2, autocommit=1, sql_mode='STRICT_ALL_TABLES'"
)

// calmHints overrides for one statement, on MySQL, what ownSettings sets for a session. MySQL has no hint for
// innodb_lock_wait_timeout. A hint for timestamp must not stand here: in a prepared statement MySQL 9.7 sets the session's
// clock for good by it. See steady.
const calmHints = "SET_VAR(lock_wait_timeout=5) SET_VAR(sql_select_limit=18446744073709551615) SET_VAR(sql_big_selects=1) " +
	"SET_VAR(sql_safe_updates=0) SET_VAR(unique_checks=1) SET_VAR(foreign_key_checks=1)"

// calmMySQL adds calmHints to the hints behind the statement's first word.
func calmMySQL(query string) string {
	verb, rest, _ := strings.Cut(query, " ")
	if hints, more, found := strings.Cut(strings.TrimPrefix(rest, "/*+ "), " */"); found && strings.HasPrefix(rest, "/*+ ") {
		return verb + " /*+ " + hints + " " + calmHints + " */" + more
	}
	return verb + " /*+ " + calmHints + " */ " + rest
}

// calmMariaDB puts the statement behind SET STATEMENT, or adds to the one that is there.
func calmMariaDB(query string) string {
	if more, found := strings.CutPrefix(query, "SET STATEMENT "); found {
		return txwatch.Calm + ", " + more
	}
	return txwatch.Calm + " FOR " + query
}

// steady ends the condition of an UPDATE that writes a lease. In a session of the user's pool with a timestamp of its own a
// lease would be over at once, or never, and an entry be early. There the UPDATE changes no row, and the claim is tried again.
// calm does the same for all statements on MariaDB, and our own sessions have the server's clock.
func (s *Store) steady() string {
	if s.own != nil || s.d.steady == "" {
		return ""
	}
	return " AND " + s.d.steady
}

// ours sends statements of the library's own, outside a caller's transaction.
type ours struct {
	processlog.Tx
	s *Store
}

// ExecContext implements Tx.
func (o ours) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return o.Tx.ExecContext(ctx, o.s.calm(query), args...)
}

// QueryContext implements Tx.
func (o ours) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return o.Tx.QueryContext(ctx, o.s.calm(query), args...)
}

// oursTx is ours in a transaction that the library has begun for statements of its own.
type oursTx struct {
	ours
	tx processlog.Transaction
}

// Commit implements Transaction.
func (o oursTx) Commit() error { return o.tx.Commit() }

// Rollback implements Transaction.
func (o oursTx) Rollback() error { return o.tx.Rollback() }

// calm returns the text of a statement that runs in a session of the user's pool. Sessions of our own are set up already.
func (s *Store) calm(query string) string {
	if s.own != nil || s.d.calm == nil {
		return query
	}
	return s.d.calm(query)
}

// mysqlFit is true in a session whose INSERT writes what it is sent, and whose answers can be read:
//
//   - unique_checks=0 lets InnoDB store a second row of the same idempotency key.
//   - SET timestamp moves UTC_TIMESTAMP, so an entry would be due too early or never. SYSDATE reads the clock. In the hour
//     that a time zone has twice it may be off by that hour.
//   - A charset of two bytes or more a character garbles every literal. Charset swe7 has other letters in the place of brackets
//     and braces, and contents are JSON as a rule.
//   - A charset of results of two bytes or more a character garbles every number that is read.
var mysqlFit = strings.Join(mysqlFits[:], " AND ")

var mysqlFits = [...]string{"@@unique_checks=1", mysqlSteady, mysqlASCII, "COALESCE(@@character_set_results,'') NOT IN ('ucs2','utf16','utf16le','utf32')"}

// mysqlASCII is true in a session whose ASCII literals are stored as they are. It sends such letters, and compares their bytes.
const mysqlASCII = "OCTET_LENGTH(SPACE(1))=1 AND HEX(CONVERT('[^{|}~' USING utf8mb4))='5B5E7B7C7D7E'"

// mysqlSteady is true in a session that has the server's clock.
const mysqlSteady = "ABS(UNIX_TIMESTAMP(SYSDATE())-@@timestamp)<10000"

// whyRefused reads why guardedKey has refused an INSERT, in the caller's transaction. It returns nil where only the missing
// transaction is left as a reason.
func (s *Store) whyRefused(ctx context.Context, tx processlog.Tx) error {
	if err := s.elsewhere(ctx, tx); err != nil || s.d.fit == "" {
		return err
	}
	// Bytes are sent as they are, whatever the charset of the results is.
	rows, err := tx.QueryContext(ctx, "SELECT "+mysqlTexts("@@unique_checks, "+strings.Join(mysqlFits[:], ", ")))
	if err != nil {
		return nil // The error at hand says more.
	}
	defer rows.Close()
	var checks string
	var unique, now, ascii, results bool
	if !rows.Next() || rows.Scan(&checks, &unique, &now, &ascii, &results) != nil {
		return nil
	}
	switch {
	case !unique:
		return &processlog.FieldError{Field: "unique_checks", Reason: "is " + checks + " in this transaction's session: an idempotent id could be recorded twice; SET unique_checks=1"}
	case !now:
		return &processlog.FieldError{Field: "timestamp", Reason: "is set in this transaction's session: the entry would be due by that clock; SET timestamp=DEFAULT"}
	case !ascii:
		return &processlog.FieldError{Field: "character_set_connection", Reason: "takes some ASCII letters for others, or more than one byte for each, in this transaction's session; SET NAMES utf8mb4"}
	case !results:
		return &processlog.FieldError{Field: "character_set_results", Reason: "takes more than one byte for a letter in this transaction's session, so no id could be read; SET NAMES utf8mb4"}
	}
	return nil
}

// atMost ends a SELECT that returns up to n rows. Without a LIMIT of its own the session's sql_select_limit would apply.
func atMost(n int) string { return " LIMIT " + strconv.Itoa(n) }

// everyRow ends a SELECT of the user's transaction that returns all rows.
const everyRow = " LIMIT 9223372036854775807"

// params returns placeholders for keys, and the arguments.
func (d *dialect) params(keys []processlog.IdempotencyKey) (string, []any) {
	placeholder, args := "?", make([]any, len(keys))
	for i, key := range keys {
		args[i] = string(key)
		if d.hexText != "" && !isASCII(string(key)) {
			placeholder = d.hexText
		}
	}
	if placeholder != "?" {
		for i, key := range keys {
			args[i] = hex.EncodeToString([]byte(key))
		}
	}
	return strings.TrimSuffix(strings.Repeat(placeholder+",", len(keys)), ","), args
}

// isASCII reports whether every charset that a client may have reads s as it is.
func isASCII[T string | []byte](s T) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// pool is where statements of our own run.
func (s *Store) pool() processlog.Tx { return bounded{ours{s.database(), s}} }

// database is the pool whose connections our own statements use.
func (s *Store) database() *sql.DB {
	if s.own != nil {
		return s.own
	}
	return s.db
}
