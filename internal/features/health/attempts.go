package health

import (
	"errors"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/verdict"
	"github.com/compensator-go/compensator/processlog"
)

// These texts name problems. Health shows the text of a problem, and the library also writes the text to Config.Logger.
const (
	problemContent = "contents cannot be decoded here: their entries wait for a version of the code that can"
	problemAttempt = "attempts end with nothing counted: something they need is not available"
	problemFaults  = "attempts fail, and count, for they have met the database's condition too often in a row"
)

// Attach makes Health show errors that many attempts meet: content that cannot be decoded, errors of the database, and
// systems that are unavailable.
func Attach(e *engine.Engine) {
	e.Hooks.Ended = append(e.Hooks.Ended, func(a *engine.Attempt, end engine.Result, counted bool) {
		if !errors.Is(end.Cause, processlog.ErrCancelled) { // A cancelled handler may return any error, so do not report it as a problem.
			report(e, a.Type.Name, end.Err, counted)
		}
	})
}

func report(e *engine.Engine, businessType string, err error, counted bool) {
	v := verdict.Of(err)
	kind := v.Kind
	switch {
	case v.Undecodable:
		// An entry with this content waits, and each later attempt fails again in this process. The success of another
		// entry says nothing about this entry, so it must not end the problem. FailedFor ends the problem when no such
		// error has come for the given time, which is longer than the pause between two attempts.
		e.Problems.FailedFor(2*engine.MaxUnavailableDelay+time.Minute, problemContent, businessType, err)
	case kind == verdict.KindServerFault && counted:
		e.Problems.Failed(problemFaults, businessType, err)
	case kind == verdict.KindServerFault, kind == verdict.KindServerDown, kind == verdict.KindUnavailable && !counted:
		e.Problems.Failed(problemAttempt, businessType, err)
	default:
		e.Problems.Passed(problemAttempt, businessType)
		e.Problems.Passed(problemFaults, businessType)
	}
}
