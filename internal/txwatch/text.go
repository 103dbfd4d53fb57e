package txwatch

import "strings"

// sqlKind is what a statement does to the transaction it is sent in, as far as its first words tell.
type sqlKind uint8

const (
	sqlPlain      sqlKind = iota // nothing
	sqlDoubt                     // perhaps something; the server has to be asked
	sqlAutocommit                // sqlDoubt, and transactions may begin by themselves from now on
	sqlBegin
	sqlCommit
	sqlCommitChain // and begin the next one
	sqlRollback
	sqlRollbackChain
	sqlSavepoint
	sqlRollbackTo
	sqlDDL // commits on its own
	sqlXAStart
	sqlXAEnd
	sqlXAPrepare
	sqlXACommit
	sqlXARollback
)

// leads are the first words of statements, frequent ones first. What is not listed is doubtful: CALL and
// EXECUTE may do anything, UNLOCK TABLES and LOAD sometimes commit, and servers learn new words. A doubt costs a
// question; what is wrongly taken for plain could leave an entry durable on its own (G2).
var leads = [...]struct {
	word   string
	kind   sqlKind
	refine func(rest string) sqlKind // when the first word does not decide
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
	{word: "KILL", kind: sqlDoubt}, // on Galera it commits, also when it fails
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

// Calm begins a statement of the library's own on MariaDB. It overrides, for that statement, what a session of the user's pool
// may be set to. " FOR " and the statement follow, perhaps behind more variables.
const Calm = "SET STATEMENT timestamp=0, lock_wait_timeout=5, innodb_lock_wait_timeout=2, sql_select_limit=18446744073709551615, sql_big_selects=1, " +
	"sql_safe_updates=0, unique_checks=1, foreign_key_checks=1"

// kindOf reads the beginning of a statement, allocating nothing. Several statements in one text are
// doubtful, and so is one whose literals look as if they were.
func kindOf(query string) sqlKind {
	if calm, found := strings.CutPrefix(query, Calm); found {
		_, query, _ = strings.Cut(calm, " FOR ")
	}
	query, ok := skipBlank(query)
	// Each of several would have to be followed, and the server may have stopped after any of them.
	if !ok || several(query) {
		return sqlDoubt
	}
	word, rest := nextWord(query)
	if word == "" {
		if query == "" || query[0] == '(' {
			return sqlPlain // "(SELECT …) UNION …"
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
	return sqlDoubt // BEGIN NOT ATOMIC, also in a comment that is executed
}

func kindOfStart(rest string) sqlKind {
	if word, _ := nextWord(rest); isOneOf(word, "TRANSACTION") {
		return sqlBegin
	}
	return sqlDoubt // START SLAVE
}

func kindOfSavepoint(rest string) sqlKind {
	if hidesWords(rest) {
		return sqlDoubt
	}
	return sqlSavepoint
}

// hidesWords finds comments whose content the server executes: COMMIT /*! AND CHAIN */. Unread, a chained transaction would
// be taken for none, and a savepoint's name for another's.
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

// chains finds AND CHAIN, and no AND NO CHAIN: after it a transaction is open that no BEGIN has begun.
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

// kindOfTable sorts out what CREATE and DROP do without a commit.
func kindOfTable(rest string) sqlKind {
	word, rest := nextWord(rest)
	if isOneOf(word, "OR") { // CREATE OR REPLACE TEMPORARY TABLE
		_, rest = nextWord(rest)
		word, rest = nextWord(rest)
	}
	switch kind, _ := nextWord(rest); {
	case isOneOf(word, "PREPARE"), isOneOf(word, "TEMPORARY", "TEMP") && isOneOf(kind, "TABLE", "TABLES"):
		return sqlPlain
	case isOneOf(word, "TEMPORARY", "TEMP"): // MariaDB: a temporary sequence commits
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
	if containsFold(rest, "autocommit") { // anywhere: SET a=1, @@session.autocommit=0
		return sqlAutocommit
	}
	word, _ := nextWord(rest)
	_, readable := skipBlank(rest)
	switch {
	case !readable, isOneOf(word, "STATEMENT", "PASSWORD", "DEFAULT"): // SET STATEMENT … FOR anything; passwords and default roles commit
		return sqlDoubt
	case containsFold(rest, "completion_type"): // makes every COMMIT one AND CHAIN
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
	return sqlPlain // XA RECOVER
}

// savepointName reads the name out of SAVEPOINT and ROLLBACK TO.
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
	if word, after := nextWord(rest); isOneOf(word, "SAVEPOINT") && identifier(after) != "" { // it may be the name
		rest = after
	}
	return identifier(rest), true
}

// identifier reads one name, quoted or not, and leaves out what follows it: tracing puts a comment of its own behind
// each statement. A quote within a name ends it, so that two names are rather taken for one than one for two.
func identifier(rest string) string {
	rest, _ = skipBlank(rest)
	if rest != "" && rest[0] == '[' { // SQLite
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

// containsFold looks for a word given in lower case.
func containsFold(s, lower string) bool {
	for i := 0; i+len(lower) <= len(s); i++ {
		if strings.EqualFold(s[i:i+len(lower)], lower) {
			return true
		}
	}
	return false
}
