package cron_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/cron"
)

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	location, err := time.LoadLocation(name)
	require.NoError(t, err)
	return location
}

func parse(t *testing.T, expression string, location *time.Location) compensator.Schedule {
	t.Helper()
	schedule, err := cron.Parse(expression, location)
	require.NoError(t, err)
	return schedule
}

func slots(schedule compensator.Schedule, from, to time.Time) (list []time.Time) {
	for next := schedule.Next(from); !next.IsZero() && !next.After(to); next = schedule.Next(next) {
		list = append(list, next)
	}
	return list
}

func shown(list []time.Time, location *time.Location) (texts []string) {
	for _, slot := range list {
		texts = append(texts, slot.In(location).Format("01-02 15:04:05 MST"))
	}
	return texts
}

// Failure: F103
func TestSlotsAroundTheHoursThatAreSkippedAndRepeated(t *testing.T) {
	berlin, lordHowe := zone(t, "Europe/Berlin"), zone(t, "Australia/Lord_Howe")
	for _, c := range []struct {
		expression string
		location   *time.Location
		from       time.Time
		span       time.Duration
		want       []string
	}{
		{"30 2 * * *", berlin, time.Date(2026, 3, 28, 0, 0, 0, 0, berlin), 72 * time.Hour, []string{"03-28 02:30:00 CET", "03-29 03:00:00 CEST", "03-30 02:30:00 CEST"}},
		{"0,30 2 * * *", berlin, time.Date(2026, 3, 29, 0, 0, 0, 0, berlin), 12 * time.Hour, []string{"03-29 03:00:00 CEST"}},
		{"30 2,3 * * *", berlin, time.Date(2026, 3, 29, 0, 0, 0, 0, berlin), 12 * time.Hour, []string{"03-29 03:00:00 CEST", "03-29 03:30:00 CEST"}},
		{"30 2 * * *", berlin, time.Date(2026, 10, 24, 0, 0, 0, 0, berlin), 72 * time.Hour, []string{"10-24 02:30:00 CEST", "10-25 02:30:00 CEST", "10-26 02:30:00 CET"}},
		{"0 2,3 * * *", berlin, time.Date(2026, 10, 25, 0, 0, 0, 0, berlin), 12 * time.Hour, []string{"10-25 02:00:00 CEST", "10-25 03:00:00 CET"}},
		{"@hourly", berlin, time.Date(2026, 10, 25, 0, 30, 0, 0, berlin), 4 * time.Hour, []string{"10-25 01:00:00 CEST", "10-25 02:00:00 CEST", "10-25 02:00:00 CET", "10-25 03:00:00 CET"}},
		{"@hourly", berlin, time.Date(2026, 3, 29, 0, 30, 0, 0, berlin), 3 * time.Hour, []string{"03-29 01:00:00 CET", "03-29 03:00:00 CEST", "03-29 04:00:00 CEST"}},
		{"15 2 * * *", lordHowe, time.Date(2026, 10, 4, 0, 0, 0, 0, lordHowe), 30 * time.Hour, []string{"10-04 02:30:00 +11", "10-05 02:15:00 +11"}},
		{"45 1 * * *", lordHowe, time.Date(2026, 4, 5, 0, 0, 0, 0, lordHowe), 30 * time.Hour, []string{"04-05 01:45:00 +11", "04-06 01:45:00 +1030"}},
	} {
		assert.Equal(t, c.want, shown(slots(parse(t, c.expression, c.location), c.from, c.from.Add(c.span)), c.location), "%s from %v", c.expression, c.from)
	}
}

