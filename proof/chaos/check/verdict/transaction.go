package verdict

import "github.com/compensator-go/compensator/proof/chaos/history"

// transaction is a transaction of a caller.
type transaction struct {
	process    int32
	inserts    []int32
	actions    []int32
	savepoints []savepoint
	asked      int64 // At of its Commit line; 0: no COMMIT was requested
	answered   int64
	outcome    string
	rolledBack bool
	aborted    bool // the server rolled it back because of a statement
	seen       bool // one of its rows is in the table
}

type savepoint struct {
	name             string
	inserts, actions int // numbers made before the savepoint
}

// insert is the recording of one entry.
type insert struct {
	history.Insert
	tx       *transaction
	answered bool
	id       uint64
	dup      bool
	err      string
	undone   bool // undone by a rollback to a savepoint
	place    Place
}

// resolved is the answer of Resolve about an insert whose commit had an unknown outcome.
type resolved struct {
	history.Resolved
	tx    *transaction
	place Place
}

// certainty says whether a request to the database took effect.
type certainty int

const (
	never certainty = iota
	maybe
	surely
)

// committed says whether a transaction committed.
func (tx *transaction) committed() certainty {
	switch {
	case tx.aborted, tx.rolledBack, tx.asked == 0, tx.outcome == history.CommitFail:
		return never
	case tx.outcome == history.CommitOK, tx.seen:
		return surely
	}
	return maybe
}

// wrote says whether an insert made a row.
func (in *insert) wrote() certainty {
	switch {
	case in.undone, in.dup:
		return never
	case in.err != "":
		return min(failed(in.err), in.tx.committed())
	case !in.answered:
		return min(maybe, in.tx.committed())
	}
	return in.tx.committed()
}

// failed says whether a statement may have taken effect in spite of an error of this class.
func failed(class string) certainty {
	switch class {
	case "":
		return surely
	case history.ErrConnection, history.ErrContext, history.ErrOther:
		return maybe
	}
	return never
}
