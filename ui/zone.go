package ui

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/compensator-go/compensator"
)

const zoneCookie = "compensator_zone"

// zoneFor returns the time zone that the person has chosen, or else Options.Zone.
func (s *site) zoneFor(r *http.Request) *time.Location {
	if cookie, err := r.Cookie(zoneCookie); err == nil {
		if zone, err := loadZone(cookie.Value); err == nil {
			return zone
		}
	}
	return s.opts.Zone
}

// loadZone returns the time zone with an IANA name, such as Europe/Berlin. It refuses "Local", the zone of this
// machine.
func loadZone(name string) (*time.Location, error) {
	if name != "" && name != time.Local.String() && len(name) <= 64 {
		if zone, err := time.LoadLocation(name); err == nil {
			return zone, nil
		}
	}
	return nil, newNoneError("zone", name)
}

// zoneAreas are the areas of the IANA time zones.
var zoneAreas = []string{"Africa", "America", "Antarctica", "Asia", "Atlantic", "Australia", "Europe", "Indian", "Pacific"}

// nearZone returns the time zone of a city that is named without its area, for example Asia/Shanghai for shanghai. It returns ""
// if there is none.
func nearZone(city string) string {
	if city == "" || len(city) > 40 {
		return ""
	}
	words := strings.FieldsFunc(strings.ToLower(city), func(r rune) bool { return r == ' ' || r == '_' })
	for i, word := range words {
		first, size := utf8.DecodeRuneInString(word)
		words[i] = string(unicode.ToUpper(first)) + word[size:]
	}
	for _, area := range zoneAreas {
		if zone, err := loadZone(area + "/" + strings.Join(words, "_")); err == nil {
			return zone.String()
		}
	}
	return ""
}

// Zone returns the value of a form's field that names the page's time zone.
func (w words) Zone() string { return w.location().String() }

// ZoneName names the page's time zone for people, with its present offset.
func (w words) ZoneName() string {
	zone := w.location()
	offset := time.Now().In(zone).Format("UTC-07:00")
	switch zone {
	case time.UTC:
		return "UTC"
	case time.Local:
		if name, _ := time.Now().Zone(); name == "UTC" {
			return name
		}
		return offset
	}
	return zone.String() + " (" + offset + ")"
}

// ShortZone names the page's time zone without its offset.
func (w words) ShortZone() string {
	if w.location() == time.Local {
		return w.ZoneName()
	}
	return w.Zone()
}

func (w words) location() *time.Location {
	if w.zone == nil {
		return time.UTC
	}
	return w.zone
}

// formatTime formats a time in the page's zone. It adds the offset if the offset differs from the present one, as for a
// time in summer that is shown in winter.
func (w words) formatTime(t time.Time, layout string) string {
	zone := w.location()
	t = t.In(zone)
	text := t.Format(layout)
	_, offset := t.Zone()
	_, present := time.Now().In(zone).Zone()
	switch {
	case zone == time.UTC:
		return text + " UTC"
	case offset != present:
		return text + t.Format(" UTC-07:00")
	}
	return text
}

// timeField is a field of a form that takes a time.
type timeField struct {
	Name, Label, Value string
}

// Type returns the type of the input. A time that the clocks show twice needs an offset, which an input of type
// datetime-local cannot hold.
func (f timeField) Type() string {
	if _, err := time.Parse(time.RFC3339, f.Value); err == nil {
		return "text"
	}
	return "datetime-local"
}

// readTimes parses the times of a form. They are in the zone that the form names, or else in the zone of the page. readTimes stores
// each time in its target, and rewrites its text in the zone of the page.
func (rq *request) readTimes(zoneName string, times []timeLimit) error {
	zone := rq.location()
	if zoneName != "" && zoneName != zone.String() {
		var err error
		if zone, err = loadZone(zoneName); err != nil {
			return err
		}
	}
	for _, limit := range times {
		if *limit.text == "" {
			continue
		}
		at, err := parseTime(limit.field, *limit.text, zone)
		if err != nil {
			return err
		}
		*limit.target, *limit.text = at, rq.fieldValue(at)
	}
	return nil
}

// timeLimit is one time of a form.
type timeLimit struct {
	field  string // name for messages
	text   *string
	target *time.Time
}

// fieldValue returns the text of a time for a field of a form.
func (w words) fieldValue(at time.Time) string {
	layout := "2006-01-02T15:04"
	if at.Second() != 0 {
		layout += ":05"
	}
	text := at.In(w.location()).Format(layout)
	if again, err := parseTime("", text, w.location()); err != nil || !again.Equal(at.Truncate(time.Second)) {
		return at.In(w.location()).Format(time.RFC3339)
	}
	return text
}

// parseTime parses a time of the zone, or a time with an offset. A time that the zone's clocks skip or show twice is a
// *FieldError.
func parseTime(field, text string, zone *time.Location) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at.UTC(), nil
	}
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02"} {
		wall, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		switch found := instantsOf(wall, zone); len(found) {
		case 0:
			return time.Time{}, &compensator.FieldError{Field: field, Reason: fmt.Sprintf("%q does not exist in this time zone, whose clocks skip this time", text)}
		case 1:
			return found[0].UTC(), nil
		}
		return time.Time{}, &compensator.FieldError{Field: field, Reason: fmt.Sprintf("%q comes twice in this time zone, whose clocks are put back: take another time, or show UTC", text)}
	}
	return time.Time{}, &compensator.FieldError{Field: field, Reason: "want a time as 2006-01-02T15:04"}
}

// instantsOf returns the instants at which the clocks of a zone show the date and time of wall: one instant, two or none.
// It tries the zone's offsets of a day before and a day after. These two offsets are enough, because an offset changes at
// most once in two days.
func instantsOf(wall time.Time, zone *time.Location) (found []time.Time) {
	for _, distance := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		_, offset := wall.Add(distance).In(zone).Zone()
		at := wall.Add(-time.Duration(offset) * time.Second)
		if _, actual := at.In(zone).Zone(); actual == offset && !slices.Contains(found, at) {
			found = append(found, at)
		}
	}
	return found
}