// Some of these days have no midnight.
func TestExpressionOfEveryHourHasEachMomentTheClockShows(t *testing.T) {
	for _, c := range []struct {
		zone       string
		day        time.Time
		ofThatDay  int // number of slots that "0 * D M *" must have on that day
		expression string
	}{
		{"Asia/Beirut", time.Date(2024, 3, 31, 12, 0, 0, 0, time.UTC), 23, "0 * * * 0"},
		{"Asia/Beirut", time.Date(2024, 10, 27, 12, 0, 0, 0, time.UTC), 24, "*/20 * * * 6"}, // The clock is set back at midnight, so 23:00 of the day before comes twice.
		{"Africa/Cairo", time.Date(2024, 4, 26, 12, 0, 0, 0, time.UTC), 23, "0 * * * 5"},
		{"Africa/Cairo", time.Date(2024, 4, 26, 12, 0, 0, 0, time.UTC), 23, "*/30 * 26 4 *"},
		{"Africa/Cairo", time.Date(2024, 11, 1, 12, 0, 0, 0, time.UTC), 24, "7 * 31 10 *"},
		{"America/Havana", time.Date(2024, 3, 10, 12, 0, 0, 0, time.UTC), 23, "0 * * * 0"},
		{"America/Santiago", time.Date(2024, 9, 8, 12, 0, 0, 0, time.UTC), 23, "59 * * * 0"},
		{"America/Sao_Paulo", time.Date(2018, 11, 4, 12, 0, 0, 0, time.UTC), 23, "0 * * 11 0"},
		{"Europe/Berlin", time.Date(2024, 3, 31, 12, 0, 0, 0, time.UTC), 23, "0 * 31 * *"},
		{"Europe/Berlin", time.Date(2024, 10, 27, 12, 0, 0, 0, time.UTC), 25, "0-59/7 * * 10 0"},
		{"Australia/Lord_Howe", time.Date(2024, 10, 6, 12, 0, 0, 0, time.UTC), 23, "15 * * * 0"},
		{"Australia/Lord_Howe", time.Date(2024, 4, 7, 12, 0, 0, 0, time.UTC), 24, "0-59/45 * * * 0"},
		{"Pacific/Apia", time.Date(2011, 12, 30, 12, 0, 0, 0, time.UTC), 0, "0 * * 12 4-6"}, // This day did not exist.
	} {
		location := zone(t, c.zone)
		day := strconv.Itoa(c.day.Day()) + " " + strconv.Itoa(int(c.day.Month()))
		from, to := c.day.Add(-60*time.Hour), c.day.Add(60*time.Hour)
		assert.Len(t, slots(parse(t, "0 * "+day+" *", location), from, to), c.ofThatDay, "%s, the hours of %v", c.zone, c.day)
		for _, expression := range []string{c.expression, "* * " + day + " *", "0-59/11 * * * *", "@hourly"} {
			assert.Equal(t, walked(t, expression, location, from, to), shown(slots(parse(t, expression, location), from, to), location), "%s %s", c.zone, expression)
		}
	}
}

// A rule is the last line of the zone's file.
var rules = map[string]string{
	"Europe/Berlin":    "CET-1CEST,M3.5.0,M10.5.0/3",
	"Europe/London":    "GMT0BST,M3.5.0/1,M10.5.0",
	"America/New_York": "EST5EDT,M3.2.0,M11.1.0",
	"Australia/Sydney": "AEST-10AEDT,M10.1.0,M4.1.0/3",
	"Africa/Cairo":     "EET-2EEST,M4.5.5/0,M10.5.4/24",
}

// ruled returns a location that knows the changes of future years only from a rule, as Go's package time/tzdata stores
// them. The zone files of many machines have a list of these changes instead of a rule.
func ruled(t *testing.T, name string) *time.Location {
	t.Helper()
	// RFC 8536 requires a header, one type of local time and its name, for version 1 and again for version 2.
	part := "TZif2" + strings.Repeat("\x00", 15+4*4) + "\x00\x00\x00\x01" + "\x00\x00\x00\x04" + "\x00\x00\x00\x00\x00\x00" + "LMT\x00"
	location, err := time.LoadLocationFromTZData(name, []byte(part+part+"\n"+rules[name]+"\n"))
	require.NoError(t, err)
	return location
}

// The function ZoneBounds ends a leap year after 365 days, so a search that relies on it alone would never return.
// Failure: F103
func TestSlotsGoOnPastTheLastDayOfALeapYear(t *testing.T) {
	t.Parallel()
	compared := make(chan struct{})
	go func() {
		defer close(compared)
		for name := range rules {
			location := ruled(t, name)
			for _, year := range []int{2024, 2027, 2028, 2096, 2100, 2400} {
				from, to := time.Date(year, 12, 28, 0, 0, 0, 0, time.UTC), time.Date(year+1, 1, 2, 23, 59, 0, 0, time.UTC)
				for _, expression := range []string{"*/20 * * * *", "0 2 * * *", "30 23 31 12 *", "*/30 0 1 1 *", "15 */3 * * 0,6"} {
					if want, got := walked(t, expression, location, from, to), shown(slots(parse(t, expression, location), from, to), location); !assert.Equal(t, want, got, "%s %s in %d", name, expression, year) {
						return
					}
				}
			}
		}
	}()
	select {
	case <-compared:
	case <-time.After(time.Minute):
		require.Fail(t, "Next does not return")
	}
}

