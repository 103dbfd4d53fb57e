package observe

// Verdict is what a handler's error asks for.
type Verdict string

const (
	Success     Verdict = "success"     // no error
	Failure     Verdict = "failure"     // any other error, and RetryAfter unless it is around Unavailable. It spends an attempt
	Permanent   Verdict = "permanent"   // no retry helps
	Snooze      Verdict = "snooze"      // not a failure: run again later
	Unavailable Verdict = "unavailable" // something the handler needs is down. It spends no attempt
)
