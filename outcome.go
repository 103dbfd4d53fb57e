package compensator

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/compensator-go/compensator/internal/jitter"
	"github.com/compensator-go/compensator/internal/verdict"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// Permanent returns an error for which no retry helps. The entry is then compensated, or left to a person if its type
// has no compensation.
func Permanent(err error) error { return verdict.Permanent(err) }

// RetryAfter returns an error that counts as a failure. The parameter d is the time until the next attempt. The library
// keeps d between 100 ms and 100 years. If d is 0 or less, the type's Retry decides.
//
// An error from Unavailable is an exception. If err comes from Unavailable, the returned error counts like err, and d
// is the time for which the service is down.
func RetryAfter(d time.Duration, err error) error { return verdict.RetryAfter(d, err) }

// Snooze returns an error that makes the entry run again later. The error counts as no failure and spends no attempt. d
// is the time until the next attempt, which the library keeps between 100 ms and 100 years. If d is 0 or less, the
// type's schedule decides. The schedule is then called with the number of failures so far, or with 1 if there was none.
// An entry may be snoozed without end: see HandlerConfig.MaxWait.
func Snooze(d time.Duration) error { return verdict.Snooze(d) }

// Unavailable returns an error which says that the handler needs something that is down, for example a service. The
// error spends no attempt, and the entry keeps err as its LastError.
//
// The type's Retry decides the first wait, as after Snooze(0). But the first wait is at least a random time between 2
// and 4 seconds. Each further wait is about twice as long as the wait before, up to 2 minutes. The number of waits has
// no limit. But once the entry is older than HandlerConfig.MaxWait, Unavailable counts as a failure.
func Unavailable(err error) error { return verdict.Unavailable(err) }

// VerdictOf returns what err asks the library to do. The outcome of the entry also depends on its attempts and its
// type. For nil it returns observe.Success.
func VerdictOf(err error) observe.Verdict { return verdict.ForObserver(err) }

// Retry returns how long to wait after a failure. failures is the number of failures so far, at least 1. The result is
// kept between 100 ms and 100 years. Retry is called concurrently.
type Retry func(failures int) time.Duration

// Exponential waits a random time between 0 and base·2^(failures−1), and at most limit (full jitter).
func Exponential(base, limit time.Duration) Retry {
	return jitter.Exponential(base, min(limit, processlog.MaxDelay))
}

// Fixed waits the same time after each failure.
func Fixed(d time.Duration) Retry { return func(int) time.Duration { return d } }

// Steps returns a Retry that waits for the n-th element of delays after the n-th failure. If there are more failures
// than delays, the last delay repeats. If delays is empty, the Retry returns 0. The library then waits for its minimum,
// 100 ms.
func Steps(delays ...time.Duration) Retry {
	return func(failures int) time.Duration {
		if len(delays) == 0 {
			return 0
		}
		return delays[min(max(failures, 1), len(delays))-1]
	}
}

// RocketMQLevels are the 18 delay levels of Apache RocketMQ.
const RocketMQLevels = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

// ParseDelayLevels parses delays written as in RocketMQLevels, with the units s, m, h and d. Level n is the wait after
// the n-th failure. Its error is a *FieldError.
func ParseDelayLevels(levels string) (Retry, error) {
	var delays []time.Duration
	for _, level := range strings.Fields(levels) {
		d, err := parseDelayLevel(level)
		if err != nil {
			return nil, err
		}
		delays = append(delays, d)
	}
	if len(delays) == 0 {
		return nil, &FieldError{Field: "delay levels", Reason: "none given"}
	}
	return Steps(delays...), nil
}

var delayUnits = map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}

func parseDelayLevel(level string) (time.Duration, error) {
	last := len(level) - 1
	unit := delayUnits[level[last]]
	n, err := strconv.ParseUint(level[:last], 10, 32)
	if err != nil || unit == 0 || n == 0 || time.Duration(n) > processlog.MaxDelay/unit {
		return 0, &FieldError{Field: "delay levels", Reason: fmt.Sprintf("%q: want a number and s, m, h or d, at most 100 years", level)}
	}
	return time.Duration(n) * unit, nil
}
