package verdict

import "github.com/compensator-go/compensator/proof/chaos/history"

type transaction struct {
	process    int32
	inserts    []int32
	actions    []int32
	savepoints []savepoint
	asked      int64 // time of its Commit line (0: no COMMIT was requested)
	answered   int64
	outcome    string
	rolledBack bool
	aborted    bool
	seen       bool
}

type savepoint struct {
	name             string
	inserts, actions int // numbers of inserts and actions made before the savepoint
}

type insert struct {
	history.Insert
	tx       *transaction
	answered bool
	id       uint64
	dup      bool
	err      string
	undone   bool // whether a rollback to a savepoint undid the insert
	place    Place
}

type resolved struct {
	history.Resolved
	tx    *transaction
	place Place
}

type certainty int

const (
	never certainty = iota
	maybe
	surely
)

func (tx *transaction) committed() certainty {
	switch {
	case tx.aborted, tx.rolledBack, tx.asked == 0, tx.outcome == history.CommitFail:
		return never
	case tx.outcome == history.CommitOK, tx.seen:
		return surely
	}
	return maybe
}

func (in *insert) madeRow() certainty {
	switch {
	case in.undone, in.dup:
		return never
	case in.err != "":
		return min(effectDespiteError(in.err), in.tx.committed())
	case !in.answered:
		return min(maybe, in.tx.committed())
	}
	return in.tx.committed()
}

func effectDespiteError(class string) certainty {
	switch class {
	case "":
		return surely
	case history.ErrConnection, history.ErrContext, history.ErrOther:
		return maybe
	}
	return never
}
