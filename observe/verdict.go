package observe

// Verdict says what the library does after a handler has returned an error.
type Verdict string

const (
	Success     Verdict = "success"     // the handler returned no error
	Failure     Verdict = "failure"     // the attempt counts as failed. All errors not named below are failures. RetryAfter is one, too, unless it wraps Unavailable
	Permanent   Verdict = "permanent"   // another attempt would fail too
	Snooze      Verdict = "snooze"      // the entry runs again later, and the attempt does not count as failed
	Unavailable Verdict = "unavailable" // a system that the handler needs is down; the attempt does not count
)
