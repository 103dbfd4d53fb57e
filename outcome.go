package compensator

import (
	"time"

	"github.com/compensator-go/compensator/internal/engine"
)

// Permanent says that trying again is pointless: the entry is compensated, or waits for a person.
func Permanent(err error) error { return engine.Permanent(err) }

// RetryAfter is a failure whose next attempt is due after d instead of what the type's schedule says. d is kept
// as given, from 100 ms to 100 years: less is raised, more is cut to that. Nothing or less is the type's schedule.
func RetryAfter(d time.Duration, err error) error { return engine.RetryAfter(d, err) }

// Snooze is not a failure: the handler wants to be called again after d. It spends no attempt. d has the bounds
// of RetryAfter's; nothing or less is the type's schedule, which does not grow: as after the last failure, or as
// after a first one.
func Snooze(d time.Duration) error { return engine.Snooze(d) }

// Unavailable says that something the handler needs is down. It spends no attempt, so the type's schedule
// does not grow: the next attempt comes as after Snooze(0), but not before 2 to 4 seconds have passed.
func Unavailable(err error) error { return engine.Unavailable(err) }

// IsPermanent reports whether err asks for what Permanent does: for code between a handler and the library.
func IsPermanent(err error) bool { return engine.IsPermanent(err) }
