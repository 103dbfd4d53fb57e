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

type lostAnswer struct{ error }

func (lostAnswer) OutcomeUnknown() bool { return true }

var errServerFault = &mysql.MySQLError{Number: 1205, Message: "Lock wait timeout exceeded"}

const wholeServerStream = 8451

var errServerDown = &mysql.MySQLError{Number: 1461, Message: "Can't create more than max_prepared_stmt_count statements"}

func (w *world) drawServerFaults() {
	rng := rand.New(rand.NewPCG(w.seed, serverFaultStream))
	w.apart.faulty = rng.IntN(8) == 0
	w.apart.losesAnswers = rand.New(rand.NewPCG(w.seed, lostAnswerStream)).IntN(4) == 0
	w.apart.wholeServer = rand.New(rand.NewPCG(w.seed, wholeServerStream)).IntN(2) == 0
}

func (o *oracle) checkServerDownLocked(before, after processlog.Row, a *attempt) {
	o.sights[sawServerDown]++
	if context.Cause(a.ctx) != nil {
		return
	}
	spent := after.ProcessCount != before.ProcessCount || after.CompensateCount != before.CompensateCount || after.State != before.State
	if spent || !strings.Contains(after.LastError, ", a condition of the whole server: ") {
		o.failLocked("G7: an error of the whole server counted as a failure of entry %s: %v, %q", after.ID, spent, after.LastError)
	}
}

// If an entry may have N attempts, its first N consecutive errors of the database spend no attempt. Each further error
// spends an attempt.
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
	// The engine cancels the context of an attempt after the handler has returned. So the cause of the context is
	// context.Canceled, unless something else, for example a timeout, ended the context first. That end may have come
	// just before the handler returned. Then the error counts like any other failure, so the oracle does not check the
	// counts.
	overtaken := !errors.Is(context.Cause(a.ctx), context.Canceled)
	if !overtaken && (spent != (row > most) || serverFaultsInARow(before, after) != row) {
		o.failLocked("G7: entry %s had the database's error %d times in a row, of %d allowed times; counted as a failure: %v, %q", after.ID, row, most, spent, after.LastError)
	}
	if spent {
		o.checkSpentLocked(l, before, after, a)
	}
}

// The method refused reports whether the handler returned nil and the database refused to commit its transaction. The
// row's Faults show this refusal: they count one more error of the database.
func (l *rowHistory) refused(before, after processlog.Row, a *attempt) bool {
	return a.manner == fine && transactional(l.kind) && serverFaultsInARow(before, after) == serverFaultsInARow(before, before)+1
}

func serverFaultsInARow(before, after processlog.Row) int {
	return after.Faults.In(&before).ServerFaults
}

func (o *oracle) doubtLocked(before, after processlog.Row, out processlog.Outcome, a *attempt) {
	if after.State == compensator.Succeeded || after.State == compensator.Compensated {
		return
	}
	unknown := before.Faults.In(&before).OutcomeUnknown || before.DeliveryCount > 1 || out.TimedOut || a != nil && (a.told && !a.voidable() || a.acted)
	remembered := after.Faults.In(&after).OutcomeUnknown
	// If the variable either is true, the oracle does not know whether the row must say that the outcome is unknown.
	// There are two such cases:
	//   - The context ended after the handler had decided on its result.
	//   - The handler is a batch handler. Its context is not the context of this attempt, so the oracle does not know
	//     whether the handler got the request to stop.
	either := a != nil && (toldToStop(a) || a.kind == batchType)
	if remembered != unknown && (unknown || !either) && after.EndedBy != compensator.EndedByCrash {
		o.failLocked("G31: entry %s, outcome unknown: %v, and its row remembers the opposite: %+v to %+v", after.ID, unknown, before.Faults, after.Faults)
	}
	if unknown {
		o.sights[sawDoubt]++
	}
}

func toldToStop(a *attempt) bool {
	cause := context.Cause(a.ctx)
	return errors.Is(cause, compensator.ErrStopping) || errors.Is(cause, compensator.ErrLeaseLost) || errors.Is(cause, compensator.ErrCancelled)
}

// isDoubted reads the oracle's history, because Change returns rows without Faults.
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
