// Package cases opens a case with each outcome that makes its entry dead.
package cases

import (
	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/processlog"
)

// Attach makes the engine store a case when an outcome makes an entry dead. The case and the outcome are stored in the
// same transaction. The function draft returns the case.
func Attach(e *engine.Engine, draft func(row *processlog.Row, o *processlog.Outcome) *processlog.CaseDraft) {
	e.Hooks.Prepare = append(e.Hooks.Prepare, func(a *engine.Attempt, o processlog.Outcome) processlog.Outcome {
		if o.To == processlog.Dead {
			// Pass the address of a copy to the function draft. With the address of o, Go would allocate memory for
			// each outcome, also for those that make no entry dead.
			dead := o
			o.Case = draft(&a.Row, &dead)
		}
		return o
	})
}
