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

func (s *site) zoneFor(r *http.Request) *time.Location {
	if cookie, err := r.Cookie(zoneCookie); err == nil {
		if zone, err := loadZone(cookie.Value); err == nil {
			return zone
		}
	}
	return s.opts.Zone
}

// loadZone refuses "Local", the zone of this machine.
func loadZone(name string) (*time.Location, error) {
	if name != "" && name != time.Local.String() && len(name) <= 64 {
		if zone, err := time.LoadLocation(name); err == nil {
			return zone, nil
		}
	}
	return nil, newNoneError("zone", name)
}

var zoneAreas = []string{"Africa", "America", "Antarctica", "Asia", "Atlantic", "Australia", "Europe", "Indian", "Pacific"}

// nearZone finds the zone of a city that is named without its area: Asia/Shanghai for shanghai.
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

// formatTime adds the offset if it differs from the present one.
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

// readTimes also rewrites each text in the zone of the page.
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

type timeLimit struct {
	field  string // name for messages
	text   *string
	target *time.Time
}

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

// parseTime returns a *FieldError for a time that the zone's clocks skip or show twice.
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

// instantsOf tries the zone's offsets of a day before and a day after. These two offsets are enough, because an offset
// changes at most once in two days.
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
