package health

import (
	"errors"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/verdict"
	"github.com/compensator-go/compensator/processlog"
)

// These texts say what is wrong with attempts. Each is the key of a Problem, and appears in the log.
const (
	problemContent = "contents cannot be decoded here: their entries wait for a version of the code that can"
	problemAttempt = "attempts end with nothing counted: something they need is not available"
	problemFaults  = "attempts fail, and count, for they have met the database's condition too often in a row"
)

// Attach makes Health show how attempts end. Health shows errors about content that cannot be decoded, about the
// database, and about systems that are unavailable. This matters for an attempt that is not counted: without Health,
// people would find its error only in the entry itself.
func Attach(e *engine.Engine) {
	e.AttachSettlement(func(s *engine.Settlement) {
		s.Ended = func(a *engine.Attempt, end engine.Result, counted bool) {
			if !errors.Is(end.Cause, processlog.ErrCancelled) { // A cancelled handler may return any error, so do not report it as a problem.
				report(e, a.Type.Name, end.Err, counted)
			}
		}
	})
}

func report(e *engine.Engine, businessType string, err error, counted bool) {
	v := verdict.Of(err)
	kind := v.Kind
	switch {
	case v.Undecodable:
		// A success of another entry of the type does not end this problem, because a waiting entry may still
		// fail. A waiting entry is tried again within MaxUnavailableDelay.
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
