package verdict

import "github.com/compensator-go/compensator/proof/chaos/history"

// transaction is a caller's.
type transaction struct {
	process    int32
	inserts    []int32
	actions    []int32
	savepoints []savepoint
	asked      int64 // At of its Commit line; 0: never asked for
	answered   int64
	outcome    string
	rolledBack bool
	aborted    bool // the server rolled it back under a statement
	seen       bool // a row of its own is in the table
}

type savepoint struct {
	name             string
	inserts, actions int // made before it
}

// insert is one entry's way into the table.
type insert struct {
	history.Insert
	tx       *transaction
	answered bool
	id       uint64
	dup      bool
	err      string
	undone   bool // by a rollback to a savepoint
	place    Place
}

// resolved is what was found out about an insert whose commit came out unknown.
type resolved struct {
	history.Resolved
	tx    *transaction
	place Place
}

// certainty is what is known of something that was asked of the database.
type certainty int

const (
	never certainty = iota
	maybe
	surely
)

// came is how a transaction ended.
func (tx *transaction) came() certainty {
	switch {
	case tx.aborted, tx.rolledBack, tx.asked == 0, tx.outcome == history.CommitFail:
		return never
	case tx.outcome == history.CommitOK, tx.seen:
		return surely
	}
	return maybe
}

// wrote tells whether an insert made a row.
func (in *insert) wrote() certainty {
	switch {
	case in.undone, in.dup:
		return never
	case in.err != "":
		return min(failed(in.err), in.tx.came())
	case !in.answered:
		return min(maybe, in.tx.came())
	}
	return in.tx.came()
}

// failed is what a statement may have done all the same, by the class of its error.
func failed(class string) certainty {
	switch class {
	case "":
		return surely
	case history.ErrConnection, history.ErrContext, history.ErrOther:
		return maybe
	}
	return never
}
