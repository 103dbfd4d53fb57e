package cron

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/robfig/cron/v3"
)

// field is one of the five fields of an expression.
type field struct {
	name     string
	least    int
	most     int
	constant bool   // its values repeat after most-least+1 of them, so that a step can go on from one round to the next
	ofDays   bool   // ? stands for *
	instead  string // what says the same without the field
}

var fields = []field{
	{name: "minute", most: 59, constant: true, instead: "compensator.Every"},
	{name: "hour", most: 23, constant: true, instead: "compensator.Every"},
	{name: "day of month", least: 1, most: 31, ofDays: true},
	{name: "month", least: 1, most: 12, constant: true},
	{name: "day of week", most: 6, ofDays: true},
}

// check refuses expressions that fire at other times than they say. The parser refuses what is no expression at all.
func check(expression string) error {
	texts := strings.Fields(expression)
	if len(texts) != len(fields) {
		return nil // a name as @daily, or the parser's to refuse
	}
	for i, text := range texts {
		for part := range strings.SplitSeq(text, ",") {
			if err := fields[i].check(part); err != nil {
				return fmt.Errorf("%s %q: %w", fields[i].name, text, err)
			}
		}
	}
	if !star(texts[2]) && !star(texts[4]) {
		return fmt.Errorf("day of month %q and day of week %q: cron takes a day that fits either of them; use one of the fields, and let the handler look at the other", texts[2], texts[4])
	}
	return nil
}

// star reports whether a field says every value.
func star(text string) bool { return text == "*" || text == "?" || text == "*/1" || text == "?/1" }

// check refuses a part of a list.
func (f field) check(part string) error {
	values, step, stepped := strings.Cut(part, "/")
	switch {
	case values == "":
		return fmt.Errorf("an element of the list is empty")
	case strings.Contains(part, "+"):
		return fmt.Errorf("%q is no number", part)
	case strings.Contains(values, "?") && (values != "?" || !f.ofDays):
		return fmt.Errorf("? stands alone, for a day")
	case strings.Contains(values, "*") && values != "*":
		return fmt.Errorf("* is no end of a range")
	case !stepped:
		return nil
	}
	by, err := strconv.Atoi(step)
	if err != nil || by < 1 {
		return nil // the parser's to refuse
	}
	return f.checkStep(values, by)
}

// checkStep refuses a step that selects one value only, and one that does not go on evenly although no range limits it.
func (f field) checkStep(values string, step int) error {
	first, last, ranged := f.least, f.most, false
	if values != "*" && values != "?" {
		from, to, found := strings.Cut(values, "-")
		first, ranged = f.number(from), found
		if found {
			last = f.number(to)
		}
		if first < 0 || last < 0 {
			return nil // the parser's to refuse
		}
	}
	instead := fmt.Sprintf("%d-%d/%d", first, last, step)
	if f.instead != "" {
		instead += ", or use " + f.instead
	}
	switch {
	case step == 1 && first == f.least || first > last:
		return nil
	case step > last-first:
		return fmt.Errorf("the step %d is larger than the field: it selects %d alone", step, first)
	case ranged:
		return nil
	case !f.constant:
		return fmt.Errorf("the step %d begins anew with each month or week, so that the last gap is another; if that is meant, write %s", step, instead)
	case (f.most-f.least+1)%step != 0 || first-f.least >= step:
		return fmt.Errorf("the step %d does not go on evenly from one round of %d to the next; if that is meant, write %s", step, f.most-f.least+1, instead)
	}
	return nil
}

var names = map[string]map[string]int{
	"month":       {"jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6, "jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11, "dec": 12},
	"day of week": {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6},
}

// number is a value of the field, or −1.
func (f field) number(text string) int {
	if n, named := names[f.name][strings.ToLower(text)]; named {
		return n
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return -1
	}
	return n
}

// daysOf is how many days a month has at most.
var daysOf = [13]int{0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}

// checkDays refuses an expression whose days its months do not have. Where the months are a star it is enough that one has them.
func checkDays(s *cron.SpecSchedule) error {
	if s.Dow&starBit == 0 { // the days of the month are a star
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
		return fmt.Errorf("it never fires: no such month has such a day")
	case len(without) > 0 && s.Month&starBit == 0:
		return fmt.Errorf("month %s has no such day: leave it out", strings.Join(without, ", "))
	}
	return nil
}
