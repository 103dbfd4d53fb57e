package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// serverFaultStream is the stream of the database's condition. It leaves all seeds kept until then the lives they were.
const serverFaultStream = 8450

// errServerFault is what a transactional handler meets then.
var errServerFault = &mysql.MySQLError{Number: 1205, Message: "Lock wait timeout exceeded"}

// wholeServerStream is the stream of conditions of the whole server. It leaves all seeds kept until then the lives they were.
const wholeServerStream = 8451

// errServerDown is what a transactional handler meets while the whole server is in a condition.
var errServerDown = &mysql.MySQLError{Number: 1461, Message: "Can't create more than max_prepared_stmt_count statements"}

// drawServerFaults draws whether most failures of transactional handlers are the database's condition.
func (w *world) drawServerFaults() {
	rng := rand.New(rand.NewPCG(w.seed, serverFaultStream))
	w.apart.faulty = rng.IntN(8) == 0
	w.apart.wholeServer = rand.New(rand.NewPCG(w.seed, wholeServerStream)).IntN(2) == 0
}

// serverDownedLocked asserts G7: a condition of the whole server spends no attempt, and the row says what it is.
func (o *oracle) serverDownedLocked(before, after processlog.Row, a *attempt) {
	o.sights[sawServerDown]++
	if context.Cause(a.ctx) != nil {
		return // what had overtaken the attempt decides
	}
	spent := after.ProcessCount != before.ProcessCount || after.CompensateCount != before.CompensateCount || after.State != before.State
	if spent || !strings.Contains(after.LastError, ", a condition of the whole server: ") {
		o.failLocked("G7: entry %s meets a condition of the whole server, and it counted: %v, %q", after.ID, spent, after.LastError)
	}
}

// serverFaultedLocked: G7, such an error spends an attempt exactly if there were as many in a row before it as the entry
// has attempts; the row counts them.
func (o *oracle) serverFaultedLocked(l *life, before, after processlog.Row, a *attempt) {
	o.sights[sawServerFault]++
	most := o.w.plan.types.MaxProcessCount
	if before.MaxProcessCount > 0 {
		most = before.MaxProcessCount
	}
	if before.State == compensator.Compensating {
		most = o.w.plan.types.MaxCompensateCount
	}
	row := serverFaultsInARow(before, before.LastError) + 1
	spent := after.ProcessCount != before.ProcessCount || after.CompensateCount != before.CompensateCount
	// What had overtaken the attempt may have ended its context just before the handler returned: then it is any failure.
	overtaken := !errors.Is(context.Cause(a.ctx), context.Canceled)
	if !overtaken && (spent != (row > most) || serverFaultsInARow(before, after.LastError) != row) {
		o.failLocked("G7: entry %s meets the database's condition for the time %d of %d in a row, and it counted: %v, %q", after.ID, row, most, spent, after.LastError)
	}
	if spent {
		o.spentLocked(l, before, after, a)
	}
}

// refused reports whether an attempt's handler returned nil and the database did not take its transaction, as the row says.
func (l *life) refused(before, after processlog.Row, a *attempt) bool {
	return a.manner == fine && transactional(l.kind) && serverFaultsInARow(before, after.LastError) == serverFaultsInARow(before, before.LastError)+1
}

// serverFaultsInARow reads what was counted in a row's epoch, of its handler or its compensation.
func serverFaultsInARow(row processlog.Row, lastError string) int {
	found := counted.FindStringSubmatch(lastError)
	if found == nil || found[2] != strconv.FormatUint(uint64(row.Epoch), 10) && (found[2] != "" || row.Epoch > 0) ||
		(found[3] != "") != (row.State == compensator.Compensating) {
		return 0 // another error, or another count
	}
	n, _ := strconv.Atoi(found[1])
	return n
}

var counted = regexp.MustCompile(`^(\d+) in a row(?: in epoch (\d+))?( while compensating)?, the server's condition: `)
