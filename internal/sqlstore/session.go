package sqlstore

import (
	"context"
	"database/sql"
	"encoding/hex"
	"strings"
	"unicode/utf8"

	"github.com/compensator-go/compensator/internal/txwatch"
	"github.com/compensator-go/compensator/processlog"
)

// The library's statements run in three kinds of sessions, and must mean the same in each:
//
//   - Sessions of the library's own pool, behind a Connector. ownTransactions and ownSettings set them up once.
//   - Sessions of the user's pool, outside the user's transactions. Their variables may have changed since New read
//     them. calm overrides those variables for one statement.
//   - The user's transaction. There the library overrides nothing. Texts travel in a form that no charset changes.
//     guardedKey refuses the INSERT if the session would store something else.
//
// promises/servers/session_variables_test.go lists all variables, and tries each.

const (
	// ownTransactions and ownSettings make a session independent of the DSN and of the server's defaults.
	//
	// The short wait for row locks keeps one locked row from delaying a whole batch. The short wait for metadata locks
	// ends a blocked statement on the server before the engine gives the statement up. A statement that the engine gave
	// up would keep its session until it ends.
	ownTransactions = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE"
	ownSettings     = "SET NAMES utf8mb4, SESSION innodb_lock_wait_timeout=2, lock_wait_timeout=5, autocommit=1, completion_type=0, " +
		"sql_mode='STRICT_ALL_TABLES', sql_select_limit=18446744073709551615, sql_safe_updates=0, sql_big_selects=1, unique_checks=1, foreign_key_checks=1"
	ownLeastSettings = "SET SESSION innodb_lock_wait_timeout=2, autocommit=1, sql_mode='STRICT_ALL_TABLES'"
)

// calmHints sets for one statement, on MySQL, what ownSettings sets for a session. MySQL has no hint for
// innodb_lock_wait_timeout. A hint for timestamp must not stand here: in a prepared statement, MySQL 9.7 changes the
// session's clock permanently by such a hint. See steady.
const calmHints = "SET_VAR(lock_wait_timeout=5) SET_VAR(sql_select_limit=18446744073709551615) SET_VAR(sql_big_selects=1) " +
	"SET_VAR(sql_safe_updates=0) SET_VAR(unique_checks=1) SET_VAR(foreign_key_checks=1)"

// calmMySQL adds calmHints to the hints after the statement's first word.
func calmMySQL(query string) string {
	verb, rest, _ := strings.Cut(query, " ")
	if hints, more, found := strings.Cut(strings.TrimPrefix(rest, "/*+ "), " */"); found && strings.HasPrefix(rest, "/*+ ") {
		return verb + " /*+ " + hints + " " + calmHints + " */" + more
	}
	return verb + " /*+ " + calmHints + " */ " + rest
}

// calmMariaDB wraps the statement in SET STATEMENT, or extends the SET STATEMENT that is there.
func calmMariaDB(query string) string {
	if more, found := strings.CutPrefix(query, "SET STATEMENT "); found {
		return txwatch.Calm + ", " + more
	}
	return txwatch.Calm + " FOR " + query
}

// steady returns the last condition of an UPDATE that writes a lease. In the user's pool a session may have set its own
// timestamp. A lease by that clock could be over at once, or last forever, and an entry could run early. With steady
// such an UPDATE changes no row, and the claim is tried again.
//
// On MariaDB calm ensures the same for all statements. The library's own sessions use the server's clock.
func (s *Store) steady() string {
	if s.own != nil || s.d.steady == "" {
		return ""
	}
	return " AND " + s.d.steady
}

// ours sends the library's own statements, outside the caller's transactions.
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

// oursTx is ours in a transaction that the library began for its own statements.
type oursTx struct {
	ours
	tx processlog.Transaction
}

// Commit implements Transaction.
func (o oursTx) Commit() error { return o.tx.Commit() }

// Rollback implements Transaction.
func (o oursTx) Rollback() error { return o.tx.Rollback() }

