package txwatch

import "strings"

// Only inside a transaction does a savepoint live long enough to be released. Where a savepoint would begin
// a transaction instead (SQLite), the # is a syntax error, and another question is asked.
//
// And MySQL and MariaDB refuse the first inside a transaction; TiDB and Vitess take it anywhere.
const (
	DoubtBegun     = "SET TRANSACTION READ WRITE # compensator: is a transaction open?"
	DoubtSavepoint = "SAVEPOINT compensator_doubt # compensator: is a transaction open?"
	DoubtRelease   = "RELEASE SAVEPOINT compensator_doubt # compensator: is a transaction open?"
)

// SQLiteProbe is the one statement that fails inside a transaction and changes nothing outside of one: the
// temporary database has no safety level.
const SQLiteProbe = "PRAGMA temp.synchronous=FULL"

// SQLiteInside reads the answer to SQLiteProbe.
func SQLiteInside(answer error) (inside bool, err error) {
	if answer != nil && strings.Contains(answer.Error(), "inside a transaction") {
		return true, nil
	}
	return false, answer
}

// sqliteBadToken is SQLite's answer to a comment in MySQL's style.
const sqliteBadToken = "unrecognized token"
