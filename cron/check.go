package cron

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/robfig/cron/v3"
)

type field struct {
	name    string
	minimum int
	maximum int
	// constant reports whether the field always has the same number of values. For example, each hour has 60 minutes,
	// but not each month has 31 days. A step that divides this number continues evenly in the next hour.
	constant bool
	ofDays   bool   // whether the field accepts a question mark, which means the same as a star
	instead  string // what an error message proposes in place of the refused step, besides a range; empty: nothing else
}

var fields = []field{
	{name: "minute", maximum: 59, constant: true, instead: "compensator.Every"},
	{name: "hour", maximum: 23, constant: true, instead: "compensator.Every"},
	{name: "day of month", minimum: 1, maximum: 31, ofDays: true},
	{name: "month", minimum: 1, maximum: 12, constant: true},
	{name: "day of week", maximum: 6, ofDays: true},
}

// check accepts invalid expressions, because the parser refuses them.
func check(expression string) error {
	texts := strings.Fields(expression)
	if len(texts) != len(fields) {
		return nil // The expression is a name such as @daily, or the parser will refuse it.
	}
	for i, text := range texts {
		for part := range strings.SplitSeq(text, ",") {
			if err := fields[i].check(part); err != nil {
				return fmt.Errorf("%s %q: %w", fields[i].name, text, err)
			}
		}
	}
	if !star(texts[2]) && !star(texts[4]) {
		return fmt.Errorf("day of month %q and day of week %q: cron would fire on every day that fits either field; set one field and check the other in the handler", texts[2], texts[4])
	}
	return nil
}

func star(text string) bool { return text == "*" || text == "?" || text == "*/1" || text == "?/1" }

func (f field) check(part string) error {
	values, step, stepped := strings.Cut(part, "/")
	switch {
	case values == "":
		return fmt.Errorf("an element of the list is empty")
	case strings.Contains(part, "+"):
		return fmt.Errorf("%q is not a number", part)
	case strings.Contains(values, "?") && (values != "?" || !f.ofDays):
		return fmt.Errorf("? is allowed only alone, and only in a field for days")
	case strings.Contains(values, "*") && values != "*":
		return fmt.Errorf("* cannot be the end of a range")
	case !stepped:
		return nil
	}
	stepSize, err := strconv.Atoi(step)
	if err != nil || stepSize < 1 {
		return nil // The parser will refuse this part.
	}
	return f.checkStep(values, stepSize)
}

// checkStep refuses */90 of minutes, which selects one value, and */7, whose last gap is shorter. It accepts a shorter
// last gap in a range.
func (f field) checkStep(values string, step int) error {
	first, last, isRange := f.minimum, f.maximum, false
	if values != "*" && values != "?" {
		from, to, next := strings.Cut(values, "-")
		first, isRange = f.number(from), next
		if next {
			last = f.number(to)
		}
		if first < 0 || last < 0 {
			return nil // The parser will refuse these values.
		}
	}
	instead := fmt.Sprintf("%d-%d/%d", first, last, step)
	if f.instead != "" {
		instead += ", or use " + f.instead
	}
	switch {
	case step == 1 && first == f.minimum || first > last:
		return nil
	case step > last-first:
		return fmt.Errorf("the step %d is larger than the field, so it selects only %d", step, first)
	case isRange:
		return nil
	case !f.constant:
		return fmt.Errorf("the step %d starts again with each month or week, so the last gap differs; if you want that, write %s", step, instead)
	case (f.maximum-f.minimum+1)%step != 0 || first-f.minimum >= step:
		return fmt.Errorf("the step %d does not continue evenly from one round of %d to the next; if you want that, write %s", step, f.maximum-f.minimum+1, instead)
	}
	return nil
}

var names = map[string]map[string]int{
	"month":       {"jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6, "jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11, "dec": 12},
	"day of week": {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6},
}

// number returns −1 if text is no value of the field.
func (f field) number(text string) int {
	if n, isNamed := names[f.name][strings.ToLower(text)]; isNamed {
		return n
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return -1
	}
	return n
}

var daysOf = [13]int{0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}

// checkDays refuses an expression that names a month without any of the named days. If the month field is a star, it
// refuses the expression only if no month has such a day.
func checkDays(s *cron.SpecSchedule) error {
	// The expression names days of the week. The function check has refused days of the month beside them, so every day
	// of the month fits.
	if s.Dow&starBit == 0 {
		return nil
	}
	var without []string
	months := 0
	for month := 1; month <= 12; month++ {
		if s.Month&(1<<month) == 0 {
			continue
		}
		months++
		if s.Dom&(1<<(daysOf[month]+1)-1)&^1 == 0 {
			without = append(without, strconv.Itoa(month))
		}
	}
	switch {
	case len(without) == months:
		return fmt.Errorf("it never fires: none of its months has such a day")
	case len(without) > 0 && s.Month&starBit == 0:
		return fmt.Errorf("month %s has no such day: leave it out", strings.Join(without, ", "))
	}
	return nil
}