// walked finds the slots without the schedule under test. It reads the clock of the zone for each minute. The minute is
// a slot if the same expression, evaluated in UTC, has a slot at the date and time that this clock shows.
func walked(t *testing.T, expression string, location *time.Location, from, to time.Time) (texts []string) {
	t.Helper()
	// isNamed has the slots that the expression has on a UTC clock. It begins a day before the time from and ends a day
	// after the time to, because no zone differs from UTC by more than a day.
	isNamed := make(map[time.Time]bool)
	for _, slot := range slots(parse(t, expression, time.UTC), from.Add(-24*time.Hour), to.Add(24*time.Hour)) {
		isNamed[slot.UTC()] = true
	}
	for instant := from.Add(time.Minute); !instant.After(to); instant = instant.Add(time.Minute) {
		_, offset := instant.In(location).Zone()
		if isNamed[instant.Add(time.Duration(offset)*time.Second).UTC()] {
			texts = append(texts, shown([]time.Time{instant}, location)...)
		}
	}
	return texts
}

// Processes call Next from different moments and must agree on the slot.
// Failure: F103
func TestSlotIsTheSameFromEachMomentBeforeIt(t *testing.T) {
	for _, name := range []string{"Europe/Berlin", "Australia/Lord_Howe", "America/Santiago", "Asia/Kolkata", "UTC"} {
		location := zone(t, name)
		for _, expression := range []string{"30 2 * * *", "0-59/7 1-3 * * *", "*/30 * * * *", "0 0 * * *", "59 23 31 * *"} {
			schedule := parse(t, expression, location)
			begin, validUntil := time.Date(2026, 1, 1, 0, 0, 0, 0, location), time.Date(2027, 1, 1, 0, 0, 0, 0, location)
			list := slots(schedule, begin, validUntil)
			require.NotEmpty(t, list)
			for i, slot := range list[1:] {
				require.True(t, slot.After(list[i]), "slots ascend")
				if len(list) > 1000 && i%10 > 0 && !changes(slot) { // Of long lists, check all slots around a clock change and every tenth of the others.
					continue
				}
				for _, from := range []time.Time{slot.Add(-time.Nanosecond), slot.Add(-time.Millisecond), list[i], list[i].Add(time.Nanosecond), list[i].Add(slot.Sub(list[i]) / 2)} {
					require.True(t, slot.Equal(schedule.Next(from)), "%s %s: after %v comes %v, not %v", name, expression, from, slot, schedule.Next(from))
				}
			}
		}
	}
}

func changes(slot time.Time) bool {
	_, before := slot.Add(-12 * time.Hour).Zone()
	_, after := slot.Add(12 * time.Hour).Zone()
	return before != after
}

// Failure: F103
func TestEveryDayHasItsSlotDespiteClockChanges(t *testing.T) {
	for _, name := range []string{"Europe/Berlin", "Australia/Lord_Howe", "America/Santiago", "Asia/Beirut", "Africa/Cairo", "Africa/Casablanca", "UTC"} {
		location := zone(t, name)
		for hour := range 24 {
			schedule := parse(t, "20 "+time.Date(0, 1, 1, hour, 0, 0, 0, time.UTC).Format("15")+" * * *", location)
			list := slots(schedule, time.Date(2026, 1, 1, 0, 0, 0, 0, location).Add(-1), time.Date(2027, 1, 1, 0, 0, 0, 0, location).Add(-1))
			assert.Len(t, list, 365, "%s at %d", name, hour)
		}
	}
}

// TestTimeLocalIsTheZoneOfTheProcess sets time.Local, so it must not run in parallel with other tests.
func TestTimeLocalIsTheZoneOfTheProcess(t *testing.T) {
	kolkata := zone(t, "Asia/Kolkata")
	defer func(own *time.Location) { time.Local = own }(time.Local)
	time.Local = kolkata
	from := time.Date(2026, 3, 1, 18, 10, 0, 0, time.UTC) // Sunday, 23:40
	for expression, want := range map[string][]string{
		"@hourly":   {"03-02 00:00:00 IST", "03-02 01:00:00 IST", "03-02 02:00:00 IST"},
		"0 * * * 1": {"03-02 00:00:00 IST", "03-02 01:00:00 IST", "03-02 02:00:00 IST"},
		"0 * * * 0": {"03-08 00:00:00 IST", "03-08 01:00:00 IST", "03-08 02:00:00 IST"},
		"0 2 * * *": {"03-02 02:00:00 IST"},
	} {
		list := slots(parse(t, expression, time.Local), from, from.Add(24*time.Hour*7))
		require.GreaterOrEqual(t, len(list), len(want), "%s", expression)
		assert.Equal(t, want, shown(list[:len(want)], kolkata), "%s", expression)
	}
}

