package txwatch

import (
	"strings"
	"time"
)

type sqlKind uint8

const (
	sqlPlain      sqlKind = iota // has no effect on the transaction
	sqlDoubt                     // may begin or end a transaction; the server must be asked
	sqlAutocommit                // may begin or end a transaction; later transactions may begin without BEGIN
	sqlBegin
	sqlCommit
	sqlCommitChain // COMMIT AND CHAIN, which begins the next transaction
	sqlRollback
	sqlRollbackChain
	sqlSavepoint
	sqlRollbackTo
	sqlDDL // commits the open transaction as a side effect
	sqlXAStart
	sqlXAEnd
	sqlXAPrepare
	sqlXACommit
	sqlXARollback
)

// leads gives the kind of a statement by its first word. kindOf compares the words in this order, so frequent words
// come first. For any other first word the kind is sqlDoubt, so the library asks the server. The kind sqlPlain would be
// dangerous for an unknown word: if the statement has committed, the library would still believe that the transaction
// is open. The next entry would then commit by itself, and would run even if the caller rolls back. See promise G2.
var leads = [...]struct {
	word   string
	kind   sqlKind
	refine func(rest string) sqlKind // returns the kind if the first word does not decide it
}{
	{word: "SELECT"}, {word: "INSERT"}, {word: "UPDATE"}, {word: "DELETE"},
	{word: "SET", refine: kindOfSet},
	{word: "COMMIT", refine: kindOfCommit},
	{word: "ROLLBACK", refine: kindOfRollback},
	{word: "START", refine: kindOfStart},
	{word: "BEGIN", refine: kindOfBegin},
	{word: "SAVEPOINT", refine: kindOfSavepoint}, {word: "RELEASE"},
	{word: "REPLACE"}, {word: "WITH"}, {word: "VALUES"}, {word: "TABLE"}, {word: "DO"}, {word: "HANDLER"},
	{word: "SHOW"}, {word: "USE"}, {word: "EXPLAIN"}, {word: "DESCRIBE"}, {word: "DESC"},
	{word: "KILL", kind: sqlDoubt}, // KILL commits on Galera, also when it fails.
	{word: "PREPARE"}, {word: "DEALLOCATE"}, {word: "PRAGMA"},
	{word: "XA", refine: kindOfXA},
	{word: "CREATE", refine: kindOfTable},
	{word: "DROP", refine: kindOfTable},
	{word: "LOCK", refine: kindOfLock},
	{word: "ALTER", kind: sqlDDL}, {word: "TRUNCATE", kind: sqlDDL}, {word: "RENAME", kind: sqlDDL},
	{word: "GRANT", kind: sqlDDL}, {word: "REVOKE", kind: sqlDDL},
	{word: "OPTIMIZE", kind: sqlDDL}, {word: "REPAIR", kind: sqlDDL}, {word: "FLUSH", kind: sqlDDL},
	{word: "INSTALL", kind: sqlDDL}, {word: "UNINSTALL", kind: sqlDDL},
}

// RowWait is how long the library's statements wait for a row lock. ShortRowWait sets it in a session.
const (
	RowWait      = 2 * time.Second
	ShortRowWait = "innodb_lock_wait_timeout=2"
)

// Calm is the beginning of each statement that the library sends to MariaDB. It replaces values that the user may have
// given to session variables, for this statement only. The library may append further variables, and always appends the
// word FOR and the statement.
const Calm = "SET STATEMENT timestamp=0, lock_wait_timeout=5, " + ShortRowWait + ", sql_select_limit=18446744073709551615, sql_big_selects=1, " +
	"sql_safe_updates=0, unique_checks=1, foreign_key_checks=1"

// kindOf parses the beginning of a statement, without allocating. A text that may hold several statements is sqlDoubt.
func kindOf(query string) sqlKind {
	if calm, found := strings.CutPrefix(query, Calm); found {
		_, query, _ = strings.Cut(calm, " FOR ")
	}
	query, ok := skipBlank(query)
	// The server may have stopped after any of several statements.
	if !ok || hasSeveral(query) {
		return sqlDoubt
	}
	word, rest := nextWord(query)
	if word == "" {
		if query == "" || query[0] == '(' {
			// The statement is empty, or a query such as (SELECT …) UNION …, which leaves the transaction open.
			return sqlPlain
		}
		return sqlDoubt
	}
	for i := range leads {
		if lead := &leads[i]; strings.EqualFold(lead.word, word) {
			if lead.refine != nil {
				return lead.refine(rest)
			}
			return lead.kind
		}
	}
	return sqlDoubt
}

func kindOfBegin(rest string) sqlKind {
	word, _ := nextWord(rest)
	_, readable := skipBlank(rest)
	switch {
	case readable && word == "", isOneOf(word, "WORK", "TRANSACTION", "IMMEDIATE", "DEFERRED", "EXCLUSIVE"):
		return sqlBegin
	}
	return sqlDoubt // BEGIN NOT ATOMIC runs a block, which may hold any statement.
}

func kindOfStart(rest string) sqlKind {
	if word, _ := nextWord(rest); isOneOf(word, "TRANSACTION") {
		return sqlBegin
	}
	return sqlDoubt // START SLAVE and others may commit the transaction.
}

