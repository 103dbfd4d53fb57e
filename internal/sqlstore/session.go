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
//     them. The function calm overrides those variables for one statement.
//   - The user's transaction. In it the library overrides nothing. Texts are sent in a form that no charset changes.
//     guardedKey refuses the INSERT if the session would store something else.
//
// promises/servers/session_variables_test.go lists all variables, and tries each.

// steady returns the last condition of an UPDATE that writes a lease. A session of the user's pool may have set its own
// timestamp. By that clock a lease could end at once or never, and an entry could run early. In such a session the
// condition makes the UPDATE change no row, and the claim is tried again.
//
// On MariaDB, the function calm sets the clock for every statement instead. The library's own sessions use the server's
// clock.
func (s *Store) steady() string {
	if s.ownPool != nil || s.d.steady == "" {
		return ""
	}
	return " AND " + s.d.steady
}

// wrongClock returns the end of a SELECT that reads by the database's clock. A session with its own timestamp adds one row
// to the answer, with the values given in row. Without this row the session would show no due entry, and a pool may hand
// out the same session for every read.
func (s *Store) wrongClock(row string) string {
	if s.ownPool != nil || s.d.steady == "" {
		return ""
	}
	return " UNION ALL SELECT " + row + " FROM DUAL WHERE NOT (" + s.d.steady + ")"
}

// errWrongClock is the error of a session that has answered with the row of wrongClock.
var errWrongClock = sessionError("timestamp", "is set in this session: entries would be due by that clock; SET timestamp=DEFAULT")

// discardWrongClock makes the pool close the session when tx ends, if the session belongs to the user's pool and has
// its own timestamp. The library has begun tx.
func (s *Store) discardWrongClock(ctx context.Context, tx processlog.Tx) {
	if s.steady() != "" {
		s.discardSession(ctx, tx, s.d.whyUnfit(ctx, tx))
	}
}

// ownStatements sends the library's own statements outside the caller's transactions.
type ownStatements struct {
	processlog.Tx
	s *Store
}

// ExecContext implements Tx.
func (o ownStatements) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return o.Tx.ExecContext(ctx, o.s.calm(query), args...)
}

// QueryContext implements Tx.
func (o ownStatements) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return o.Tx.QueryContext(ctx, o.s.calm(query), args...)
}

// ownTx sends the library's own statements in a transaction that the library began.
type ownTx struct {
	ownStatements
	tx processlog.Transaction
}

// Commit implements Transaction.
func (o ownTx) Commit() error { return o.tx.Commit() }

// Rollback implements Transaction.
func (o ownTx) Rollback() error { return o.tx.Rollback() }

// calm returns the form of a statement that may run in a session of the user's pool. For the library's own sessions it
// returns the statement unchanged.
func (s *Store) calm(query string) string {
	if s.ownPool != nil || s.d.calm == nil {
		return query
	}
	return s.d.calm(query)
}

// whyRefused finds out, in the caller's transaction, why guardedKey refused an INSERT. It returns nil if the missing
// transaction is the only reason left.
func (s *Store) whyRefused(ctx context.Context, tx processlog.Tx) error {
	if err := s.wrongSchema(ctx, tx); err != nil || s.d.fit == "" {
		return err
	}
	return s.d.whyUnfit(ctx, tx)
}

// sessionError returns the error of a session in which the library writes nothing.
func sessionError(field, reason string) error {
	return &processlog.SessionError{Refusal: &processlog.FieldError{Field: field, Reason: reason}}
}

// discardSession makes the pool close the session of tx when tx ends, if err is a session error and the library began
// tx. Otherwise the pool would hand out the same session again.
func (s *Store) discardSession(ctx context.Context, tx processlog.Tx, err error) {
	if processlog.IsSessionError(err) {
		ctx, question := txwatch.Ask(ctx)
		question.Discard = true
		_ = s.d.probe(ctx, tx) // The watched connection answers this statement itself.
	}
}

// everyRow ends a SELECT that returns all rows. In a SELECT without a LIMIT, the session's sql_select_limit would
// apply.
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

// isASCII reports whether s is ASCII. Every session charset that mysqlASCII accepts keeps such a text unchanged.
func isASCII[T string | []byte](s T) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// pool returns the handle for the library's own statements.
func (s *Store) pool() processlog.Tx { return bounded{ownStatements{s.database(), s}} }

// database returns the pool whose connections the library's own statements use.
func (s *Store) database() *sql.DB {
	if s.ownPool != nil {
		return s.ownPool
	}
	return s.db
}
