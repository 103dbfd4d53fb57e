package compensator

import (
	"time"

	"github.com/compensator-go/compensator/internal/engine"
)

// Permanent says that no retry helps: compensate, or leave it to a person.
func Permanent(err error) error { return engine.Permanent(err) }

// RetryAfter is a failure whose next attempt is due after d, kept between 100 ms and 100 years. Nothing or less is the
// type's schedule.
func RetryAfter(d time.Duration, err error) error { return engine.RetryAfter(d, err) }

// Snooze is no failure, and spends no attempt: call again after d, kept as RetryAfter's. Nothing or less is the type's
// schedule, which does not grow: as after the last failure, or as after a first one.
func Snooze(d time.Duration) error { return engine.Snooze(d) }

// Unavailable says that something the handler needs is down. It is Snooze(0), but waits 2 to 4 seconds at least.
func Unavailable(err error) error { return engine.Unavailable(err) }

// VerdictOf is what err asks for: for middleware, metrics, and code between a handler and the library. What becomes of
// the entry depends on more: a failure may be its last, and one that was told to stop counts nothing.
func VerdictOf(err error) Verdict { return engine.VerdictOf(err) }