func kindOfSavepoint(rest string) sqlKind {
	if hidesWords(rest) {
		return sqlDoubt
	}
	return sqlSavepoint
}

// The server executes the content of some comments, which may hide a chained transaction or the name of a savepoint.
func hidesWords(rest string) bool {
	return strings.Contains(rest, "/*!") || strings.Contains(rest, "/*M!")
}

func kindOfCommit(rest string) sqlKind {
	if hidesWords(rest) {
		return sqlDoubt
	}
	if chains(rest) {
		return sqlCommitChain
	}
	return sqlCommit
}

func kindOfRollback(rest string) sqlKind {
	if hidesWords(rest) {
		return sqlDoubt
	}
	if _, to := savepointAfterTo(rest); to {
		return sqlRollbackTo
	}
	if chains(rest) {
		return sqlRollbackChain
	}
	return sqlRollback
}

// After AND CHAIN, a transaction is open without a BEGIN.
func chains(rest string) bool {
	last := ""
	for word, rest := nextWord(rest); word != ""; word, rest = nextWord(rest) {
		if isOneOf(word, "CHAIN") {
			return isOneOf(last, "AND")
		}
		last = word
	}
	return false
}

func kindOfTable(rest string) sqlKind {
	word, rest := nextWord(rest)
	if isOneOf(word, "OR") { // CREATE OR REPLACE TEMPORARY TABLE
		_, rest = nextWord(rest)
		word, rest = nextWord(rest)
	}
	switch kind, _ := nextWord(rest); {
	case isOneOf(word, "PREPARE"), isOneOf(word, "TEMPORARY", "TEMP") && isOneOf(kind, "TABLE", "TABLES"):
		return sqlPlain
	case isOneOf(word, "TEMPORARY", "TEMP"): // On MariaDB CREATE TEMPORARY SEQUENCE commits.
		return sqlDoubt
	}
	return sqlDDL
}

func kindOfLock(rest string) sqlKind {
	if word, _ := nextWord(rest); isOneOf(word, "TABLES", "TABLE") {
		return sqlDDL
	}
	return sqlDoubt
}

func kindOfSet(rest string) sqlKind {
	if containsFold(rest, "autocommit") { // SET may set several variables, so search the whole text.
		return sqlAutocommit
	}
	word, _ := nextWord(rest)
	_, readable := skipBlank(rest)
	switch {
	case !readable, isOneOf(word, "STATEMENT", "PASSWORD", "DEFAULT"): // SET STATEMENT … FOR runs any statement. SET PASSWORD and SET DEFAULT ROLE commit.
		return sqlDoubt
	case containsFold(rest, "completion_type"): // This variable can turn every COMMIT into COMMIT AND CHAIN.
		return sqlAutocommit
	}
	return sqlPlain
}

func kindOfXA(rest string) sqlKind {
	switch word, _ := nextWord(rest); {
	case isOneOf(word, "START", "BEGIN"):
		return sqlXAStart
	case isOneOf(word, "END"):
		return sqlXAEnd
	case isOneOf(word, "PREPARE"):
		return sqlXAPrepare
	case isOneOf(word, "COMMIT"):
		return sqlXACommit
	case isOneOf(word, "ROLLBACK"):
		return sqlXARollback
	}
	return sqlPlain // XA RECOVER only lists transactions.
}

func savepointName(query string) string {
	query, _ = skipBlank(query)
	_, rest := nextWord(query)
	if name, ok := savepointAfterTo(rest); ok {
		return name
	}
	return identifier(rest)
}

// savepointAfterTo reads [WORK] TO [SAVEPOINT] name.
func savepointAfterTo(rest string) (name string, ok bool) {
	word, rest := nextWord(rest)
	if isOneOf(word, "WORK", "TRANSACTION") {
		word, rest = nextWord(rest)
	}
	if !isOneOf(word, "TO") {
		return "", false
	}
	// SAVEPOINT is a keyword only if a name follows. Otherwise it is the name of the savepoint.
	if word, after := nextWord(rest); isOneOf(word, "SAVEPOINT") && identifier(after) != "" {
		rest = after
	}
	return identifier(rest), true
}

// identifier returns the name at the beginning of rest, quoted or not. A quote inside a name ends the name, so different
// names may count as equal, but one name never counts as two.
func identifier(rest string) string {
	rest, _ = skipBlank(rest)
	if rest != "" && rest[0] == '[' { // quotes of SQLite
		name, _, _ := strings.Cut(rest[1:], "]")
		return name
	}
	if rest != "" && strings.Contains("`\"'", rest[:1]) {
		name, _, _ := strings.Cut(rest[1:], rest[:1])
		return name
	}
	if end := strings.IndexAny(rest, blanks+";/#-"); end >= 0 {
		return rest[:end]
	}
	return rest
}

func isOneOf(word string, words ...string) bool {
	for _, w := range words {
		if strings.EqualFold(word, w) {
			return true
		}
	}
	return false
}

// containsFold reports whether s contains a word, ignoring case. The parameter lower is the word in lower case.
func containsFold(s, lower string) bool {
	for i := 0; i+len(lower) <= len(s); i++ {
		if strings.EqualFold(s[i:i+len(lower)], lower) {
			return true
		}
	}
	return false
}
