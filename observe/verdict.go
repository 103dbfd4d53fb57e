package observe

// Verdict says what the library does after a handler has returned an error.
type Verdict string

const (
	Success     Verdict = "success"     // the handler returned no error
	Failure     Verdict = "failure"     // the attempt counts as failed; for all errors not named below, and for RetryAfter unless it wraps Unavailable
	Permanent   Verdict = "permanent"   // another attempt is pointless
	Snooze      Verdict = "snooze"      // the entry runs again later; this is no failure
	Unavailable Verdict = "unavailable" // a system that the handler needs is down; the attempt does not count
)
