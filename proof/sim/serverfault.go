package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

const serverFaultStream = 8450

const lostAnswerStream = 8452

// lostAnswer is an error of a handler that does not know whether its call arrived.
type lostAnswer struct{ error }

func (lostAnswer) OutcomeUnknown() bool { return true }

// errServerFault is an error that comes from a temporary problem of the database, not from the handler. In some seeds
// transactional handlers return it.
var errServerFault = &mysql.MySQLError{Number: 1205, Message: "Lock wait timeout exceeded"}

const wholeServerStream = 8451

// errServerDown is an error that comes from a temporary problem of the whole database server. In some seeds
// transactional handlers return it.
var errServerDown = &mysql.MySQLError{Number: 1461, Message: "Can't create more than max_prepared_stmt_count statements"}

// drawServerFaults chooses three properties of the seed at random:
//   - Most failures of transactional handlers are errors of the database (faulty).
//   - These errors concern the whole database server (wholeServer).
//   - Errors of handlers say that their call may have reached the called service (losesAnswers).
func (w *world) drawServerFaults() {
	rng := rand.New(rand.NewPCG(w.seed, serverFaultStream))
	w.apart.faulty = rng.IntN(8) == 0
	w.apart.losesAnswers = rand.New(rand.NewPCG(w.seed, lostAnswerStream)).IntN(4) == 0
	w.apart.wholeServer = rand.New(rand.NewPCG(w.seed, wholeServerStream)).IntN(2) == 0
}

// checkServerDownLocked asserts G7 (no false exhaustion): a condition of the whole server spends no attempt, and the
// row's error names the condition.
func (o *oracle) checkServerDownLocked(before, after processlog.Row, a *attempt) {
	o.sights[sawServerDown]++
	if context.Cause(a.ctx) != nil {
		return // If the context has ended, it decides the outcome instead.
	}
	spent := after.ProcessCount != before.ProcessCount || after.CompensateCount != before.CompensateCount || after.State != before.State
	if spent || !strings.Contains(after.LastError, ", a condition of the whole server: ") {
		o.failLocked("G7: an error of the whole server counted as a failure of entry %s: %v, %q", after.ID, spent, after.LastError)
	}
}

// checkServerFaultLocked asserts G7 (no false exhaustion). If an entry may have N attempts, its first N consecutive
// errors of the database spend no attempt. Each further error spends an attempt. The row's Faults count the consecutive
// errors.
func (o *oracle) checkServerFaultLocked(l *rowHistory, before, after processlog.Row, a *attempt) {
	o.sights[sawServerFault]++
	most := o.w.plan.types.MaxAttempts
	if before.MaxAttempts > 0 {
		most = before.MaxAttempts
	}
	if before.State == compensator.Compensating {
		most = o.w.plan.types.MaxCompensateAttempts
	}
	row := serverFaultsInARow(before, before) + 1
	spent := after.ProcessCount != before.ProcessCount || after.CompensateCount != before.CompensateCount
	// While nothing has ended the context, its cause after the handler is context.Canceled. With any other cause, the
	// context may have ended just before the handler returned. Then the error counts like any other failure, and the
	// oracle does not check the counts.
	overtaken := !errors.Is(context.Cause(a.ctx), context.Canceled)
	if !overtaken && (spent != (row > most) || serverFaultsInARow(before, after) != row) {
		o.failLocked("G7: entry %s had the database's error %d times in a row, of %d allowed times; counted as a failure: %v, %q", after.ID, row, most, spent, after.LastError)
	}
	if spent {
		o.checkSpentLocked(l, before, after, a)
	}
}

// refused reports whether the handler returned nil and the database refused to commit its transaction. The row's Faults
// then count one more error of the database.
func (l *rowHistory) refused(before, after processlog.Row, a *attempt) bool {
	return a.manner == fine && transactional(l.kind) && serverFaultsInARow(before, after) == serverFaultsInARow(before, before)+1
}

// serverFaultsInARow returns the ServerFaults of the row after that apply to the row before. See Faults.In.
func serverFaultsInARow(before, after processlog.Row) int {
	return after.Faults.In(&before).ServerFaults
}

// doubtLocked asserts G31 (each dead entry has a case): if the outcome of an attempt of this epoch is unknown, the row
// says so. The outcome is unknown in these cases:
//   - the attempt timed out, or the library ended its context early,
//   - its lease ended without an outcome,
//   - its call returned nil, but no success was stored, or
//   - its error says that the outcome is unknown.
func (o *oracle) doubtLocked(before, after processlog.Row, out processlog.Outcome, a *attempt) {
	if after.State == compensator.Succeeded || after.State == compensator.Compensated {
		return
	}
	unknown := before.Faults.In(&before).OutcomeUnknown || before.DeliveryCount > 1 || out.TimedOut || a != nil && (a.told && !a.voidable() || a.acted)
	remembered := after.Faults.In(&after).OutcomeUnknown
	// The oracle accepts both values if the context ended after the handler had decided on its result. It also accepts
	// both values for a batch, because the batch handler gets another context than this attempt.
	either := a != nil && (toldToStop(a) || a.kind == batchType)
	if remembered != unknown && (unknown || !either) && after.EndedBy != compensator.EndedByCrash {
		o.failLocked("G31: entry %s, outcome unknown: %v, and its row remembers the opposite: %+v to %+v", after.ID, unknown, before.Faults, after.Faults)
	}
	if unknown {
		o.sights[sawDoubt]++
	}
}

// toldToStop reports whether the library has ended an attempt's context before its timeout.
func toldToStop(a *attempt) bool {
	cause := context.Cause(a.ctx)
	return errors.Is(cause, compensator.ErrStopping) || errors.Is(cause, compensator.ErrLeaseLost) || errors.Is(cause, compensator.ErrCancelled)
}

// isDoubted reports whether the row says that the outcome of an attempt is unknown. It reads the oracle's history,
// because Change returns rows without Faults.
func (o *oracle) isDoubted(row processlog.Row) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.histories[row.ID]
	for i := len(l.steps) - 1; i >= 0; i-- {
		if l.steps[i].row.Version == row.Version {
			return l.steps[i].row.Faults.In(&row).OutcomeUnknown
		}
	}
	return false
}
