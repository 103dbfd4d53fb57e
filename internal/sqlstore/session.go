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
//   - A session of the library's own pool, which exists if the database was opened on a Connector. The library sets
//     the session up once, with ownTransactions and ownSettings.
//   - A session of the user's pool, outside the user's transactions. The session's variables may have changed since New
//     read them. The function calm overrides these variables for one statement.
//   - A session in which the user has begun a transaction. The library overrides no variable there. It sends texts in a
//     form that no charset changes. An INSERT of entries contains a guardedKey, which makes the INSERT fail if the
//     session would store another value than the one that was sent.
//
// promises/servers/session_variables_test.go lists all variables, and tries each.

// steady returns the last condition of an UPDATE that writes a lease. The condition is false in a session whose
// timestamp was set, so the UPDATE changes no row there. By the clock of such a session, a lease could end at once or
// never.
func (s *Store) steady() string {
	if s.ownPool != nil || s.d.steady == "" {
		return ""
	}
	return " AND " + s.d.steady
}

// wrongClock returns a suffix for a query that looks for due entries. In a session whose timestamp was set, due entries
// may not seem due. So the suffix adds the given row to the result there, and the caller sees that the result is wrong.
func (s *Store) wrongClock(row string) string {
	if s.ownPool != nil || s.d.steady == "" {
		return ""
	}
	return " UNION ALL SELECT " + row + " FROM DUAL WHERE NOT (" + s.d.steady + ")"
}

var errWrongClock = sessionError("timestamp", "is set in this session: entries would be due by that clock; SET timestamp=DEFAULT")

// discardWrongClock checks the session of tx, a transaction in the user's pool. If the session's timestamp was set, or
// the session fails another condition of dialect.fit, the pool closes the session when tx ends.
func (s *Store) discardWrongClock(ctx context.Context, tx processlog.Tx) {
	if s.steady() != "" {
		s.discardSession(ctx, tx, s.d.whyUnfit(ctx, tx))
	}
}

type ownStatements struct {
	processlog.Tx
	s *Store
}

func (o ownStatements) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return o.Tx.ExecContext(ctx, o.s.calm(query), args...)
}

func (o ownStatements) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return o.Tx.QueryContext(ctx, o.s.calm(query), args...)
}

type ownTx struct {
	ownStatements
	tx processlog.Transaction
}

func (o ownTx) Commit() error { return o.tx.Commit() }

func (o ownTx) Rollback() error { return o.tx.Rollback() }

// calm returns the query in a form whose meaning does not depend on the session's variables. The variables of the
// library's own sessions are known, so calm returns the query unchanged for them.
func (s *Store) calm(query string) string {
	if s.ownPool != nil || s.d.calm == nil {
		return query
	}
	return s.d.calm(query)
}

// whyRefused returns the reason why guardedKey refused the INSERT: the database of tx, or a setting of its session. nil
// means that neither is the reason. guardedKey has only one other condition: tx must be open.
func (s *Store) whyRefused(ctx context.Context, tx processlog.Tx) error {
	if err := s.wrongSchema(ctx, tx); err != nil || s.d.fit == "" {
		return err
	}
	return s.d.whyUnfit(ctx, tx)
}

func sessionError(field, reason string) error {
	return &processlog.SessionError{Refusal: &processlog.FieldError{Field: field, Reason: reason}}
}

// discardSession makes the pool close the session when tx ends, if err is a session error and the library began tx.
func (s *Store) discardSession(ctx context.Context, tx processlog.Tx, err error) {
	if processlog.IsSessionError(err) {
		ctx, question := txwatch.Ask(ctx)
		question.Discard = true
		// A watched connection reads question.Discard, and answers the probe itself. It sends nothing to the server.
		_ = s.d.probe(ctx, tx)
	}
}

// everyRow overrides the session's sql_select_limit.
const everyRow = " LIMIT 9223372036854775807"

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

// isASCII reports whether the text s contains only ASCII characters. Each session charset that mysqlASCII accepts keeps
// such a text unchanged.
func isASCII[T string | []byte](s T) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func (s *Store) pool() processlog.Tx { return bounded{ownStatements{s.database(), s}} }

func (s *Store) database() *sql.DB {
	if s.ownPool != nil {
		return s.ownPool
	}
	return s.db
}
