package cron

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/compensator-go/compensator"
)

// Parse reads a cron expression, whose fields are those of the local clock of in.
//
// A slot is the first moment at which that clock shows the expression's time, or a later one: what falls into an hour that
// is skipped has its slot at the end of the gap, one for all of it, and what falls into an hour that comes twice has it in
// the first. An expression of every hour ("*/5 * * * *", "@hourly") goes on through both; it is one where its hour is a star: "0-23" and
// "0/1" name hours, as a list does.
//
// in is not nil; a process's own zone, time.Local, may not be another one's. "@every" and "TZ=" in the expression are
// refused: compensator.Every and in say the same.
//
// Parse refuses an expression that never fires, and one that fires at other times than it says:
//
//   - A day that no month of the expression has: "0 0 31 4 *". A month that is named and has none of the days: "0 0 31 1,4 *". The 29th
//     of February is accepted, and fires in leap years.
//   - A step larger than its field or range, which selects one value: "*/90 * * * *" would fire every hour.
//   - A step that does not divide its field: "*/7 * * * *" would fire 4 minutes after minute 56. The fields have 60 minutes, 24 hours and
//     12 months. Days have no such step, because months differ, and 7 has no divisor. A range says that the gap is meant:
//     "0-59/7 * * * *", "0 0 1-31/2 * *".
//   - A start that is not within the first step: "20/15 * * * *" is minutes 20, 35 and 50. Write "20-59/15".
//   - A day of the month together with a day of the week: "0 0 13 * 5" would fire on each 13th and on each Friday.
//   - An empty element of a list, a sign, a star as an end of a range, and ? for anything but a day.
//
// Values of a list may overlap. Ranges that go backwards, the 7th day of a week, and a field of seconds are refused as well.
func Parse(expression string, in *time.Location) (compensator.Schedule, error) {
	if in == nil {
		return nil, errors.New("compensator/cron: no location")
	}
	if strings.Contains(expression, "TZ=") {
		return nil, fmt.Errorf("compensator/cron: %q: the zone is the second argument", expression)
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
		return every{spec, in}, nil
	}
	return wall{spec, in}, nil
}

// starBit is the bit by which the parser marks a field that is a star.
const starBit = 1 << 63

// next is the expression's first time after shown. The parser's schedule gives up after five years, and the years around 2100 have eight
// between two leap days.
func next(spec *cron.SpecSchedule, shown time.Time) time.Time {
	for {
		found := spec.Next(shown)
		if !found.IsZero() {
			return found
		}
		shown = time.Date(shown.Year()+5, time.December, 31, 23, 59, 59, 0, time.UTC)
	}
}

// every finds the moments at which the clock of in shows the expression's time. It asks the expression in a clock that is never set, and
// goes from one setting of that of in to the next: asked in the clock of in, the parser's schedule leaves out a day that has no midnight.
type every struct {
	spec *cron.SpecSchedule
	in   *time.Location
}

// Next implements compensator.Schedule.
func (e every) Next(after time.Time) time.Time {
	for local := after.In(e.in); ; {
		ahead, end := setting(local)
		shown := next(e.spec, after.UTC().Add(ahead))
		if at := shown.Add(-ahead); end.IsZero() || at.Before(end) {
			return at
		}
		local, after = end, end.Add(-time.Nanosecond) // the setting's own moment may be a slot
	}
}

// wall asks the expression in a clock that is never set, and finds the moment at which that of in shows the same.
type wall struct {
	spec *cron.SpecSchedule
	in   *time.Location
}

// Next implements compensator.Schedule.
func (w wall) Next(after time.Time) time.Time {
	local := after.In(w.in)
	shown := time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), local.Second(), local.Nanosecond(), time.UTC)
	for {
		shown = next(w.spec, shown)
		if at := w.first(shown); at.After(after) {
			return at
		}
	}
}

// first is the first moment at which the clock shows that time or a later one: it goes from one setting of the clock to the
// next.
func (w wall) first(shown time.Time) time.Time {
	for t := shown.Add(-48 * time.Hour).In(w.in); ; {
		ahead, end := setting(t)
		at := shown.Add(-ahead)
		if !end.IsZero() && !at.Before(end) {
			t = end
			continue
		}
		if at.Before(t) { // the clock was set past it
			at = t
		}
		return at.UTC()
	}
}

// setting is how far the clock of a moment's zone is ahead then, and until when at least, always later than that; zero: for ever. Where
// a zone goes on by a rule, as all do that are read from Go's own time/tzdata, ZoneBounds ends each year after 365 days (Go 1.26). Such
// a rule is asked by the year of UTC: the last day of a leap year is as the one before, and the next year is asked anew.
func setting(t time.Time) (ahead time.Duration, end time.Time) {
	_, offset := t.Zone()
	if _, end = t.ZoneBounds(); !end.IsZero() && !end.After(t) {
		end = time.Date(t.UTC().Year()+1, time.January, 1, 0, 0, 0, 0, time.UTC).In(t.Location())
	}
	return time.Duration(offset) * time.Second, end
}
