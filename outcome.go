package compensator

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/jitter"
	"github.com/compensator-go/compensator/processlog"
)

// Permanent says that no retry helps: compensate, or leave it to a person.
func Permanent(err error) error { return engine.Permanent(err) }

// RetryAfter is a failure whose next attempt is due after d, kept between 100 ms and 100 years; 0 or less is the type's
// schedule. Around Unavailable it is no failure, but Unavailable for d: a service that is down and says until when.
func RetryAfter(d time.Duration, err error) error { return engine.RetryAfter(d, err) }

// Snooze is no failure, and spends no attempt: call again after d, kept as RetryAfter's; 0 or less is what the type's
// schedule has after the last failure, or a first one. It never ends by itself: see TypeConfig.MaxWait.
func Snooze(d time.Duration) error { return engine.Snooze(d) }

// Unavailable says that something the handler needs is down. It spends no attempt and keeps err as the entry's LastError. The entry is
// called again as Snooze(0) says, but after 2 to 4 seconds at least. Each further wait is about twice as long, up to 2 minutes. It
// never ends by itself: see TypeConfig.MaxWait. Package httpcall returns it for what an HTTP answer means.
func Unavailable(err error) error { return engine.Unavailable(err) }

// VerdictOf is what err asks for: for middleware, metrics, and code between a handler and the library. What becomes of the
// entry depends on more.
func VerdictOf(err error) Verdict { return engine.VerdictOf(err) }

// Retry is how long to wait after the failures-th failure, counted from 1; kept between 100 ms and 100 years. It is
// called concurrently.
type Retry func(failures int) time.Duration

// Exponential waits a random time between nothing and base·2^(failures−1), at most limit: full jitter.
func Exponential(base, limit time.Duration) Retry {
	return jitter.Exponential(base, min(limit, processlog.MaxDelay))
}

// Fixed waits the same time after each failure.
func Fixed(d time.Duration) Retry { return func(int) time.Duration { return d } }

// Steps waits each of delays in turn, and the last one from then on.
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

// ParseDelayLevels reads delays spelt like RocketMQLevels, in s, m, h and d. Level n follows the n-th failure.
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
