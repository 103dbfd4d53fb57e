package cron

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/compensator-go/compensator"
)

// Parse parses a cron expression. The fields of the expression refer to the local clock of location.
//
// A slot is the first moment at which that clock shows the expression's time or a later time. When the clock skips an
// hour, all times in that hour share one slot at the end of the gap. When an hour comes twice, its times have their
// slots in the first of the two hours. An expression for every hour ("*/5 * * * *", "@hourly") fires through both
// hours. An expression counts as one for every hour only if its hour field is a star. The hour fields "0-23" and "0/1"
// are not stars.
//
// The argument location must not be nil. Avoid time.Local, because it may differ between processes. Parse refuses
// "@every" and "TZ=" in the expression. Use compensator.Every, and the argument location, instead.
//
// Parse also refuses expressions that never fire, and expressions that would fire at other times than a reader expects:
//
//   - A day that no month of the expression has: "0 0 31 4 *". It also refuses a named month that has none of the days:
//     "0 0 31 1,4 *". The 29th of February is accepted and fires in leap years.
//   - A step larger than its field or range: "*/90 * * * *" selects only minute 0, so it would fire every hour.
//   - A step that does not divide its field: "*/7 * * * *" would fire 4 minutes after minute 56. The fields have 60
//     minutes, 24 hours and 12 months. For days no step is accepted, because months have different lengths, and no step
//     divides 7 days. To accept the uneven gap, write a range: "0-59/7 * * * *", "0 0 1-31/2 * *".
//   - A start after the first step: "20/15 * * * *" would fire at minutes 20, 35 and 50, but not at minute 5. Write
//     "20-59/15".
//   - A day of the month together with a day of the week: "0 0 13 * 5" would fire on each 13th and on each Friday.
//   - An empty element of a list, a sign, a star as an end of a range, and ? in a field that is not for days.
//   - A range that goes backwards, the number 7 as a day of the week, and a field of seconds.
//
// Parse accepts a list with values that overlap.
//
// Errors of Parse are texts for people, and have no type. The schedule is safe for concurrent use.
func Parse(expression string, location *time.Location) (compensator.Schedule, error) {
	if location == nil {
		return nil, errors.New("compensator/cron: the location is nil")
	}
	if strings.Contains(expression, "TZ=") {
		return nil, fmt.Errorf("compensator/cron: %q: pass the time zone as the second argument", expression)
	}
	parsed, err := cron.ParseStandard(expression)
	if err == nil {
		err = check(expression)
	}
	if err != nil {
		return nil, fmt.Errorf("compensator/cron: %q: %w", expression, err)
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, fmt.Errorf("compensator/cron: %q: use compensator.Every", expression)
	}
	if err := checkDays(spec); err != nil {
		return nil, fmt.Errorf("compensator/cron: %q: %w", expression, err)
	}
	spec.Location = time.UTC
	if spec.Hour&starBit != 0 {
		return intervalSchedule{spec, location}, nil
	}
	return wallSchedule{spec, location}, nil
}

// starBit is the bit with which the parser marks a star field.
const starBit = 1 << 63

// nextWallTime takes and returns readings of a local clock, stored as UTC. spec.Next searches only five years, but
// around 2100 two leap days are eight years apart.
func nextWallTime(spec *cron.SpecSchedule, wallTime time.Time) time.Time {
	for {
		next := spec.Next(wallTime)
		if !next.IsZero() {
			return next
		}
		wallTime = time.Date(wallTime.Year()+5, time.December, 31, 23, 59, 59, 0, time.UTC)
	}
}

// intervalSchedule evaluates the expression separately for each period between two clock changes. Within such a period,
// the clock of the location has a fixed offset from UTC. The parser's own schedule would skip a day that has no
// midnight in its location.
type intervalSchedule struct {
	spec     *cron.SpecSchedule
	location *time.Location
}

// Next implements compensator.Schedule.
func (e intervalSchedule) Next(after time.Time) time.Time {
	for local := after.In(e.location); ; {
		offset, validUntil := offsetAt(local)
		wallTime := nextWallTime(e.spec, after.UTC().Add(offset))
		if instant := wallTime.Add(-offset); validUntil.IsZero() || instant.Before(validUntil) {
			return instant
		}
		local, after = validUntil, validUntil.Add(-time.Nanosecond) // The moment of the clock change may be a slot itself.
	}
}

// A wallSchedule evaluates the expression on a clock without clock changes. Then it finds the moment at which the clock
// of its location shows the same time.
type wallSchedule struct {
	spec     *cron.SpecSchedule
	location *time.Location
}

// Next implements compensator.Schedule.
func (w wallSchedule) Next(after time.Time) time.Time {
	local := after.In(w.location)
	wallTime := time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), local.Second(), local.Nanosecond(), time.UTC)
	for {
		wallTime = nextWallTime(w.spec, wallTime)
		if instant := w.firstInstant(wallTime); instant.After(after) {
			return instant
		}
	}
}

// firstInstant returns the first moment at which the location's clock shows wallTime or a later time.
func (w wallSchedule) firstInstant(wallTime time.Time) time.Time {
	for t := wallTime.Add(-48 * time.Hour).In(w.location); ; {
		offset, validUntil := offsetAt(t)
		instant := wallTime.Add(-offset)
		if !validUntil.IsZero() && !instant.Before(validUntil) {
			t = validUntil
			continue
		}
		if instant.Before(t) { // The clock was set forward past the given time, so the slot is at the clock change.
			instant = t
		}
		return instant.UTC()
	}
}

// offsetAt returns an offset that holds at least until validUntil, which is always after t. A zero validUntil means
// that the offset never changes.
//
// For some zones, ZoneBounds ends each year after 365 days (Go 1.26). On the last day of a leap year, it then returns
// an end that is not after t. In this case offsetAt returns the end of the UTC year, because no zone changes its offset
// on that day.
func offsetAt(t time.Time) (offset time.Duration, validUntil time.Time) {
	_, seconds := t.Zone()
	if _, validUntil = t.ZoneBounds(); !validUntil.IsZero() && !validUntil.After(t) {
		validUntil = time.Date(t.UTC().Year()+1, time.January, 1, 0, 0, 0, 0, time.UTC).In(t.Location())
	}
	return time.Duration(seconds) * time.Second, validUntil
}