func TestExpressionsThatAreRefused(t *testing.T) {
	for _, expression := range []string{"", "61 * * * *", "* * * * * *", "@every 1h", "TZ=UTC 0 2 * * *", "CRON_TZ=UTC 0 2 * * *", "@never", "@reboot",
		"0 22-2 * * *", "0 0 * * sat-sun", "0 0 * * 7", "*/0 * * * *", "1--5 * * * *", "1-5-7 * * * *", "mon * * * *", "-5 * * * *"} {
		_, err := cron.Parse(expression, time.UTC)
		assert.Error(t, err, "%q", expression)
	}
	_, err := cron.Parse("0 2 * * *", nil)
	assert.Error(t, err)
}

// The parser of robfig/cron accepts these expressions. An empty error means that Parse must accept the expression, too.
func TestExpressionThatNeverFiresOrMisleadsIsRefused(t *testing.T) {
	for expression, why := range map[string]string{
		"0 0 31 4 *":           "never fires",
		"0 0 30 2 *":           "never fires",
		"0 0 30,31 2 *":        "never fires",
		"0 0 31 2,4,6 *":       "never fires",
		"0 0 31 feb,apr *":     "never fires",
		"0 * 31 9 *":           "never fires",
		"0 0 31 1,4 *":         "month 4 has no such day",
		"0 0 30 1-12 *":        "month 2 has no such day",
		"0 0 31 */3 *":         "month 4 has no such day",
		"*/90 * * * *":         "larger than the field",
		"*/60 * * * *":         "larger than the field",
		"0 */24 * * *":         "larger than the field",
		"0 */36 * * *":         "larger than the field",
		"0 0 */31 * *":         "larger than the field",
		"0 0 1 */12 *":         "larger than the field",
		"0 0 * * */7":          "larger than the field",
		"0-10/20 * * * *":      "larger than the field",
		"10-10/5 * * * *":      "larger than the field",
		"59/5 * * * *":         "larger than the field",
		"0 0 1 jan-mar/3 *":    "larger than the field",
		"0,*/90 * * * *":       "larger than the field",
		"*/7 * * * *":          "write 0-59/7, or use compensator.Every",
		"*/45 * * * *":         "write 0-59/45",
		"0 */5 * * *":          "write 0-23/5",
		"0 0 1 */5 *":          "write 1-12/5",
		"0 0 */2 * *":          "write 1-31/2",
		"0 0 * * */2":          "write 0-6/2",
		"0 0 ?/2 * *":          "write 1-31/2",
		"20/15 * * * *":        "write 20-59/15",
		"5/1 * * * *":          "write 5-59/1",
		"0 0 1 feb/3 *":        "", // Months 2, 5, 8 and 11 are evenly spaced.
		"0 0 13 * 5":           "fits either",
		"0 0 1-31 * 5":         "fits either",
		"0 9 1-7 * mon":        "fits either",
		"0 0 13 * 0-6":         "fits either",
		", * * * *":            "empty",
		"1,,2 * * * *":         "empty",
		"5, * * * *":           "empty",
		"*-5 * * * *":          "cannot be the end of a range",
		"0 0 ?-5 * *":          "only alone",
		"? * * * *":            "for days",
		"+5 * * * *":           "not a number",
		"*/15 * * * *":         "",
		"5/15 * * * *":         "",
		"*/1 * * * *":          "",
		"0 0 */1 * 5":          "",
		"0-59/7 * * * *":       "",
		"0 0 1-31/2 * *":       "",
		"0 0 29 2 *":           "",
		"0 0 31 * *":           "",
		"0 0 29-31 1-12 *":     "",
		"0 0 ? * mon-fri":      "",
		"0 0 13 * ?":           "",
		"1,1-5,3 * * * *":      "",
		"0 0-23/5 1 JAN *":     "",
		"0 0 31 1,3,5-8/2 *":   "",
		"@yearly":              "",
		"@midnight":            "",
		"0  2\t* * *":          "",
		"0 8-18/2 * * 1-5":     "",
		"0 0 1 1,4,7,10 *":     "",
		"0 0 30 4,6,9,11 *":    "",
		"0 12 29 2,4,6,9,11 *": "",
	} {
		_, err := cron.Parse(expression, time.UTC)
		if why == "" {
			assert.NoError(t, err, "%q", expression)
		} else {
			assert.ErrorContains(t, err, why, "%q", expression)
		}
	}
}

// The year 2100 is not a leap year.
func TestLeapDayHasItsSlotAcrossTheYear2100(t *testing.T) {
	for _, expression := range []string{"0 0 29 2 *", "0 * 29 2 *"} {
		slot := parse(t, expression, zone(t, "Europe/Berlin")).Next(time.Date(2096, 3, 1, 0, 0, 0, 0, time.UTC))
		assert.Equal(t, time.Date(2104, 2, 28, 23, 0, 0, 0, time.UTC), slot.UTC(), expression)
	}
}
