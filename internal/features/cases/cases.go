// Package cases opens a case with each outcome that makes its entry dead.
package cases

import (
	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/processlog"
)

// Attach makes the engine store a case in the transaction of each outcome that makes its entry dead.
func Attach(e *engine.Engine, draft func(row *processlog.Row, o *processlog.Outcome) *processlog.CaseDraft) {
	e.Hooks.Prepare = append(e.Hooks.Prepare, func(a *engine.Attempt, o processlog.Outcome) processlog.Outcome {
		if o.To == processlog.Dead {
			dead := o // If draft got the address of o, each outcome would be allocated.
			o.Case = draft(&a.Row, &dead)
		}
		return o
	})
}
