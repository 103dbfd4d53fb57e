package observe

// Verdict is what a handler's error asks for.
type Verdict string

const (
	Success     Verdict = "success"     // no error
	Failure     Verdict = "failure"     // any other error, RetryAfter's too, unless it is around Unavailable: it spends an attempt
	Permanent   Verdict = "permanent"   // no retry helps
	Snooze      Verdict = "snooze"      // no failure: call again later
	Unavailable Verdict = "unavailable" // something it needs is down: spends no attempt
)