// calm returns the text of a statement for a session of the user's pool. The library's own sessions need no change of
// the text.
func (s *Store) calm(query string) string {
	if s.own != nil || s.d.calm == nil {
		return query
	}
	return s.d.calm(query)
}

// mysqlFit is true in a session whose INSERT stores exactly what it is sent, and whose answers can be read:
//
//   - unique_checks=0 lets InnoDB store a second row of the same idempotency key.
//   - SET timestamp changes UTC_TIMESTAMP, so an entry would be due too early or never. SYSDATE reads the real clock.
//     SYSDATE may be off by one hour in the hour that a time zone repeats.
//   - A charset with two or more bytes per character garbles every literal. Charset swe7 has other letters in place of
//     brackets and braces, and contents are usually JSON.
//   - A result charset with two or more bytes per character garbles every number that is read.
var mysqlFit = strings.Join(mysqlFits[:], " AND ")

var mysqlFits = [...]string{"@@unique_checks=1", mysqlSteady, mysqlASCII, "COALESCE(@@character_set_results,'') NOT IN ('ucs2','utf16','utf16le','utf32')"}

// mysqlASCII is true in a session that stores ASCII literals unchanged. The condition sends the critical characters,
// and compares their bytes.
const mysqlASCII = "OCTET_LENGTH(SPACE(1))=1 AND HEX(CONVERT('[^{|}~' USING utf8mb4))='5B5E7B7C7D7E'"

// mysqlSteady is true in a session that uses the server's clock.
const mysqlSteady = "ABS(UNIX_TIMESTAMP(SYSDATE())-@@timestamp)<10000"

// whyRefused finds out, in the caller's transaction, why guardedKey refused an INSERT. It returns nil if the missing
// transaction is the only reason left.
func (s *Store) whyRefused(ctx context.Context, tx processlog.Tx) error {
	if err := s.wrongSchema(ctx, tx); err != nil || s.d.fit == "" {
		return err
	}
	// mysqlTexts sends bytes unchanged in every result charset.
	rows, err := tx.QueryContext(ctx, "SELECT "+mysqlTexts("@@unique_checks, "+strings.Join(mysqlFits[:], ", ")))
	if err != nil {
		return nil // The caller's error says more.
	}
	defer rows.Close()
	var checks string
	var unique, now, ascii, results bool
	if !rows.Next() || rows.Scan(&checks, &unique, &now, &ascii, &results) != nil {
		return nil
	}
	switch {
	case !unique:
		return &processlog.FieldError{Field: "unique_checks", Reason: "is " + checks + " in this transaction's session: an idempotency key could be recorded twice; SET unique_checks=1"}
	case !now:
		return &processlog.FieldError{Field: "timestamp", Reason: "is set in this transaction's session: the entry would be due by that clock; SET timestamp=DEFAULT"}
	case !ascii:
		return &processlog.FieldError{Field: "character_set_connection", Reason: "changes some ASCII letters, or uses more than one byte for each, in this transaction's session; SET NAMES utf8mb4"}
	case !results:
		return &processlog.FieldError{Field: "character_set_results", Reason: "uses more than one byte for a letter in this transaction's session, so no id could be read; SET NAMES utf8mb4"}
	}
	return nil
}

// everyRow ends a SELECT that returns all rows. Without a LIMIT of its own, the session's sql_select_limit would apply.
const everyRow = " LIMIT 9223372036854775807"

// params returns the placeholders for keys, and their arguments.
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

// isASCII reports whether s is ASCII. The session charsets that mysqlASCII accepts read such a text unchanged.
func isASCII[T string | []byte](s T) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// pool returns the handle for the library's own statements.
func (s *Store) pool() processlog.Tx { return bounded{ours{s.database(), s}} }

// database returns the pool whose connections the library's own statements use.
func (s *Store) database() *sql.DB {
	if s.own != nil {
		return s.own
	}
	return s.db
}
